// Package run is one projection at work: it takes events from a reader, hands
// them to a handler, keeps the states of partitions, writes what comes of it, and
// says how far it is.
package run

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// Store is the database as a run and its parts see it.
type Store interface {
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)
	ReadAll(ctx context.Context, r event.AllRead) (event.AllPage, error)
	ReadEvent(ctx context.Context, stream string, number int64, resolveLinks bool) (event.Resolved, error)
	ReadPayload(ctx context.Context, r *event.Record) error
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
	Write(ctx context.Context, w *event.Write) (event.Written, error)
	WaitStream(ctx context.Context, stream string, after int64) error
	WaitLog(ctx context.Context, position int64) error
	LogEnd() int64
}

// Mode is the kind of a projection.
type Mode uint8

// Kinds of projections.
const (
	Continuous Mode = iota
	OneTime         // ends with its input
	Transient       // ends with its input, never emits, and has no checkpoints
)

// Config are the settings of a projection that its run goes by.
type Config struct {
	EmitEnabled         bool
	TrackEmittedStreams bool
	// Checkpoints says that a one-time projection writes checkpoints. It never reads
	// them. Continuous ones always have them, transient ones never.
	Checkpoints                       bool
	CheckpointAfter                   time.Duration // least time between checkpoints
	CheckpointHandledThreshold        int           // checkpoint after so many handled events; 0: 4000
	CheckpointUnhandledBytesThreshold int64         // or when so many bytes of the log passed without one; 0: 10,000,000
	PendingEventsThreshold            int           // stop reading while more emitted events wait; 0: 5000
	MaxWriteBatchLength               int           // emitted events per write; 0: 500
	MaxAllowedWritesInFlight          int           // concurrent writes of emitted events; 0: no bound
}

// Options of a Run. Config, Logger, Now and the numbers may be left out.
type Options struct {
	Store   Store
	Turns   *Turns // shared by all runs
	Name    string
	Mode    Mode
	Version position.Version
	Config  Config
	// Handler is the code of the projection. The run owns it, and closes it.
	Handler handler.Handler
	// Again makes the handler anew, for a run that begins again from its checkpoint.
	Again func() (handler.Handler, error)
	// MayRead and MayWrite say whether the projection has the right to read or
	// write a stream ($all for the log): nil, event.ErrNotAuthorized, or what kept them from finding out.
	MayRead, MayWrite func(ctx context.Context, stream string) error
	FaultOutOfOrder   bool
	MaxStateSize      int64 // bytes of state and result of one partition; 0: no bound
	CachedPartitions  int   // states kept in memory besides those that have no checkpoint yet; 0: 4000
	// Changed is called when the status changed. It must not block, nor call the run.
	Changed func()
	Logger  hclog.Logger     // nil: nothing is logged
	Now     func() time.Time // nil: time.Now
}

// Ending is how a run ended.
type Ending uint8

// Endings of a run.
const (
	Unfinished Ending = iota // it runs
	Stopped                  // Stop; what it emitted and a checkpoint are written
	Aborted                  // Abort
	Completed                // it was to end with its input, and did
	Faulted                  // Figures().Reason says why
	Lost                     // its context ended, or the node does not lead any more
)

// Figures are what is shown of a run. They may lag by a quarter of a second.
type Figures struct {
	// Status is the runner's part of the status: "Running/Paused",
	// "Stopped/Writing results". Ending is how it ended.
	Status string
	Ending Ending
	Reason string // why it is faulted; empty: it is not

	// Position was processed last, Checkpoint is that of the last checkpoint; nil: there is none.
	Position, Checkpoint *position.Position
	CheckpointStatus     string  // "", "Requested", "Writing (1)"
	Progress             float64 // -1 before anything was read, else percent
	Behind               int64   // events or bytes of the input that are not read yet, as far as known

	Processed        int64 // events, since the run began
	Emitted          int64 // events
	Faults           int64
	ProcessingTime   time.Duration // in the handler
	PartitionsCached int           // the root included
	StateBytes       int64         // of the states in memory
	Buffered         int           // events read and waiting
	ReadsInProgress  int
	WritesInProgress int
	PendingBefore    int // emitted events that wait, of those before the checkpoint that is being written
	PendingAfter     int // and those behind it
}

// Answer is a state or a result.
type Answer struct {
	Text []byte // JSON; nil: there is none
	// Position is what the projection had processed by then; nil: it completed, or is being loaded.
	Position *position.Position
}

// Run is one projection at work, from its start until it ends. Its methods may
// be called from any goroutine.
type Run struct {
	opts Options
	done chan struct{}
}

// Start begins a run, which goes on until it is stopped or ends by itself. The
// end of ctx ends it without a word to the store: the node does not lead any more, or stops.
func Start(ctx context.Context, o Options) *Run { return &Run{opts: o, done: make(chan struct{})} }

// Stop begins to end the run: what it emitted is written, then a checkpoint.
func (r *Run) Stop() {}

// Abort begins to end the run: writes under way are waited for, nothing more is written.
func (r *Run) Abort() {}

// Close ends the run as the end of its context does, and waits for it.
func (r *Run) Close() {}

// Done is closed when the run has ended, and nothing of it is under way any more.
func (r *Run) Done() <-chan struct{} { return r.done }

// Started is closed when the run has begun to read its input, or has ended.
func (r *Run) Started() <-chan struct{} { return r.done }

// Figures returns what is known of the run. It does not wait for the handler.
func (r *Run) Figures() Figures { return Figures{} }

// State returns the state of a partition; empty: of the root. Once the run has
// ended it is that of the last checkpoint, or, of projections without
// checkpoints, that in memory.
func (r *Run) State(ctx context.Context, partition string) (Answer, error) { return Answer{}, nil }

// Result returns the result of a partition, as State does.
func (r *Run) Result(ctx context.Context, partition string) (Answer, error) { return Answer{}, nil }

// StoredState and StoredResult return what State and Result of a run that has
// stopped would: from the checkpoint, for a projection that was never started. Of the options
// it takes Store, Name, Mode, Version and Handler, which it does not close.
func StoredState(ctx context.Context, o Options, partition string) (Answer, error) {
	return Answer{}, nil
}

// StoredResult is as StoredState.
func StoredResult(ctx context.Context, o Options, partition string) (Answer, error) {
	return Answer{}, nil
}
