package scavenge

import (
	"context"
	"fmt"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/admin/scavenge/state"
	"github.com/annalsdb/annals/internal/logkey"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/index"
)

// scavengeIndex removes the entries of all events that were decided to go, also of events in chunks
// that were not executed: an event that was hidden at the decision never comes back.
func (r *run) scavengeIndex(ctx context.Context, _ *checkpoint) (err error) {
	decisions, err := r.decided(ctx)
	if err != nil {
		return err
	}
	defer decisions.Guard(&err)()
	total := int64(0)
	for _, t := range r.log.Index().Tables() {
		total += t.Entries
	}
	r.begin(total, "entries")
	k := indexKeeper{point: r.point.Position, log: r.log, decisions: decisions, yielder: r.yielder()}
	err = r.log.Index().Scavenge(ctx, index.ScavengeOptions{
		Keep: k.keep,
		Pace: func(ctx context.Context, entries int64) error {
			r.did(entries)
			return r.pace.wait(ctx)
		},
		Done: func(t index.ScavengedTable) {
			saved := t.Before - t.After
			r.update(func(s *Status) { s.Saved += saved })
			r.s.metrics.entries.Add(uint64(t.Dropped))
			r.history.Index(history.IndexCompleted{Level: t.Level, Index: t.Index, Took: history.Ticks(t.Took), Deleted: t.Dropped, Kept: t.Kept, Saved: saved, Scavenged: t.Rewritten})
			r.logger.Info("index table scavenged", logkey.Level, t.Level, logkey.Index, t.Index, logkey.Kept, t.Kept, logkey.Dropped, t.Dropped, "rewritten", t.Rewritten, logkey.Took, t.Took)
		},
	})
	if err != nil {
		failed := history.IndexCompleted{Level: -1, Index: -1, Error: err.Error()}
		if stopped(err) {
			failed.Error = history.ErrorCancelled
		}
		r.history.Index(failed)
		return fmt.Errorf("scavenge the index: %w", err)
	}
	if err := decisions.Err(); err != nil {
		return err
	}
	if err := r.log.Postings().Scavenge(ctx, index.ScavengeOptions{
		Keep: func(e index.Entry) (bool, error) {
			k.yielder.every(yieldRecords)
			return r.log.Chunks.Backs(e)
		},
		Pace: func(ctx context.Context, _ int64) error { return r.pace.wait(ctx) },
		Done: func(t index.ScavengedTable) {
			r.logger.Info("table of postings scavenged", logkey.Level, t.Level, logkey.Index, t.Index, logkey.Kept, t.Kept, logkey.Dropped, t.Dropped, "rewritten", t.Rewritten, logkey.Took, t.Took)
		},
	}); err != nil {
		return fmt.Errorf("scavenge the postings: %w", err)
	}
	// The name of a stream may be what had to be erased.
	return r.log.Names.Renew(ctx)
}

// indexKeeper says which entries of the index stay. It is asked by rising hash.
type indexKeeper struct {
	point     int64
	log       *eventlog.Log
	decisions *state.Decisions

	hash    uint64
	asked   bool
	found   []state.NamedDecision // of that hash
	scratch []byte
	yielder yielder
}

func (k *indexKeeper) keep(e index.Entry) (bool, error) {
	k.yielder.every(yieldRecords)
	if !k.asked || e.Hash != k.hash {
		k.hash, k.asked = e.Hash, true
		k.found = k.decisions.ByHash(k.found[:0], e.Hash)
	}
	if e.Position >= k.point {
		return true, nil
	}
	concerned := false
	for i := range k.found {
		concerned = concerned || e.Number < k.found[i].Discard || e.Number < k.found[i].Maybe
	}
	if !concerned {
		return true, nil
	}
	// Streams may share the hash: the record says which one it is. Without a record the entry is of
	// no use.
	name, there, err := k.log.Chunks.StreamAt(k.scratch[:0], e.Position)
	if err != nil || !there {
		return false, err
	}
	k.scratch = name
	for i := range k.found {
		if string(k.found[i].Name) == string(name) {
			return e.Number >= k.found[i].Discard, nil
		}
	}
	return true, nil
}

// clean forgets streams about which nothing more can change, unless chunks were
// left as they are from which their events still have to go.
func (r *run) clean(ctx context.Context, _ *checkpoint) error {
	if err := r.forget(); err != nil {
		return err
	}
	weights, err := r.weights()
	if err != nil {
		return err
	}
	for number, weight := range weights {
		if weight > 0 {
			r.logger.Info("no stream is forgotten yet: some chunks still hold events to remove", logkey.Chunk, number)
			return nil
		}
	}
	return r.db.Update(ctx, func(tx *state.Tx) error {
		streams, err := tx.CleanStreams(ctx)
		r.begin(streams, "streams")
		r.did(streams)
		return err
	})
}
