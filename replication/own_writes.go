package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/replication/wire"
)

// ownWrites does the writes of nodes of the cluster, and those of clients that nodes pass on,
// wherever the leader is.
type ownWrites struct {
	self         *self
	caller       *caller // nil client in a cluster of one
	incarnations *incarnations
	lead         *leadership
	submit       func(context.Context, *event.Write) (event.Written, error)
}

// writeConnections bounds the connections to the leader that writes travel over. More of them wait
// for one to be free.
const writeConnections = 64

// Where a leader takes packed writes. One of an earlier version has no place for those to several
// streams.
const (
	pathPacked = "/write/packed"
	pathMany   = "/write/many"
)

// packing is how a write travels to the leader: its bytes as they are, and names of any bytes.
var packing = &codec.MsgpackHandle{WriteExt: true}

func pack(write *event.Write) (data []byte, err error) {
	err = codec.NewEncoderBytes(&data, packing).Encode(write)
	return data, err
}

// unpack is the reverse of pack. The write has bytes of its own.
func unpack(data []byte) (*event.Write, error) {
	write := &event.Write{}
	return write, codec.NewDecoderBytes(data, packing).Decode(write)
}

// writeRequest is a write that travels to or from a node of an earlier version.
type writeRequest struct {
	Write event.Write `json:"write"`
}

// writeAnswer is what became of it.
type writeAnswer struct {
	Written event.Written `json:"written"`
	// a word of writeErrors, or one of those below
	Error   string `json:"error,omitempty"`
	Current int64  `json:"current,omitempty"` // with errVersion
	// with errViolated
	Violations *event.Violations `json:"violations,omitempty"`
	Text       string            `json:"text,omitempty"` // with errOther
	// with errBuilding
	Building *event.IndexBuilding `json:"building,omitempty"`
	// with errOther: the error is a *event.BadRequest
	Bad bool `json:"bad,omitempty"`
	// with errOther: the write depends on these data, which are damaged
	Damage *event.Corruption `json:"damage,omitempty"`
}

// writeErrors are the errors of a write that keep their meaning on the way, the
// more telling ones first.
var writeErrors = []struct {
	word string
	err  error
}{
	{"unknown", event.ErrOutcomeUnknown}, {"timeout", event.ErrWriteTimeout},
	{"deleted", event.ErrStreamDeleted}, {"too-large", event.ErrTooLarge}, {"too-wide", event.ErrTooWide}, {"full", event.ErrDiskFull}, {"not-authorized", event.ErrNotAuthorized},
	{"busy", event.ErrBusy}, {"not-ready", event.ErrNotReady}, {"not-ready", event.ErrClosed}, {"not-ready", event.ErrEntryRefused},
}

const (
	errVersion  = "version"
	errViolated = "violated"
	errBuilding = "building"
	errOther    = "other"
)

func answerOf(written event.Written, err error) writeAnswer {
	var version *event.WrongExpectedVersion
	var elsewhere *event.NotLeader
	switch {
	case err == nil:
		return writeAnswer{Written: written}
	case errors.As(err, &version):
		return writeAnswer{Error: errVersion, Current: version.Current}
	case errors.As(err, &elsewhere):
		return writeAnswer{Error: "not-ready"}
	}
	if violations, ok := errors.AsType[*event.Violations](err); ok {
		return writeAnswer{Error: errViolated, Violations: violations}
	}
	if building, ok := errors.AsType[*event.IndexBuilding](err); ok {
		return writeAnswer{Error: errBuilding, Building: building}
	}
	for _, known := range writeErrors {
		if errors.Is(err, known.err) {
			return writeAnswer{Error: known.word}
		}
	}
	if bad, ok := errors.AsType[*event.BadRequest](err); ok {
		return writeAnswer{Error: errOther, Text: bad.Text, Bad: true}
	}
	a := writeAnswer{Error: errOther, Text: err.Error()}
	if damaged, ok := errors.AsType[*event.CannotDecide](err); ok {
		if at, ok := errors.AsType[*event.Corruption](damaged); ok {
			a.Damage = &event.Corruption{File: at.File, Offset: at.Offset}
		}
	}
	return a
}

// result is the reverse of answerOf.
func (a *writeAnswer) result(write *event.Write) (event.Written, error) {
	switch a.Error {
	case "":
		return a.Written, nil
	case errVersion:
		return event.Written{}, &event.WrongExpectedVersion{Stream: write.Stream, Expected: write.ExpectedVersion, Current: a.Current}
	case errViolated:
		if a.Violations != nil {
			return event.Written{}, a.Violations
		}
	case errBuilding:
		if a.Building != nil {
			return event.Written{}, a.Building
		}
	case errOther:
		if a.Damage != nil {
			return event.Written{}, &event.CannotDecide{Err: a.Damage}
		}
		if a.Bad {
			return event.Written{}, &event.BadRequest{Text: a.Text}
		}
		return event.Written{}, fmt.Errorf("write at the leader: %s", a.Text)
	}
	for _, known := range writeErrors {
		if a.Error == known.word {
			return event.Written{}, known.err
		}
	}
	return event.Written{}, fmt.Errorf("%w: the leader says %q", event.ErrOutcomeUnknown, a.Error)
}

// readWrite reads a write that comes packed, or as JSON.
func readWrite(w http.ResponseWriter, r *http.Request) (write *event.Write, ok bool) {
	if r.URL.Path != pathPacked && r.URL.Path != pathMany {
		var q writeRequest
		return &q.Write, question(w, r, &q)
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err == nil {
		write, err = unpack(data)
	}
	if err != nil {
		unreadable(w, err)
	}
	return write, err == nil
}

// serve does a write for a node of the cluster that does not lead.
func (o *ownWrites) serve(w http.ResponseWriter, r *http.Request) {
	if peer, ok := wire.PeerFrom(r.Context()); !ok || !o.self.members()[peer.Node.String()] {
		http.Error(w, "that node is not a member of this cluster", http.StatusForbidden)
		return
	}
	write, ok := readWrite(w, r)
	if !ok {
		return
	}
	if l, _ := o.lead.Current(); !l.Leading {
		http.Error(w, "this node does not lead", http.StatusMisdirectedRequest)
		return
	}
	reply(w, answerOf(o.submit(r.Context(), write)))
}

const (
	writePace = 100 * time.Millisecond // between two attempts of a write
	// for the first attempt of a write that may be repeated; each has twice the time of the one
	// before
	writeTry = 5 * time.Second
)

// repeatable reports whether a write may be sent again when it is not known what became of it: its
// ids tell that it is the same, and it is then answered as it was before. Without events it writes
// nothing.
func repeatable(w *event.Write) bool {
	return (w.Kind == event.Append || w.Kind == event.AppendMany) &&
		!slices.ContainsFunc(w.Events, func(e event.Proposed) bool { return e.ID.IsZero() })
}

// tells reports whether the refusal of a repeated write says that the attempts before wrote
// nothing. It does not when the stream is deleted, which it may be since, nor when it should have
// none: one that was soft-deleted has had a first event all the while.
func tells(w *event.Write, refusal error) bool {
	var version *event.WrongExpectedVersion
	if v, ok := errors.AsType[*event.Violations](refusal); ok {
		return !slices.ContainsFunc(v.Checks, func(c event.Violation) bool { return c.Actual == event.Tombstoned })
	}
	return !errors.Is(refusal, event.ErrStreamDeleted) && !(w.ExpectedVersion == event.NoStream && errors.As(refusal, &version))
}

// travels reports whether names of a write are as they are given when they come as JSON.
func travels(w *event.Write) bool {
	return utf8.ValidString(w.Stream) && !slices.ContainsFunc(w.Events, func(e event.Proposed) bool { return !utf8.ValidString(e.Type) })
}

// write does what Writes.Write promises.
func (o *ownWrites) write(ctx context.Context, write *event.Write) (event.Written, error) {
	if write.Size() > pipeline.MaxEntryBytes {
		return event.Written{}, event.ErrTooLarge
	}
	if err := label.Check(write); err != nil { // A leader of an earlier version would take it.
		return event.Written{}, err
	}
	repeat, try := repeatable(write), writeTry
	var unknown error // of an attempt that may have written
	for {
		attempt, stop := ctx, func() {}
		if repeat {
			attempt, stop = context.WithTimeout(ctx, try)
			try *= 2
		}
		written, err := o.once(attempt, write)
		stop()
		again := false
		switch {
		case err == nil:
			return written, nil
		case errors.Is(err, event.ErrOutcomeUnknown), errors.Is(err, event.ErrWriteTimeout):
			unknown, again = err, repeat
		case errors.Is(err, event.ErrNotReady):
			// A leader of an earlier version leads until an operator continues the upgrade.
			again = unknown != nil || !errors.Is(err, event.ErrEarlierLeader)
		case errors.Is(err, event.ErrBusy), errors.Is(err, event.ErrDiskFull):
			// It was not done now; that says nothing of before.
		case unknown == nil || tells(write, err):
			return event.Written{}, err
		}
		if unknown != nil {
			err = unknown
		}
		if !again || o.self.stopping.Load() || clock.Sleep(ctx, writePace) != nil || ctx.Err() != nil {
			return event.Written{}, err
		}
	}
}

// once does a write here, or has the leader do it.
func (o *ownWrites) once(ctx context.Context, write *event.Write) (event.Written, error) {
	if err := o.incarnations.diverged.get(); err != nil {
		return event.Written{}, fmt.Errorf("%w: %w", event.ErrNotReady, err)
	}
	if l, _ := o.lead.Current(); l.Leading {
		written, err := o.submit(ctx, write)
		if _, ok := errors.AsType[*event.NotLeader](err); ok {
			err = event.ErrNotReady // Another node took over just now.
		}
		return written, err
	}
	address, ok := o.lead.address()
	if !ok {
		return event.Written{}, fmt.Errorf("%w: %w", event.ErrNotReady, event.ErrNoLeader)
	}
	a := writeAnswer{Written: event.Written{Position: -1}} // Earlier versions say nothing of it.
	leads := func() bool {
		now, ok := o.lead.address()
		return ok && now == address
	}
	attempt, stop := While(ctx, LeaderPace, leads)
	err := o.send(attempt, address, write, &a)
	stop()
	return a.outcome(ctx, write, err)
}

// outcome is what became of a write that was sent to the leader, with what came of sending it.
func (a *writeAnswer) outcome(ctx context.Context, write *event.Write, err error) (event.Written, error) {
	var refused *callError
	var unwelcome *wire.RefusedError
	switch {
	case err == nil:
		return a.result(write)
	case errors.As(err, &refused) && refused.Status == http.StatusRequestEntityTooLarge, errors.Is(err, errRequestSize):
		return event.Written{}, event.ErrTooLarge
	case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		return event.Written{}, fmt.Errorf("%w: %w: %w", event.ErrNotReady, event.ErrEarlierLeader, err)
	case errors.As(err, &refused) && slices.Contains(notTaken, refused.Status):
		return event.Written{}, fmt.Errorf("%w: %w", event.ErrNotReady, err)
	case errors.As(err, &unwelcome), errors.Is(err, wire.ErrConnect):
		return event.Written{}, fmt.Errorf("%w: %w: %w", event.ErrNotReady, event.ErrNoLeader, err)
	case ctx.Err() != nil:
		return event.Written{}, fmt.Errorf("%w: %w", event.ErrWriteTimeout, err)
	}
	return event.Written{}, fmt.Errorf("%w: %w: %w", event.ErrOutcomeUnknown, event.ErrUnanswered, err)
}

// notTaken are the answers of a node that did not look at a write: it does not lead, or this node
// is not of its cluster.
var notTaken = []int{http.StatusMisdirectedRequest, http.StatusForbidden}

// send has the leader at an address do a write. One of an earlier version takes it as JSON.
func (o *ownWrites) send(ctx context.Context, address string, write *event.Write, into *writeAnswer) error {
	data, err := pack(write)
	if err != nil {
		return err
	}
	if write.Kind == event.AppendMany {
		return o.caller.call(ctx, address, http.MethodPost, pathMany, data, into)
	}
	err = o.caller.call(ctx, address, http.MethodPost, pathPacked, data, into)
	if refused, ok := errors.AsType[*callError](err); !ok || refused.Status != http.StatusNotFound || !travels(write) {
		return err
	}
	return o.caller.call(ctx, address, http.MethodPost, "/write", writeRequest{Write: *write}, into)
}
