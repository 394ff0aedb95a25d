package output

import (
	"context"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/position"
)

// StateAt returns what the checkpoints have of a partition (empty: of the root) at a position, at
// which there was a checkpoint. It is not found if there was nothing of it then. It has moved when
// later checkpoints have pushed out the one that tells.
func (c *Checkpoints) StateAt(ctx context.Context, partition string, at position.Position) (s Checkpoint, moved bool, err error) {
	stream, eventType := c.streams.PartitionCheckpoint(partition), TypePartitionCheckpoint
	if partition == "" {
		stream, eventType = c.streams.Checkpoint(), TypeCheckpoint
	}
	t, err := c.look(ctx, stream)
	if err != nil {
		return s, false, err
	}
	var after *event.Record
	for i := range t.events {
		e := &t.events[i]
		saved, v, err := position.ParseStored(e.Metadata)
		switch {
		case e.Type != eventType || err != nil:
			continue
		case !c.opts.Version.IsOurs(v):
			return s, false, nil
		case isBehind(saved, at):
			after = e
			continue
		}
		s, ok := parseStates(e.Data)
		if !ok {
			return s, false, invalidFault(e)
		}
		if partition == "" {
			s.root(c.opts.BiState)
		}
		s.At, s.Version, s.Found = saved, v, true
		return s, false, nil
	}
	return s, after != nil && after.Number > 0, nil
}

// root tells what a body of the root's stream means.
func (p *Checkpoint) root(isBiState bool) {
	if isBiState && p.Shared == nil {
		p.State, p.Result, p.Shared = nil, nil, p.State
	}
}

// Partitions goes through the names of the partitions that have checkpoints, a page at a time. A
// name may come more than once.
func (c *Checkpoints) Partitions(ctx context.Context, page func(names []string) error) error {
	return c.names(ctx, c.streams.CheckpointedPartitions(), 0, func(names []string, _ int64) error { return page(names) })
}
