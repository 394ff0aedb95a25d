package run

import (
	"cmp"
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// Store is the database as a run and its parts see it.
type Store interface {
	source.Store
	output.Store
}

// Mode is the kind of a projection.
type Mode uint8

// Kinds of projections.
const (
	Continuous Mode = iota
	OneTime         // ends with its input
	Transient       // ends with its input, never emits, and has no checkpoints
)

// Config are the settings of a projection that can be changed while it is stopped. Its JSON is
// stored, and is part of the API: do not change.
type Config struct {
	EmitEnabled         bool `json:"emitEnabled"`
	TrackEmittedStreams bool `json:"trackEmittedStreams"`
	// least time between checkpoints
	CheckpointAfterMs int64 `json:"checkpointAfterMs"`
	// checkpoint after so many handled events; 0: 4000
	CheckpointHandledThreshold int64 `json:"checkpointHandledThreshold"`
	// or when so many bytes of the log passed; 0: 10,000,000
	CheckpointUnhandledBytesThreshold int64 `json:"checkpointUnhandledBytesThreshold"`
	// stop reading while more emitted events wait; 0: 5000
	PendingEventsThreshold int64 `json:"pendingEventsThreshold"`
	// emitted events per write; 0: 500
	MaxWriteBatchLength int64 `json:"maxWriteBatchLength"`
	// concurrent writes of emitted events; 0: no bound
	MaxAllowedWritesInFlight int64 `json:"maxAllowedWritesInFlight"`
	// ProjectionExecutionTimeout is in milliseconds; nil: the server's.
	ProjectionExecutionTimeout *int64 `json:"projectionExecutionTimeout"`
}

// Options of a Run. Config, Logger, Now and the numbers may be left out.
type Options struct {
	Store   Store
	Turns   *Turns // shared by all runs
	Name    string
	Mode    Mode
	Version position.Version
	Config  Config
	// States is the name that the streams of its checkpoints are of, where that is not Name.
	States string
	// Silent says that nothing is emitted: what it would emit is emitted already.
	Silent bool
	// Until ends the run of a continuous projection with a checkpoint at that position, which is
	// of the definition's kind of source; nil: it never ends by itself.
	Until *position.Position
	// Saved is called when a checkpoint is stored; nil: it is not called. It must not block.
	Saved func()
	// Checkpoints says that a one-time projection writes checkpoints. It never reads
	// them. Continuous ones always have them, transient ones never.
	Checkpoints bool
	// Definition says which events the projection reads.
	Definition *handler.Definition
	// Compile makes the handler. It is called again when the run restarts from its checkpoint. The
	// run closes it.
	Compile func() (handler.Handler, error)
	// MayRead and MayWrite say whether the projection has the right to read or write a stream ($all
	// for the log): nil, event.ErrNotAuthorized, or what kept them from finding out.
	MayRead, MayWrite func(ctx context.Context, stream string) error
	// Links decides which links of its sources the projection may follow; nil: none.
	Links           event.LinkReader
	FaultOutOfOrder bool
	MaxStateSize    int64 // bytes of state and result of one partition; 0: no bound
	// states kept in memory besides those that have no checkpoint yet; 0: 4000
	CachedPartitions int
	// Changed is called when the status changed. It must not block, nor call the run.
	Changed func()
	// Done is called when what the run answers from has all events of the sources before a position
	// of the log, and no more. It must not block, nor call the run. Nil: it is not called.
	Done   func(end int64)
	Logger hclog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now
}

func (o *Options) ensureDefaults() {
	c := &o.Config
	c.CheckpointHandledThreshold = orDefault(c.CheckpointHandledThreshold, 4000)
	c.CheckpointUnhandledBytesThreshold = orDefault(c.CheckpointUnhandledBytesThreshold, 10_000_000)
	c.PendingEventsThreshold = orDefault(c.PendingEventsThreshold, 5000)
	c.MaxWriteBatchLength = orDefault(c.MaxWriteBatchLength, 500)
	o.CachedPartitions = orDefault(o.CachedPartitions, 4000)
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Saved == nil {
		o.Saved = func() {}
	}
	if o.Done == nil {
		o.Done = func(int64) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Turns == nil {
		o.Turns = NewTurns(1, nil)
	}
}

func orDefault[T int | int64](n, standard T) T {
	if n <= 0 {
		return standard
	}
	return n
}

// resumes says that the projection resumes from its last checkpoint.
func (o *Options) resumes() bool { return o.Mode == Continuous }

// writesCheckpoints says that it has checkpoints, whether it resumes from them or not.
func (o *Options) writesCheckpoints() bool {
	return o.Mode == Continuous || o.Mode == OneTime && o.Checkpoints
}

// checkpointAfter is the least time between checkpoints.
func (o *Options) checkpointAfter() time.Duration { return Milliseconds(o.Config.CheckpointAfterMs) }

// Milliseconds is a time of so many, or the longest there is.
func Milliseconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}

// checkpointOptions are those of the projection's checkpoints.
func (o *Options) checkpointOptions() output.CheckpointOptions {
	return output.CheckpointOptions{Store: o.Store, Name: cmp.Or(o.States, o.Name), Version: o.Version, BiState: o.Definition.IsBiState, Logger: o.Logger}
}

// tooMuch says that so much waits to be written that nothing more is to be handled.
func (o *Options) tooMuch(out writer) bool {
	return int64(out.Pending()) > o.Config.PendingEventsThreshold || out.Bytes() > maxPendingBytes
}
