package output

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/projection/position"
)

// Checkpoint is how far a projection came, and the state of its root.
type Checkpoint struct {
	// State and Result are those of the root. Shared is the shared state of a bi-state
	// projection, which, if it is partitioned, is all that its root has.
	State, Result, Shared []byte
	At                    position.Position
	Version               position.Version // that wrote it
	Found                 bool             // of a load: there is one, and it is ours
}

// PartitionState is the state of a partition at a checkpoint.
type PartitionState struct {
	Partition     string
	State, Result []byte // nil: there is none
}

// CheckpointOptions are those of Checkpoints. Store, Name and Version are needed.
type CheckpointOptions struct {
	Store   Store
	Name    string
	Version position.Version
	BiState bool
	Logger  hclog.Logger // nil: nothing is logged
}

// Checkpoints reads and writes the checkpoints of one run of a projection. One goroutine uses it at a time.
type Checkpoints struct{ opts CheckpointOptions }

// NewCheckpoints returns Checkpoints that have not looked at the streams.
func NewCheckpoints(o CheckpointOptions) *Checkpoints { return &Checkpoints{opts: o} }

// Load returns the last checkpoint that is ours. It must be called before the other methods.
func (c *Checkpoints) Load(ctx context.Context) (Checkpoint, error) { return Checkpoint{}, nil }

// LoadPartition returns the state and result of a partition, nil if there is none that is ours and not
// ahead of the root's checkpoint. States that changed since the last Save are not stored, so the caller keeps them.
func (c *Checkpoints) LoadPartition(ctx context.Context, partition string) (state, result []byte, err error) {
	return nil, nil, nil
}

// Save writes the states of the partitions that changed, then the root. Errors are as those of Output.Err.
func (c *Checkpoints) Save(ctx context.Context, changed []PartitionState, root Checkpoint) error {
	return nil
}
