package scavenge

import (
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/annalsdb/annals/admin/scavenge/state"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// calculateBatch is how many streams are calculated in one transaction. Each ends
// with a sync, for which appends to the Raft log have to wait.
const calculateBatch = 8192

// calculate decides, for each stream that may have changed, which of its events go, and adds their
// weight to their chunks.
func (r *run) calculate(ctx context.Context, c *checkpoint) error {
	chunks, err := r.db.Chunks()
	if err != nil {
		return err
	}
	active, err := r.db.Count(ctx, state.Active)
	if err != nil {
		return err
	}
	r.begin(active, "streams")
	y := r.yielder()
	// They have no events.
	chunks = slices.DeleteFunc(chunks, func(c state.Chunk) bool { return !c.Timed })
	k := calculator{r: r, times: chunks, weights: map[int]int64{}}
	for after := c.Stream; ; {
		batch, err := r.db.Next(ctx, after, calculateBatch, state.Active)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			return nil
		}
		after = batch[len(batch)-1].Name
		err = r.db.Update(ctx, func(tx *state.Tx) error {
			clear(k.weights)
			for i := range batch {
				if err := ctx.Err(); err != nil {
					return err
				}
				y.every(yieldStreams)
				if err := k.stream(ctx, tx, &batch[i]); err != nil {
					return fmt.Errorf("calculate stream %q: %w", batch[i].Name, err)
				}
			}
			for number, by := range k.weights {
				if err := tx.AddWeight(number, by); err != nil {
					return err
				}
			}
			c.Stream = after
			return set(tx, keyCheckpoint, c)
		})
		if err != nil {
			return err
		}
		r.did(int64(len(batch)))
		if err := r.pace.wait(ctx); err != nil {
			return err
		}
	}
}

// calculator decides about one stream after the other.
type calculator struct {
	r       *run
	times   []state.Chunk // with events, by number; their times never fall
	weights map[int]int64 // to add, by logical chunk
	buf     []index.Entry
}

func (k *calculator) stream(ctx context.Context, tx *state.Tx, n *state.Named) error {
	s := n.Stream
	name := string(n.Name)
	switch {
	case name == event.RedactionsStream:
		// What was redacted must be known to a node that reads the log from its start.
		s.Status, s.Maybe, s.Cutoff = state.Spent, 0, 0
	case event.IsMetaStream(name):
		s.Status = state.Spent // Only its own newest metadata is kept, which was noted already.
	case s.Tombstone:
		if err := k.deleted(ctx, name, &s); err != nil {
			return err
		}
	default:
		if err := k.limited(ctx, name, &s); err != nil {
			return err
		}
	}
	if s == n.Stream {
		return nil
	}
	return tx.PutStream(n.Name, &s)
}

// deleted is for streams with a tombstone: everything before it goes.
func (k *calculator) deleted(ctx context.Context, name string, s *state.Stream) error {
	before := s.Discard
	s.Status, s.Discard, s.Maybe, s.Cutoff = state.Archived, event.TombstoneNumber, 0, 0
	return k.weigh(ctx, name, before, s.Discard, weightCertain)
}

// limited is for streams that metadata limit. The last event always stays.
func (k *calculator) limited(ctx context.Context, name string, s *state.Stream) error {
	last, err := k.r.log.Reads.LastBelow(name, k.r.point.Position)
	if err != nil {
		return err
	}
	s.Status = state.Spent
	if s.MaxAge > 0 || s.MaxCount > 0 || s.TruncateBefore > last {
		s.Status = state.Active // More events go when more are written, or time passes.
	}
	before := s.Discard
	s.Maybe, s.Cutoff = 0, 0
	if last < 0 {
		return nil
	}
	// Never back: the index has no entries up to here any more, even if the metadata have changed.
	s.Discard = max(before, min(s.MinVisible(last), last))
	if s.MaxAge > 0 {
		if err := k.aged(name, s, last); err != nil {
			return err
		}
	}
	if err := k.weigh(ctx, name, before, s.Discard, weightCertain); err != nil {
		return err
	}
	// Again in each run: events that were too young for the last run may be old enough by now.
	return k.weigh(ctx, name, s.Discard, s.Maybe, weightMaybe)
}

// aged adds what a maximum age removes. Times never fall along the log: in chunks
// whose newest event is too old everything is, and only where the age falls inside a
// chunk each event has to be looked at when the chunk is executed.
func (k *calculator) aged(name string, s *state.Stream, last int64) error {
	cutoff := s.Oldest(k.r.point.EffectiveNow)
	if cutoff <= 0 {
		return nil
	}
	certain, err := k.r.log.Reads.LastBelow(name, k.firstChunk(func(c *state.Chunk) bool { return c.Newest >= cutoff }))
	if err != nil {
		return err
	}
	maybe, err := k.r.log.Reads.LastBelow(name, k.firstChunk(func(c *state.Chunk) bool { return c.Oldest >= cutoff }))
	if err != nil {
		return err
	}
	s.Discard = max(s.Discard, min(certain+1, last))
	if maybe = min(maybe+1, last); maybe > s.Discard {
		s.Maybe, s.Cutoff = maybe, cutoff
	}
	return nil
}

// firstChunk returns where the first chunk begins for which is holds, or the end of this run's part
// of the log.
func (k *calculator) firstChunk(is func(*state.Chunk) bool) int64 {
	i := sort.Search(len(k.times), func(i int) bool { return is(&k.times[i]) })
	if i == len(k.times) {
		return chunkEnd(k.r.point)
	}
	return int64(k.times[i].Number) * chunkfile.ChunkSize
}

// weigh adds a weight to the chunk of each event numbered from (included) to to
// (excluded) that the index knows of a stream. A stream with the same hash is not told
// apart: weights are estimates, unlike what is decided.
func (k *calculator) weigh(ctx context.Context, name string, from, to, weight int64) error {
	const batch = 1024
	hash := chunkfile.HashStream(name)
	for from < to {
		err := ctx.Err()
		if err == nil {
			k.buf, err = k.r.log.Index().Ascend(k.buf[:0], hash, from, to-1, batch)
		}
		if err != nil {
			return err
		}
		for _, e := range k.buf {
			if e.Position < k.r.point.Position {
				k.weights[chunkOf(e.Position)] += weight
			}
		}
		if len(k.buf) < batch {
			return nil
		}
		from = k.buf[batch-1].Number + 1
	}
	return nil
}
