package streams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/jsontext"
)

var (
	errNoType  = problem.Bad("Must include an event type with the request either in body or as ES-EventType header.")
	errBadGUID = problem.Bad("Invalid request. Unable to parse guid")
)

// Append writes one event or a batch to a stream.
func (s *Handlers) Append(_ context.Context, x *request.Request) error {
	m := x.R.Header
	isBatch := x.Body.Form.IsBatch()
	eventType, _ := args.HeaderEventType.In(m)
	if eventType == "" && !isBatch {
		return errNoType
	}
	id, hasID, err := args.EventID(m)
	if err != nil {
		return err
	}
	if !hasID && !isBatch {
		redirectIncoming(x)
		return nil
	}
	w, body, err := s.newAppend(x, x.Route.Stream)
	if err != nil {
		return err
	}
	w.Late = true
	if isBatch {
		w.Events, err = decodeBatch(x, body)
	} else {
		err = w.setSingle(x.Body.Form, id, eventType, body)
	}
	if err != nil {
		return err
	}
	return s.sendAppended(x, w, http.StatusCreated)
}

// Incoming writes one event whose id is in the path. Posting again to the same
// address answers the same and writes nothing.
func (s *Handlers) Incoming(_ context.Context, x *request.Request) error {
	id, err := event.ParseID(x.Route.ID)
	if err != nil || id.IsZero() {
		return errBadGUID
	}
	eventType, _ := args.HeaderEventType.In(x.R.Header)
	if eventType == "" {
		return problem.EmptyType
	}
	w, body, err := s.newAppend(x, x.Route.Stream)
	if err != nil {
		return err
	}
	w.Late = true
	if err := w.setSingle(x.Body.Form, id, eventType, body); err != nil {
		return err
	}
	if x.Node.ReferenceStatusCodes {
		return s.sendAppended(x, w, http.StatusCreated)
	}
	return s.sendAppended(x, w, http.StatusOK)
}

// write is a write under construction, with room for the usual single event.
type write struct {
	event.Write
	leader   bool // the client insists that this node leads
	anywhere bool // another node that leads may do it
	one      [1]event.Proposed
}

// newWrite reads the headers that all writes have.
func newWrite(x *request.Request, stream string) (*write, error) {
	expected, err := args.ExpectedVersion(x.R.Header)
	if err != nil {
		return nil, err
	}
	leader, err := args.RequireLeader(x.R.Header)
	if err != nil {
		return nil, err
	}
	w := &write{leader: leader}
	w.Stream, w.ExpectedVersion = stream, expected
	return w, nil
}

// newAppend is newWrite for an append, with the body.
func (s *Handlers) newAppend(x *request.Request, stream string) (w *write, body []byte, err error) {
	if w, err = newWrite(x, stream); err != nil {
		return nil, nil, err
	}
	if w.anywhere, err = s.Way.Write(x, w.leader); err != nil {
		return nil, nil, err
	}
	body, err = x.Upload.Read(request.MaxBody, problem.TooLarge, problem.InvalidBody)
	return w, body, err
}

// setSingle makes the body the data of the write's only event.
func (w *write) setSingle(f media.Form, id event.ID, eventType string, body []byte) error {
	e := &w.one[0]
	e.ID, e.Type, e.Data = id, eventType, body
	if f == media.FormJSON || f == media.FormAtomJSON {
		switch {
		case jsontext.ValidUTF8(body):
			e.Flags = event.FlagJSON
		case eventType != event.TypeLink || len(body) == 0:
			return problem.InvalidBody
		}
	}
	w.Events = w.one[:]
	return nil
}

// decodeBatch reads the events of a body. The decoded events are claimed in addition to the body.
func decodeBatch(x *request.Request, body []byte) ([]event.Proposed, error) {
	weight := int64(len(body))
	isJSON := x.Body.Form.IsJSON()
	if !isJSON {
		weight += min(weight*request.XmlWeight, request.MostXML, x.Node.Memory.Most()/2)
	}
	if err := x.Claim.Grow(x.R.Context(), weight); err != nil {
		return nil, err
	}
	if isJSON {
		return decodeJSONBatch(body)
	}
	return decodeXMLBatch(body)
}

// sendAppended commits an append and answers with the address of its first event.
func (s *Handlers) sendAppended(x *request.Request, w *write, status int) error {
	if err := checkSizes(x, w); err != nil {
		return err
	}
	done, err := s.commitWrite(x, w)
	if err != nil {
		return err
	}
	b := x.Atom().AppendHome(x.Scratch[:0], w.Stream)
	b = strconv.AppendInt(b, done.First, 10)
	x.Scratch = b
	h := x.W.Header()
	h[request.KeyLocation] = []string{string(b)}
	h[request.KeyContentType] = media.Text.ContentType
	x.Send(status, nil)
	return nil
}

// checkSizes checks the names and the sizes of an append.
func checkSizes(x *request.Request, w *write) error {
	err, payload := api.CheckName(len(w.Stream)), int64(0)
	for i := 0; i < len(w.Events) && err == nil; i++ {
		e := &w.Events[i]
		err = x.Node.CheckEvent(len(e.Type), len(e.Data)+len(e.Metadata), &payload)
	}
	return sized(x, err)
}

// sized says of an append that is too large how large one may be.
func sized(x *request.Request, err error) error {
	if most := x.Node.MaxAppendBytes; errors.Is(err, api.ErrLargeAppend) && most < api.MaxAppendBytes {
		return &problem.Problem{Status: http.StatusRequestEntityTooLarge, Text: fmt.Sprintf("Too large events received. All events of one write together are limited to %d bytes", most)}
	}
	return err
}

// commitWrite has a write done. Should another node lead by now, the store says so. A write that
// another node did is answered when this node shows it, so that a client which knows this node
// alone reads what it wrote.
func (s *Handlers) commitWrite(x *request.Request, w *write) (event.Written, error) {
	ctx := clock.NewDeadline(x.R.Context(), x.Node.WriteTimeout)
	defer ctx.Release()
	write := s.Store.Write
	if w.anywhere {
		x.Decider, _ = x.Node.Cluster.Redirect()
		write = s.Store.WriteAnywhere
	}
	done, err := write(ctx, &w.Write)
	leader.NoteNotDone(x, err)
	if w.anywhere && err == nil {
		x.AwaitShown(ctx, done.Position)
	}
	if err == nil && done.Position >= 0 {
		x.W.Header()[request.KeyPosition] = []string{strconv.FormatInt(done.Position, 10)}
	}
	if errors.Is(err, event.ErrTooLarge) { // Each event was within its limit.
		err = problem.LargeWrite
	}
	return done, err
}

// redirectIncoming sends a client that gave no id to an address with one, where
// its write can be repeated without being done twice.
func redirectIncoming(x *request.Request) {
	b := x.Atom().AppendHome(x.Scratch[:0], x.Route.Stream)
	b = append(b, "incoming/"...)
	b = event.ID(uuid.New()).AppendTo(b)
	x.Scratch = b
	x.W.Header()[request.KeyLocation] = []string{string(b)}
	x.Text(http.StatusTemporaryRedirect, "Forwarding to idempotent URI")
}
