package index

import (
	"context"
	"fmt"

	"github.com/annalsdb/annals/internal/bell"
)

// Rebuild replaces all tables with rebuilt ones, while the index is read and added to. fill gets
// the checkpoint, and adds the entries of all records of the log below it, in the order of the log.
// Damage is nil afterwards, unless a table that was flushed in the meantime is damaged too.
//
// It waits for a running merge, and for a scavenge to notice the damage. No other begins before it
// ends. After an error, of ctx, fill or of writing, everything is as it was. The one exception is
// an indexmap that could not be replaced: that makes the index unusable, as in a merge.
func Rebuild(ctx context.Context, x *Index, fill func(upTo int64, add func([]Entry) error) error) error {
	ctx, end, err := x.work(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, turn := range []chan struct{}{x.scavengeTurn, x.mergeTurn} {
		if err := take(ctx, turn); err != nil {
			return err
		}
		defer func() { turn <- struct{}{} }()
	}
	x.commitMu.Lock()
	// Tables that are flushed from here on have no entries below the checkpoint, and no other code
	// takes tables from the list.
	upTo, old := x.checkpoint.Load(), x.current.Load().tables
	x.commitMu.Unlock()
	r := rebuilding{x: x, ctx: ctx, mem: newMemTable()}
	t, err := r.run(upTo, fill)
	if err != nil {
		return fmt.Errorf("build index again: %w", err)
	}
	if err := r.replaceAll(old, t); err != nil {
		err = fmt.Errorf("build index again: %w", err)
		x.fail(err)
		return err
	}
	x.opt.Logger.Info("the index was built again", "checkpoint", upTo, "entries", r.entries)
	bell.Ring(x.mergeWork)
	return nil
}

// replaceAll puts a table in the place of older ones; nil: they held nothing that is still there.
func (r *rebuilding) replaceAll(old []*table, t *table) error {
	x := r.x
	x.commitMu.Lock()
	defer x.commitMu.Unlock()
	if err := x.commit(change{add: t, drop: old}); err != nil {
		return err
	}
	x.first.Store(nil)
	x.existence.isDue = true // Or a start would read the new table to bring the filter up to date.
	return x.existence.save(&x.opt, 0, x.Checkpoint())
}

// rebuilding makes tables as the flusher and the merger do, which nothing lists before the last one
// is made.
type rebuilding struct {
	x       *Index
	ctx     context.Context
	mem     *memTable
	tables  []*table // from the oldest to the newest, levels never rising
	entries int64
}

// run returns the one table with one reference, nil when there is no entry.
func (r *rebuilding) run(upTo int64, fill func(upTo int64, add func([]Entry) error) error) (_ *table, err error) {
	defer func() {
		for _, t := range r.tables {
			t.discard()
		}
	}()
	if err := fill(upTo, r.add); err != nil {
		return nil, err
	}
	if err := r.write(); err != nil {
		return nil, err
	}
	if len(r.tables) > 1 {
		if err := r.merge(0); err != nil {
			return nil, err
		}
	}
	if len(r.tables) == 0 {
		return nil, nil
	}
	t := r.tables[0]
	if t.maxPos >= upTo {
		return nil, fmt.Errorf("entry at position %d given as below %d", t.maxPos, upTo)
	}
	r.tables = nil
	return t, nil
}

func (r *rebuilding) add(batch []Entry) error {
	announce := r.x.existence.announce()
	for i := range batch {
		r.mem.add(batch[i], announce)
	}
	r.entries += int64(len(batch))
	if !r.mem.full(&r.x.opt) {
		return nil
	}
	return r.write()
}

// write writes what is in memory, and merges levels that are full.
func (r *rebuilding) write() error {
	if r.mem.count == 0 {
		return nil
	}
	t, err := writeMem(r.ctx, r.x, r.mem)
	if err != nil {
		return err
	}
	r.mem = newMemTable()
	r.tables = append(r.tables, t)
	for {
		from := len(r.tables) - tablesPerLevel
		if from < 0 || r.tables[from].level != r.tables[len(r.tables)-1].level {
			return nil
		}
		if err := r.merge(from); err != nil {
			return err
		}
	}
}

// merge makes one table of all from one on.
func (r *rebuilding) merge(from int) error {
	inputs := r.tables[from:]
	t, _, err := writeMerged(r.ctx, r.x, inputs, inputs[0].level+1)
	if err != nil {
		return err
	}
	for _, input := range inputs {
		input.discard()
	}
	r.tables = append(r.tables[:from], t)
	return nil
}
