package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/jsontext"
)

// maxBody bounds the body of a request.
const maxBody = 30_000_000

var (
	errNoType  = badRequest("Must include an event type with the request either in body or as ES-EventType header.")
	errBadGUID = badRequest("Invalid request. Unable to parse guid")
)

// isBatch reports whether a body of the form holds events with their ids and
// types, and not the data of one event.
func (f form) isBatch() bool {
	switch f {
	case formEventsJSON, formEventJSON, formEventsXML, formEventXML:
		return true
	}
	return false
}

// appendEvents writes one event or a batch to a stream.
func (s *streamHandlers) appendEvents(_ context.Context, x *exchange) error {
	m := x.r.Header
	isBatch := x.body.form.isBatch()
	eventType, _ := headerEventType.in(m)
	if eventType == "" && !isBatch {
		return errNoType
	}
	id, hasID, err := eventID(m)
	if err != nil {
		return err
	}
	if !hasID && !isBatch {
		redirectIncoming(x)
		return nil
	}
	w, err := newWrite(x, x.route.stream)
	if err != nil {
		return err
	}
	w.Late, w.hasIDs = true, true // Each event of a batch must have one.
	if done, err := s.way.passOn(x, w.leader, w.hasIDs); done || err != nil {
		return err
	}
	body, err := x.readBody(maxBody, problemTooLarge, problemInvalidBody)
	if err != nil {
		return err
	}
	if isBatch {
		w.Events, err = decodeBatch(x, body)
	} else {
		err = w.setSingle(x.body.form, id, eventType, body)
	}
	if err != nil {
		return err
	}
	return s.sendAppended(x, w, http.StatusCreated)
}

// incomingEvent writes one event whose id is in the path. Posting again to the same
// address answers the same and writes nothing.
func (s *streamHandlers) incomingEvent(_ context.Context, x *exchange) error {
	id, err := event.ParseID(x.route.id)
	if err != nil || id.IsZero() {
		return errBadGUID
	}
	eventType, _ := headerEventType.in(x.r.Header)
	if eventType == "" {
		return problemEmptyType
	}
	w, err := newWrite(x, x.route.stream)
	if err != nil {
		return err
	}
	w.Late, w.hasIDs = true, true
	if done, err := s.way.passOn(x, w.leader, w.hasIDs); done || err != nil {
		return err
	}
	body, err := x.readBody(maxBody, problemTooLarge, problemInvalidBody)
	if err != nil {
		return err
	}
	if err := w.setSingle(x.body.form, id, eventType, body); err != nil {
		return err
	}
	if x.node.referenceStatusCodes {
		return s.sendAppended(x, w, http.StatusCreated)
	}
	return s.sendAppended(x, w, http.StatusOK)
}

// write is a write under construction, with room for the usual single event.
type write struct {
	event.Write
	leader bool
	hasIDs bool // the client gave every event its id: sent again, it is the same write
	one    [1]event.Proposed
}

// newWrite reads the headers that all writes have.
func newWrite(x *exchange, stream string) (*write, error) {
	expected, err := expectedVersion(x.r.Header)
	if err != nil {
		return nil, err
	}
	leader, err := requireLeader(x.r.Header)
	if err != nil {
		return nil, err
	}
	w := &write{leader: leader}
	w.Stream, w.ExpectedVersion = stream, expected
	return w, nil
}

// setSingle makes the body the data of the write's only event.
func (w *write) setSingle(f form, id event.ID, eventType string, body []byte) error {
	e := &w.one[0]
	e.ID, e.Type, e.Data = id, eventType, body
	if f == formJSON || f == formAtomJSON {
		switch {
		case jsontext.ValidUTF8(body):
			e.Flags = event.FlagJSON
		case eventType != event.TypeLink || len(body) == 0:
			return problemInvalidBody
		}
	}
	w.Events = w.one[:]
	return nil
}

// decodeBatch reads the events of a body. The decoded events are claimed in addition to the body.
func decodeBatch(x *exchange, body []byte) ([]event.Proposed, error) {
	weight := int64(len(body))
	isJSON := x.body.form.isJSON()
	if !isJSON {
		weight += min(weight*xmlWeight, mostXML, x.node.memory.Most()/2)
	}
	if err := x.claim.Grow(x.r.Context(), weight); err != nil {
		return nil, err
	}
	if isJSON {
		return decodeJSONBatch(body)
	}
	return decodeXMLBatch(body)
}

// sendAppended commits an append and answers with the address of its first event.
func (s *streamHandlers) sendAppended(x *exchange, w *write, status int) error {
	if len(w.Stream) > event.MaxNameBytes {
		return problemLongName
	}
	all := int64(0)
	for i := range w.Events {
		e := &w.Events[i]
		size := len(e.Data) + len(e.Metadata)
		if size > s.maxEventBytes {
			return problemTooLarge
		}
		all += int64(size)
		if len(e.Type) > event.MaxNameBytes {
			return problemLongName
		}
	}
	if most := s.maxAppendBytes; most > 0 && all > most {
		return &problem{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("Too large events received. All events of one write together are limited to %d bytes", most)}
	}
	done, err := s.commitWrite(x, w)
	if err != nil {
		return err
	}
	b := x.atom().AppendHome(x.scratch[:0], w.Stream)
	b = strconv.AppendInt(b, done.First, 10)
	x.scratch = b
	h := x.w.Header()
	h[keyLocation] = []string{string(b)}
	h[keyContentType] = typeText.contentType
	x.send(status, nil)
	return nil
}

// commitWrite has a write done. Should another node lead by now, the store says so.
func (s *streamHandlers) commitWrite(x *exchange, w *write) (event.Written, error) {
	ctx := clock.NewDeadline(x.r.Context(), x.node.writeTimeout)
	defer ctx.Release()
	done, err := s.store.Write(ctx, &w.Write)
	noteNotDone(x, err)
	if errors.Is(err, event.ErrTooLarge) { // Each event was within its limit.
		err = problemLargeWrite
	}
	return done, err
}

// redirectIncoming sends a client that gave no id to an address with one, where
// its write can be repeated without being done twice.
func redirectIncoming(x *exchange) {
	b := x.atom().AppendHome(x.scratch[:0], x.route.stream)
	b = append(b, "incoming/"...)
	b = event.ID(uuid.New()).AppendTo(b)
	x.scratch = b
	x.w.Header()[keyLocation] = []string{string(b)}
	x.text(http.StatusTemporaryRedirect, "Forwarding to idempotent URI")
}
