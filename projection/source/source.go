package source

import (
	"context"
	"errors"
	"fmt"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// ErrEnd says that all is read that was there when a reader was opened that reads once.
var ErrEnd = errors.New("end of the input")

// Store is the database as readers see it. Errors are those of package event; a
// call that outlives its context returns the context's error.
type Store interface {
	catchup.Store
	// ReadPayload reads data and metadata of a record that a page left bare.
	ReadPayload(ctx context.Context, r *event.Record) error
	// WaitStreams returns nil when the last number of any of the streams is above its entry in
	// after, or when any of them is hard-deleted.
	WaitStreams(ctx context.Context, streams []string, after []int64) error
	// WaitLog returns nil when the log's end is above a position.
	WaitLog(ctx context.Context, position int64) error
	// Write does w whole or not at all: the order of several streams is written.
	Write(ctx context.Context, w *event.Write) (event.Written, error)
}

// Order says where the order is written in which several streams were merged.
type Order struct {
	Stream  string           // $projections-{name}-order
	Version position.Version // that writes it
}

// Options of a reader.
type Options struct {
	Store      Store
	Definition *handler.Definition
	// of the definition's kind of source (position.Convert); Zero to begin
	From position.Position
	// Once makes Fill return ErrEnd at the end of the input as it was when the reader was opened.
	Once bool
	// Until, with Once, ends the input after that position, which is of the definition's kind of
	// source. Nil: at the end that the input had when the reader was opened.
	Until *position.Position
	// FaultOutOfOrder makes Fill return a *handler.Fault where numbers of a stream are missing.
	FaultOutOfOrder bool
	// May decides about the right to read a stream, event.AllStream for the log; nil: all may be
	// read. An error that is event.ErrNotAuthorized makes Open return a *NotReadable, and Fill too:
	// it asks again when a second has passed.
	May func(ctx context.Context, stream string) error
	// Links decides which links of streams are resolved; nil: none, all of them are dead.
	Links event.LinkReader
	// Waiting is called before Fill waits at the end of the input: all events of the sources before
	// a position of the log were handed on. Nil: it is not called.
	Waiting func(done int64)
	// Order is for a projection over several streams that emits; nil: the order is not written.
	Order *Order
}

// NotReadable says that a source may not be read. It is event.ErrNotAuthorized.
type NotReadable struct {
	Stream string
	Err    error
}

func (e *NotReadable) Error() string {
	return fmt.Sprintf("Projection cannot read its source. Not authorized. Stream: '%s'", e.Stream)
}

// Unwrap makes errors.Is(err, event.ErrNotAuthorized) hold.
func (e *NotReadable) Unwrap() error { return e.Err }

// Zero is the position before everything that a definition reads.
func Zero(d *handler.Definition) position.Position {
	if d.AllStreams {
		return position.OfLog(d.Events...)
	}
	return position.Of(streamsOf(d)...)
}

// PageEvent is an event of a page.
type PageEvent struct {
	// Event() is what the projection would see, and Record the link, if there is one
	event.Resolved
	Position position.Position // after the event
}
