// Package output is what a projection writes: emitted events exactly once and in
// order, results, checkpoints, and the lists of its streams.
package output

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// ErrRestart says that somebody else wrote to a stream between two of our writes:
// the run begins again from its checkpoint, and then finds out who.
var ErrRestart = errors.New("a stream was written to from the outside")

// Store is the database as what is written sees it. Errors are those of package event.
type Store interface {
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)
	ReadPayload(ctx context.Context, r *event.Record) error
	ReadEvent(ctx context.Context, stream string, number int64, resolveLinks bool) (event.Resolved, error)
	// StreamInfo tells what is known of a stream without reading its events. It is cheap.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
	// Write does w whole or not at all, on the leader only.
	Write(ctx context.Context, w *event.Write) (event.Written, error)
}

// Options of an Output. Store, Name, Version and From are needed.
type Options struct {
	Store   Store
	Name    string
	Version position.Version
	// From is the checkpoint that the run starts at. What is emitted behind it may be stored already.
	From        position.Position
	MaxBatch    int  // events a write; 0: 500
	MaxInFlight int  // writes at once; 0: as many as are of use
	Track       bool // list the streams that are emitted to
	// MayWrite says whether the projection has the right to write to a stream: nil,
	// event.ErrNotAuthorized, or what kept it from finding out. Nil: it may.
	MayWrite func(ctx context.Context, stream string) error
	// Volatile says that the projection is transient: what an earlier run wrote
	// is replaced, and nothing is compared.
	Volatile bool
	// Streams names the streams of results.
	Streams Streams
	Logger  hclog.Logger // nil: nothing is logged
}

// Output writes what one run of a projection emits. Emit, Result and Flush belong to the
// goroutine of the run, the rest may be called from any.
type Output struct {
	opts   Options
	failed chan struct{}
}

// New returns an Output, which must be closed.
func New(o Options) *Output { return &Output{opts: o, failed: make(chan struct{})} }

// Emit queues what the handler emitted for an event, nil if no event caused it. at is
// the position behind that event. It never blocks. Emissions to one stream are written in their order.
func (o *Output) Emit(at position.Position, by *handler.Event, es []handler.Emission) {}

// Result queues what tells that the result of a partition (empty: of the root) changed; nil:
// it became null. isNew says that the partition was not seen before.
func (o *Output) Result(at position.Position, by *handler.Event, partition string, result []byte, isNew bool) {
}

// Pending returns how many events wait or are being written.
func (o *Output) Pending() int { return 0 }

// Bytes returns how many bytes wait or are being written.
func (o *Output) Bytes() int64 { return 0 }

// Writing returns how many writes are under way.
func (o *Output) Writing() int { return 0 }

// WaitBelow returns nil when no more than n events are pending. If the output fails first it returns Err.
func (o *Output) WaitBelow(ctx context.Context, n int) error { return nil }

// Flush returns nil when everything emitted so far is stored.
func (o *Output) Flush(ctx context.Context) error { return o.WaitBelow(ctx, 0) }

// Failed is closed when something cannot be written. Nothing more is written then.
func (o *Output) Failed() <-chan struct{} { return o.failed }

// Err returns why the output failed: a *handler.Fault, ErrRestart, an error
// that says that this node does not lead or stops (see IsLost), or one of storage that stayed after 12 tries.
func (o *Output) Err() error { return nil }

// Close waits for writes under way and drops the rest. It may be called more than once.
func (o *Output) Close() {}

// IsLost reports whether an error says that this node does not lead or stops, so that the run ends without a word.
func IsLost(err error) bool {
	var other *event.NotLeader
	return errors.As(err, &other) || errors.Is(err, event.ErrClosed) || errors.Is(err, context.Canceled)
}
