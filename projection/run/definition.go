package run

import (
	"context"
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
)

// linkedStream is the member of a link's metadata that names the stream that it stands for.
const linkedStream = "$o"

// definition is the handler's definition in the form that this run uses.
type definition struct {
	*handler.Definition
	opts *Options
}

// partitioned says that events have partitions other than the root.
func (d definition) partitioned() bool { return d.ByStreams || d.ByCustomPartitions }

// runningResults says that results are written as they change.
func (d definition) runningResults() bool {
	return d.opts.Mode == Continuous && (d.ProducesResults || d.DefinesStateTransform)
}

// partitionOf returns the partition of an event. It is not ok when the event has none.
func (d definition) partitionOf(h handler.Handler, e *handler.Event) (name string, ok bool, err error) {
	switch {
	case e.Gone != "":
		return e.Gone, true, nil
	case d.ByCustomPartitions:
		return h.PartitionOf(e)
	case !d.ByStreams:
		return "", true, nil
	}
	name = e.Stream
	if e.Link != nil {
		if text, ok := jsontext.MemberText(e.Link.Metadata, linkedStream); ok {
			name = text
		}
	}
	if event.IsMetaStream(name) {
		name = event.OriginalOf(name)
	}
	return name, true, nil
}

// storedResult is the result as a checkpoint has it: without a transformation it is the state.
func (d definition) storedResult(e *entry) []byte {
	if d.DefinesStateTransform {
		return e.result
	}
	return nil
}

// resultOf is the other way round.
func (d definition) resultOf(state, result []byte) []byte {
	if d.DefinesStateTransform {
		return result
	}
	return state
}

// fits checks the size of a state that is about to be taken in.
func (d definition) fits(partition string, state, result, shared []byte) error {
	limit := d.opts.MaxStateSize
	if limit <= 0 {
		return nil
	}
	size := int64(len(state))
	if d.DefinesStateTransform {
		size += int64(len(result))
	}
	if size > limit && partition != "" {
		return d.tooLarge(fmt.Sprintf(" in partition '%s'", partition), size)
	} else if size > limit {
		return d.tooLarge("", size)
	}
	if size = int64(len(shared)); size > limit {
		return d.tooLarge("", size)
	}
	return nil
}

func (d definition) tooLarge(where string, size int64) error {
	return &handler.Fault{Message: fmt.Sprintf("The state size of projection '%s'%s is %d bytes which exceeds the configured MaxProjectionStateSize of %d bytes.",
		d.opts.Name, where, size, d.opts.MaxStateSize)}
}

// stored returns the content of a partition's checkpoint.
func (d definition) stored(ctx context.Context, from checkpoints, partition string) (*entry, error) {
	p, known, err := from.LoadPartition(ctx, partition)
	if err != nil {
		return nil, err
	}
	return &entry{name: partition, state: p.State, result: d.resultOf(p.State, p.Result), known: known}, nil
}
