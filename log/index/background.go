package index

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/logkey"
)

// flusher writes frozen tables, oldest first, until the index is closed or fails.
func (x *Index) flusher() {
	defer x.wg.Done()
	for {
		x.mu.Lock()
		var mem *memTable
		for x.usable() == nil && mem == nil {
			if mems := x.current.Load().mems; len(mems) > 1 {
				mem = mems[len(mems)-1]
				mem.taken = true
			} else {
				x.changed.Wait()
			}
		}
		stop := x.usable() != nil
		x.mu.Unlock()
		if stop {
			return
		}
		if err := x.flush(mem); err != nil {
			if x.ctx.Err() == nil {
				x.fail(fmt.Errorf("flush index: %w", err))
			}
			return
		}
	}
}

func (x *Index) flush(mem *memTable) error {
	begun := x.metrics.flushes.Begin(time.Since(mem.frozen))
	x.opt.BeforeFlush()
	err := x.makeDurable(mem)
	x.metrics.flushes.End(begun, 1)
	x.metrics.flushTime.ObserveSince(begun)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.flushed = max(x.flushed, mem.seq)
	x.changed.Broadcast()
	x.mu.Unlock()
	bell.Ring(x.mergeWork)
	return nil
}

// makeDurable writes a frozen table.
func (x *Index) makeDurable(mem *memTable) error {
	var written int64 // bytes
	entries := int64(mem.count)
	var t *table
	file := "" // when there is no entry to write
	if mem.count > 0 {
		var err error
		if t, err = writeMem(x.ctx, x, mem); err != nil {
			return err
		}
		file, written = t.file, t.bytes
	}
	x.commitMu.Lock()
	defer x.commitMu.Unlock()
	err := x.commit(change{add: t, mem: mem})
	if err == nil {
		err = x.existence.save(&x.opt, written, x.Checkpoint())
	}
	if err == nil {
		x.metrics.flushed.Add(uint64(entries))
		x.opt.Logger.Debug("index flushed", "entries", entries, "checkpoint", mem.upTo, logkey.File, file)
	}
	return err
}

// writeMem writes a table of level 0 that nothing lists yet. mem must be frozen, and not empty.
func writeMem(ctx context.Context, x *Index, mem *memTable) (*table, error) {
	w, err := newTableWriter(&x.opt, int64(mem.count), int64(mem.streams))
	if err != nil {
		return nil, err
	}
	t, err := writeTable(ctx, w, 0, mem.sorted)
	if err != nil {
		return nil, err
	}
	x.adopt(t)
	return t, nil
}

// adopt makes a table report what goes wrong with it to the index.
func (x *Index) adopt(t *table) {
	t.onError = func(err error) {
		// Who still reads a table that was replaced may meet what it was replaced for.
		if !event.IsCorruption(err) || !t.doomed.Load() {
			x.tableFailed(err)
		}
	}
	t.onFilter = x.ofFilter
	t.metrics = x.metrics
	t.damage = &x.damage
	t.onClose = func(err error) { x.opt.Logger.Warn("index table", logkey.File, t.file, logkey.Error, err) }
}

// merger merges levels that are full, until the index is closed or fails. While a table is
// damaged it waits for the index to be built again.
func (x *Index) merger() {
	defer x.wg.Done()
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-x.mergeWork:
		}
		for {
			select {
			case <-x.ctx.Done():
				return
			case <-x.mergeTurn:
			}
			merged, err := x.mergeLevel()
			x.mergeTurn <- struct{}{}
			if err != nil && x.ctx.Err() == nil {
				x.tableFailed(fmt.Errorf("merge index: %w", err))
			}
			if err != nil || !merged {
				break
			}
		}
	}
}

// dueMerge finds the lowest level that is full: its tables are from..to-1 of the list.
func (s *state) dueMerge(most int) (from, to int, due bool) {
	for from < len(s.tables) {
		level := s.tables[from].level
		to = from
		for to < len(s.tables) && s.tables[to].level == level {
			to++
		}
		if to-from >= tablesPerLevel && level < most {
			return from, to, true
		}
		from = to
	}
	return 0, 0, false
}

// mergeLevel merges the lowest level that is full. It reports false when there is none.
func (x *Index) mergeLevel() (bool, error) {
	s := x.acquire()
	if s == nil {
		return false, nil
	}
	defer s.release()
	from, to, due := s.dueMerge(x.opt.MaxAutoMergeLevel)
	if !due || x.Damage() != nil {
		return false, nil
	}
	return true, x.merge(x.ctx, s.tables[from:to], s.tables[from].level+1)
}

// merge replaces neighbouring tables by one of a level. The caller has the merge turn and
// a reference to a state that lists the tables.
func (x *Index) merge(ctx context.Context, inputs []*table, level int) error {
	x.metrics.queue.Enter(1)
	x.metrics.merging.Add(1)
	begun := x.metrics.merges.Begin(0)
	defer func() {
		x.metrics.merges.End(begun, 1)
		x.metrics.mergeTime.ObserveSince(begun)
		x.metrics.merging.Add(-1)
	}()
	t, read, err := writeMerged(ctx, x, inputs, level)
	if err != nil {
		return err
	}
	t.seenBy = x.scavenge.inherited(inputs)
	x.commitMu.Lock()
	defer x.commitMu.Unlock()
	err = x.commit(change{add: t, drop: inputs})
	if err == nil && x.existence.unsaved > 0 {
		// Or a start would read all of the new table, to bring an older filter up to date.
		err = x.existence.save(&x.opt, t.bytes, x.Checkpoint())
	}
	if err == nil {
		x.metrics.mergeRead.Add(uint64(read))
		x.metrics.mergeWritten.Add(uint64(t.count))
		x.opt.Logger.Debug("index tables merged", "inputs", len(inputs), logkey.Level, level,
			"read", read, "written", t.count, logkey.File, t.file)
	}
	return err
}

// writeMerged writes a table with all entries of some, that nothing lists yet, and says how many it
// read.
func writeMerged(ctx context.Context, x *Index, inputs []*table, level int) (t *table, read int64, err error) {
	var hashes int64
	for _, t := range inputs {
		read += t.count
		hashes += t.hashes
	}
	w, err := newTableWriter(&x.opt, read, hashes)
	if err != nil {
		return nil, 0, err
	}
	t, err = writeTable(ctx, w, level, func(emit func(rows []byte) error) error {
		in := newMergeReader(inputs)
		for in.next() {
			if err := emit(in.rows); err != nil {
				return err
			}
		}
		return in.err
	})
	if err != nil {
		return nil, 0, err
	}
	x.adopt(t)
	return t, read, nil
}

// Merge merges all tables into one. It waits for a running merge. When ctx ends first, everything
// stays as it was.
func (x *Index) Merge(ctx context.Context) error {
	ctx, end, err := x.work(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := take(ctx, x.mergeTurn); err != nil {
		return err
	}
	defer func() { x.mergeTurn <- struct{}{} }()
	s := x.acquire()
	if s == nil {
		return event.ErrClosed
	}
	defer s.release()
	n := len(s.tables)
	if n <= 1 {
		return nil
	}
	level := s.tables[n-1].level
	if s.tables[n-2].level == level && level < math.MaxInt32 {
		level++
	}
	err = x.merge(ctx, s.tables, level)
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		err = fmt.Errorf("merge index: %w", err)
		x.tableFailed(err)
	}
	return err
}

// take takes the token of a turn.
func take(ctx context.Context, turn <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-turn:
		return nil
	}
}
