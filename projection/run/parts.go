package run

import (
	"context"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// reader has the methods of a source.Reader that a run needs.
type reader interface {
	Fill(ctx context.Context) error
	Next() (*handler.Event, bool)
	Position() position.Position
	Buffered() int
	Passed() int64
	Done() int64
	Progress() float64
	Unread() int64
	Close()
}

// writer has the methods of an output.Output that a run needs.
type writer interface {
	Emit(at position.Position, by *handler.Event, es []handler.Emission)
	Result(at position.Position, by *handler.Event, partition string, result []byte, isNew bool)
	Pending() int
	Bytes() int64
	Writing() int
	WaitBelow(ctx context.Context, n int) error
	Flush(ctx context.Context) error
	Failed() context.Context
	Err() error
	Close()
}

// silence is a writer that writes nothing.
type silence struct{}

func (silence) Emit(position.Position, *handler.Event, []handler.Emission)     {}
func (silence) Result(position.Position, *handler.Event, string, []byte, bool) {}
func (silence) Pending() int                                                   { return 0 }
func (silence) Bytes() int64                                                   { return 0 }
func (silence) Writing() int                                                   { return 0 }
func (silence) WaitBelow(context.Context, int) error                           { return nil }
func (silence) Flush(context.Context) error                                    { return nil }
func (silence) Failed() context.Context                                        { return context.Background() }
func (silence) Err() error                                                     { return nil }
func (silence) Close()                                                         {}

// checkpoints has the methods of output.Checkpoints that a run needs.
type checkpoints interface {
	Load(ctx context.Context) (output.Checkpoint, error)
	LoadPartition(ctx context.Context, partition string) (p output.PartitionState, found bool, err error)
	Save(ctx context.Context, changed []output.PartitionState, root output.Checkpoint) error
}

// parts make the components of a run.
type parts struct {
	read  func(context.Context, source.Options) (reader, error)
	write func(output.Options) writer
	keep  func(output.CheckpointOptions) checkpoints
}

var realParts = parts{
	read: func(ctx context.Context, o source.Options) (reader, error) {
		r, err := source.Open(ctx, o)
		if err != nil {
			return nil, err
		}
		return r, nil
	},
	write: func(o output.Options) writer { return output.New(o) },
	keep:  func(o output.CheckpointOptions) checkpoints { return output.NewCheckpoints(o) },
}
