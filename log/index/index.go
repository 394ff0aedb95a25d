package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// ErrReadOnly says that the index was opened for reading only.
var ErrReadOnly = errors.New("index is read-only")

// Index is an open index. One goroutine adds; Flush, Merge and Scavenge may
// be called from others; any number of goroutines read.
type Index struct {
	opt Options
	damage
	reading
	lifecycle

	checkpoint atomic.Int64

	addMu        sync.Mutex  // held by Add, and by Flush while it freezes
	reached      int64       // log position of the newest entry added; guarded by addMu
	reachedChain event.Chain // of the log there; guarded by addMu

	// commitMu orders changes of the set of tables: its holder may replace
	// indexmap and the list of tables of the current state, and write the
	// existence filter. It is held across input and output.
	commitMu sync.Mutex
	chain    event.Chain // of the log at the checkpoint; guarded by commitMu

	// Guarded by mu, as is replacing the current state.
	frozen  uint64 // freezes so far
	flushed uint64 // the newest freeze whose entries are durable

	mergeTurn    chan struct{} // holds one token; who took it may merge or scavenge
	scavengeTurn chan struct{} // holds one token; taken before mergeTurn, for a whole Scavenge
	scavenge     *scavenge     // the newest one, nil: none yet; guarded by mergeTurn
	mergeWork    chan struct{} // tells the merger that tables came

	closer sync.Once
}

// Checkpoint returns the log position up to which the index is durable: all
// entries of records below it are in tables that survive a crash.
func (x *Index) Checkpoint() int64 { return x.checkpoint.Load() }

// Reached is the log position up to which entries were added, and the log's chain there.
func (x *Index) Reached() (int64, event.Chain) {
	x.addMu.Lock()
	defer x.addMu.Unlock()
	return x.reached, x.reachedChain
}

// Add makes the entries of the log up to the position upTo, where its chain is the one given,
// visible to readers. One goroutine calls it, with entries in the order of the log. It waits while
// too many full tables wait to be written.
func (x *Index) Add(batch []Entry, upTo int64, chain event.Chain) error {
	x.addMu.Lock()
	defer x.addMu.Unlock()
	x.mu.Lock()
	err := x.usable()
	x.mu.Unlock()
	if err != nil {
		return err
	}
	for i := range batch {
		if batch[i].Position >= upTo {
			return fmt.Errorf("index entry at position %d given as below %d", batch[i].Position, upTo)
		}
		if x.opt.Packed && batch[i].Number != batch[i].Position {
			return fmt.Errorf("packed index entry %+v has a number that is not its position", batch[i])
		}
	}
	// The current state cannot go while addMu is held, but for Close: then it is
	// this memory alone that is written to, which does no harm.
	s := x.acquire()
	if s == nil {
		return event.ErrClosed
	}
	defer s.release()
	mem := s.mems[0]
	announce := x.existence.announce()
	for i := range batch {
		mem.add(batch[i], announce)
	}
	mem.show()
	x.reached, x.reachedChain = upTo, chain
	if !mem.full(&x.opt) {
		return nil
	}
	_, err = x.freeze(true)
	return err
}

// freeze hands the active table to the flusher and puts an empty one in its
// place. addMu must be held. It returns the number of the freeze.
func (x *Index) freeze(wait bool) (uint64, error) {
	x.mu.Lock()
	if err := x.usable(); err != nil {
		x.mu.Unlock()
		return 0, err
	}
	s := x.current.Load()
	x.frozen++
	seq := x.frozen
	s.mems[0].seq, s.mems[0].upTo, s.mems[0].chain, s.mems[0].frozen = seq, x.reached, x.reachedChain, time.Now()
	x.metrics.queue.Enter(1)
	old := x.install(newState(append([]*memTable{newMemTable()}, s.mems...), s.tables))
	x.changed.Broadcast()
	var err error
	for wait && x.frozen-x.flushed > maxFrozen && err == nil {
		x.changed.Wait()
		err = x.usable()
	}
	x.mu.Unlock()
	old.release()
	return seq, err
}

// Flush returns once everything added before is in durable tables.
func (x *Index) Flush() error { return x.flushWithin(context.Background()) }

// flushWithin is Flush that no longer waits when ctx has ended.
func (x *Index) flushWithin(ctx context.Context) error {
	seq, err := x.freezeForFlush()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		x.mu.Lock()
		x.changed.Broadcast()
		x.mu.Unlock()
	})()
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.flushed < seq {
		if err := x.usable(); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		x.changed.Wait()
	}
	return nil
}

// freezeForFlush freezes the open table and returns the number of the newest freeze.
func (x *Index) freezeForFlush() (uint64, error) {
	x.addMu.Lock()
	defer x.addMu.Unlock()
	x.mu.Lock()
	err, s, seq := x.usable(), x.current.Load(), x.frozen
	var nothing bool
	if err == nil {
		durable := x.checkpoint.Load()
		if len(s.mems) > 1 {
			durable = s.mems[1].upTo
		}
		nothing = s.mems[0].count == 0 && x.reached == durable
	}
	x.mu.Unlock()
	if err != nil || nothing {
		return seq, err
	}
	return x.freeze(false)
}

// forgetFrozen takes tables that will never be written out of the statistics. mu must be held.
func (s *state) forgetFrozen(queue *stats.Queue) {
	for _, m := range s.mems[1:] {
		if !m.taken {
			m.taken = true
			queue.Leave(1)
		}
	}
}

// Close stops background work, cancelling a running merge or flush, and lets go of the files.
// Entries not flushed are forgotten: the log has them. The last reader of a table closes it.
func (x *Index) Close() error {
	x.closer.Do(func() {
		x.lifecycle.close()
		x.mu.Lock()
		s := x.current.Swap(nil)
		if s != nil {
			s.forgetFrozen(x.metrics.queue)
		}
		x.mu.Unlock()
		if s != nil {
			s.release()
		}
	})
	return nil
}

// tableFailed takes note of an error of tables. The index keeps working with a damaged table.
func (x *Index) tableFailed(err error) {
	if event.IsCorruption(err) {
		x.ofTable(err)
	} else {
		x.fail(err)
	}
}

// change is one step of the set of tables.
type change struct {
	add  *table    // nil: none
	drop []*table  // replaced by add, neighbours in the list
	mem  *memTable // flushed into add: where it ends is the new checkpoint
}

// commit makes a change durable and visible, and lets go of the new table, to which the state has a
// reference of its own. commitMu must be held. After an error indexmap may or may not name the new
// table.
func (x *Index) commit(c change) error {
	if c.add != nil {
		defer c.add.release()
	}
	s := x.current.Load() // Only the holder of commitMu changes the list of tables.
	tables := make([]*table, 0, len(s.tables)+1)
	if c.add != nil && len(c.drop) == 0 {
		tables = append(tables, c.add)
	}
	for _, t := range s.tables {
		if !slices.Contains(c.drop, t) {
			tables = append(tables, t)
		} else if t == c.drop[0] && c.add != nil {
			tables = append(tables, c.add)
		}
	}
	m := &indexMap{
		checkpoint: x.checkpoint.Load(), cluster: x.opt.Cluster, chain: x.chain,
		maxLevel: x.opt.MaxAutoMergeLevel,
	}
	if c.mem != nil {
		m.checkpoint, m.chain = c.mem.upTo, c.mem.chain
	}
	for _, t := range tables {
		m.tables = append(m.tables, mapLine{level: t.level, file: t.file})
	}
	if err := writeMap(x.opt.FS, x.opt.Dir, m); err != nil {
		return err
	}
	x.chain = m.chain
	// From here on no start needs the dropped files.
	for _, t := range c.drop {
		t.doomed.Store(true)
	}
	x.mu.Lock()
	// Its tables are the same; Add may have put another table in memory before the others.
	s = x.current.Load()
	mems := slices.DeleteFunc(slices.Clone(s.mems), func(m *memTable) bool { return m == c.mem })
	old := x.install(newState(mems, tables))
	x.checkpoint.Store(m.checkpoint)
	x.mu.Unlock()
	old.release()
	return nil
}

// state is what readers see: an immutable list of sources. Index holds one
// reference to the current state, every reader one while it reads.
type state struct {
	refs   atomic.Int64
	mems   []*memTable // newest first; the first one is being added to
	tables []*table    // newest first, levels never falling
}

// newState makes a state with the one reference of its owner.
func newState(mems []*memTable, tables []*table) *state {
	s := &state{mems: mems, tables: tables}
	s.refs.Store(1)
	for _, t := range tables {
		t.retain()
	}
	return s
}

func (s *state) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	for _, t := range s.tables {
		t.release()
	}
}

// discard removes a table that no state lists.
func (t *table) discard() {
	t.doomed.Store(true)
	t.release()
}
