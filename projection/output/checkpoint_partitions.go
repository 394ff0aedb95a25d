package output

import (
	"bytes"
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
)

// savePartitions writes the states of partitions side by side. Those that never had a
// checkpoint are listed first, so that they are found when the projection is deleted.
func (c *Checkpoints) savePartitions(ctx context.Context, changed []PartitionState, metadata []byte) error {
	if len(changed) == 0 {
		return nil
	}
	if len(c.tails) > maxTails {
		clear(c.tails)
	}
	ends := make([]tail, len(changed))
	err := side(len(changed), checkpointWriters, func(i int) (err error) {
		stream := c.streams.PartitionCheckpoint(changed[i].Partition)
		c.mu.Lock()
		last, ok := c.tails[changed[i].Partition]
		c.mu.Unlock()
		if ok {
			ends[i] = tail{last: last}
			return nil
		}
		ends[i], err = c.look(ctx, stream)
		return err
	})
	if err != nil {
		return err
	}
	var unlisted []string
	for i := range ends {
		if ends[i].fresh {
			unlisted = append(unlisted, changed[i].Partition)
		}
	}
	if err := c.addNames(ctx, c.streams.CheckpointedPartitions(), TypePartition, unlisted); err != nil {
		return err
	}
	return side(len(changed), checkpointWriters, func(i int) error { return c.savePartition(ctx, &changed[i], &ends[i], metadata) })
}

// side calls f for the numbers below n, at most so many at a time, and returns the
// first error, once none runs any more.
func side(n, most int, f func(int) error) error {
	work, failed := errgroup.WithContext(context.Background())
	work.SetLimit(most)
	for i := 0; i < n && failed.Err() == nil; i++ {
		work.Go(func() error { return f(i) })
	}
	return work.Wait()
}

func (c *Checkpoints) savePartition(ctx context.Context, p *PartitionState, end *tail, metadata []byte) error {
	stream := c.streams.PartitionCheckpoint(p.Partition)
	if end.fresh {
		if err := c.write(ctx, metadataWrite(stream, end.meta, []byte(checkpointMetadata)), stream); err != nil {
			return err
		}
	}
	data := appendStates(nil, &Checkpoint{State: p.State, Result: p.Result})
	c.warn(stream, data)
	w := &event.Write{Stream: stream, ExpectedVersion: end.last}
	if e := c.covered(end.events); e != nil && e.Number != end.last {
		// The last one is ahead of the root's checkpoint: the one that counts must stay among the
		// last two.
		w.Events = append(w.Events, event.Proposed{ID: newID(), Type: e.Type, Flags: event.FlagJSON, Data: e.Data, Metadata: e.Metadata})
	}
	w.Events = append(w.Events, event.Proposed{ID: newID(), Type: TypePartitionCheckpoint, Flags: event.FlagJSON, Data: data, Metadata: metadata})
	if err := c.write(ctx, w, stream); err != nil {
		return err
	}
	c.mu.Lock()
	c.tails[p.Partition] = end.last + int64(len(w.Events))
	c.mu.Unlock()
	return nil
}

// The body of a checkpoint is an array of JSON texts: state, result, and the shared state where
// there are both. A text that is not JSON, as the state of a script without handlers may be, is
// stored as an array with that text as a JSON string.
func appendStates(dst []byte, p *Checkpoint) []byte {
	all := [3][]byte{p.State, p.Result, p.Shared}
	n := 3
	if p.State == nil && p.Result == nil {
		all, n = [3][]byte{p.Shared}, 1
	}
	for n > 0 && all[n-1] == nil {
		n--
	}
	dst = append(dst, '[')
	for i, text := range all[:n] {
		if i > 0 {
			dst = append(dst, ',')
		}
		switch {
		case text == nil:
			dst = append(dst, "null"...)
		case !jsontext.Valid(text):
			dst = append(jsontext.AppendString(append(dst, rawMark...), text), ']', '}')
		default:
			dst = append(dst, text...)
		}
	}
	return append(dst, ']')
}

// rawMark begins the JSON that stands for a text that is not JSON. No handler makes a state of this
// kind.
const rawMark = `{"$raw":[`

// parseStates reads what appendStates writes.
func parseStates(data []byte) (p Checkpoint, ok bool) {
	var all [3][]byte
	walk := jsontext.ArrayAt(data, jsontext.Space(data, 0))
	for i := 0; walk.Next(); i++ {
		if i == len(all) {
			return p, false
		}
		if walk.Kind == jsontext.Null {
			continue
		}
		text := walk.Value
		if raw, is := bytes.CutPrefix(text, []byte(rawMark)); is {
			if raw, is = bytes.CutSuffix(raw, []byte("]}")); is {
				text = jsontext.AppendUnquote(nil, raw)
			}
		}
		all[i] = bytes.Clone(text) // Not to keep the page.
	}
	_, ok = walk.End()
	return Checkpoint{State: all[0], Result: all[1], Shared: all[2]}, ok
}
