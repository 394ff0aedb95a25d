package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

const (
	// scavengeCheckEvery entries a scavenge looks whether it was cancelled.
	scavengeCheckEvery = 1 << 10
	// scavengePaceEvery entries, a multiple of scavengeCheckEvery, it gives way.
	scavengePaceEvery = 1 << 12
)

// ScavengedTable says what was done to one table.
type ScavengedTable struct {
	Level, Index int // of the table; Index counts from the newest table of its level, 0
	// of the new table; empty when nothing is left of it; the old name when it was left as it is
	File          string
	Kept, Dropped int64 // entries
	Before, After int64 // bytes of the files, filter included
	Took          time.Duration
	Rewritten     bool // false: nothing had to go
}

// ScavengeOptions says what Scavenge removes. Keep is required.
type ScavengeOptions struct {
	// Keep reports whether an entry stays. It sees the entries of one table by rising
	// hash, number and position. Its error ends the scavenge.
	Keep func(Entry) (bool, error)

	// Pace, if not nil, is called at least every 4096 entries with the number of entries
	// read since it was called last; those that are read again to be copied are not
	// counted twice, and it is then called with 0. It may wait; its error ends the
	// scavenge. No merge begins while a table is under work.
	Pace func(ctx context.Context, entries int64) error

	// Done, if not nil, is called after each table, when what was done to it is durable.
	Done func(ScavengedTable)
}

// scavenge is one call of Scavenge.
type scavenge struct {
	x   *Index
	opt ScavengeOptions
	// A table whose entries all lie at or after this position was added later. The scavenge skips
	// it.
	from int64
}

// settled reports whether a table has nothing to be looked at any more. The merge turn must be
// held.
func (s *scavenge) settled(t *table) bool { return t.seenBy == s || t.minPos >= s.from }

// inherited is what a table merged from others has been seen by: one table with
// entries not looked at yet makes the whole be looked at again.
func (s *scavenge) inherited(inputs []*table) *scavenge {
	if s == nil {
		return nil
	}
	for _, t := range inputs {
		if !s.settled(t) {
			return nil
		}
	}
	return s
}

// Scavenge rewrites each table that has entries for which Keep returns false, one after the other,
// and leaves the others as they are. A table without entries left goes. Entries that were added
// before the call are flushed to tables first; entries that are added later may stay without being
// looked at. Older tables come first: if Keep drops the first events of a stream, there is never a
// gap between the events that are left.
//
// Scavenges and merges exclude each other; a waiting merge runs between two tables. Scavenge
// returns early when ctx ends, which it looks at every 1024 entries, or when Keep or Pace returns
// an error. Tables that are done stay so, and the table in work stays as it was. The same holds
// when a new table cannot be written: the index keeps working without it. A damaged table is known
// by Damage from then on. A set of tables that cannot be replaced makes the index unusable as in a
// merge.
func (x *Index) Scavenge(ctx context.Context, o ScavengeOptions) error {
	ctx, end, err := x.work(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := take(ctx, x.scavengeTurn); err != nil {
		return err
	}
	defer func() { x.scavengeTurn <- struct{}{} }()
	x.metrics.scavenging.Add(1)
	defer x.metrics.scavenging.Add(-1)
	if err := x.flushWithin(ctx); err != nil {
		return err
	}
	run := &scavenge{x: x, opt: o, from: x.Checkpoint()}
	for {
		if more, err := run.next(ctx); !more || err != nil {
			return err
		}
	}
}

// next scavenges the oldest table that the run has not looked at. It reports false when there is
// none. It does not outlive damage: what builds the index again waits for its turn.
func (s *scavenge) next(ctx context.Context) (bool, error) {
	if err := take(ctx, s.x.mergeTurn); err != nil {
		return false, err
	}
	s.x.scavenge = s
	did, err := func() (*ScavengedTable, error) {
		// The turn goes to who waited first, before this scavenge asks for it again, and
		// also when Keep panics, which its caller may recover from.
		defer func() { s.x.mergeTurn <- struct{}{} }()
		return s.oldest(ctx)
	}()
	if err != nil || did == nil {
		return false, err
	}
	if s.opt.Done != nil {
		s.opt.Done(*did)
	}
	return true, nil
}

// oldest looks for a table, the oldest first, so that of a stream the lowest numbers go first and
// what is left of it never has a hole. It returns nil when there is none. The merge turn must be
// held.
func (s *scavenge) oldest(ctx context.Context) (*ScavengedTable, error) {
	if err := s.x.Damage(); err != nil {
		return nil, err
	}
	state := s.x.acquire()
	if state == nil {
		return nil, event.ErrClosed
	}
	defer state.release()
	for i, t := range slices.Backward(state.tables) {
		if s.settled(t) {
			continue
		}
		place := 0
		for place < i && state.tables[i-place-1].level == t.level {
			place++
		}
		return s.scavenge(ctx, t, place)
	}
	return nil, nil
}

// scavenge replaces a table by one without the entries that must go. The merge
// turn and a reference to a state that lists the table must be held.
func (s *scavenge) scavenge(ctx context.Context, t *table, place int) (_ *ScavengedTable, err error) {
	did := ScavengedTable{Level: t.level, Index: place, File: t.file, Before: t.fileBytes()}
	s.x.metrics.queue.Enter(1)
	begun := s.x.metrics.scavenges.Begin(0)
	defer func() {
		did.Took = time.Since(begun)
		s.x.metrics.scavenges.End(begun, 1)
		s.x.metrics.scavengeTime.Observe(did.Took.Seconds())
	}()
	p := pass{x: s.x, ctx: ctx, opt: &s.opt, t: t}
	left, err := p.run()
	if err != nil {
		return nil, err
	}
	did.Kept, did.Dropped, did.After = p.kept, p.dropped, did.Before
	s.x.metrics.scavengeRead.Add(uint64(t.count))
	if p.dropped == 0 {
		t.seenBy = s
		return &did, nil
	}
	did.Rewritten, did.File, did.After = true, "", 0
	if left != nil {
		s.x.adopt(left)
		left.seenBy = s
		did.File, did.After = left.file, left.fileBytes()
	}
	s.x.commitMu.Lock()
	defer s.x.commitMu.Unlock()
	if err := s.x.commit(change{add: left, drop: []*table{t}}); err != nil {
		return nil, p.fatal(err)
	}
	s.x.metrics.scavengeDropped.Add(uint64(did.Dropped))
	s.x.opt.Logger.Debug("index table scavenged", "table", t.file, logkey.Level, did.Level,
		logkey.Kept, did.Kept, logkey.Dropped, did.Dropped, logkey.File, did.File)
	return &did, nil
}

// pass is the way through one table. Nothing is written before the first entry to
// be dropped was seen, and Keep is asked about each entry once: the entries before
// that one are then copied in a second reading.
type pass struct {
	x   *Index
	ctx context.Context
	opt *ScavengeOptions
	t   *table

	out           *tableWriter // nil: nothing had to be written yet
	kept, dropped int64
	steps         int64 // entries read, copied ones twice
	// checksum up to the end of the piece in which the first dropped entry was read
	firstSum uint64
	unpaced  int64 // entries since Pace was called
}

// run returns the new table with one reference, or nil when nothing had to go or nothing is left.
func (p *pass) run() (*table, error) {
	err := p.read()
	if err == nil && p.dropped > 0 && p.kept > 0 && p.out == nil {
		err = p.begin() // What goes lies at the end.
	}
	if err == nil && p.ctx.Err() != nil {
		err = context.Cause(p.ctx)
	}
	if err != nil {
		return nil, p.abandon(err)
	}
	if p.out == nil {
		return nil, nil
	}
	left, err := p.out.publish(p.ctx, p.t.level)
	if err != nil {
		return nil, p.written(err)
	}
	return left, nil
}

func (p *pass) read() error {
	in := newScanner(p.t)
	for in.next() {
		if err := p.step(1); err != nil {
			return err
		}
		keep, err := p.opt.Keep(in.entry)
		switch {
		case err != nil:
			return err
		case !keep:
			if p.dropped == 0 {
				p.firstSum = in.hash.Sum64()
			}
			p.dropped++
			continue
		case p.dropped > 0:
			if p.out == nil {
				if err := p.begin(); err != nil {
					return err
				}
			}
			if err := p.out.add(in.row); err != nil {
				return p.written(err)
			}
		}
		p.kept++
	}
	if in.err != nil {
		return p.fatal(in.err)
	}
	return p.pace()
}

// begin begins the new table with the entries before the first dropped one, which
// are those kept so far.
func (p *pass) begin() (err error) {
	x := p.x
	p.out, err = newTableWriter(&x.opt, p.t.count-p.dropped, p.t.hashes)
	if err != nil {
		return p.written(err)
	}
	if p.kept == 0 {
		return nil
	}
	in := newScanner(p.t)
	for in.next() {
		if in.place > p.kept { // The first dropped one.
			if in.hash.Sum64() != p.firstSum {
				return p.fatal(corrupt(p.t.path, -1, "read twice, it differs"))
			}
			return nil
		}
		if err := p.step(0); err != nil {
			return err
		}
		if err := p.out.add(in.row); err != nil {
			return p.written(err)
		}
	}
	return p.fatal(in.err)
}

// step is called for each entry read, with 1, or with 0 when it is read again to be copied.
func (p *pass) step(entries int64) error {
	p.steps++
	p.unpaced += entries
	if p.steps%scavengeCheckEvery != 0 {
		return nil
	}
	if err := cmp.Or(context.Cause(p.ctx), p.x.Damage()); err != nil {
		return err
	}
	if p.steps%scavengePaceEvery != 0 {
		return nil
	}
	return p.pace()
}

func (p *pass) pace() error {
	if p.opt.Pace == nil {
		return nil
	}
	n := p.unpaced
	p.unpaced = 0
	return p.opt.Pace(p.ctx, n)
}

// abandon removes an unfinished table after err, which it returns as it is unless that fails too.
func (p *pass) abandon(err error) error {
	if p.out == nil {
		return err
	}
	if aerr := p.out.out.abandon(p.x.opt.FS, nil); aerr != nil {
		return errors.Join(err, fmt.Errorf("remove unfinished index table: %w", aerr))
	}
	return err
}

// written is the error of a new table that could not be written.
func (p *pass) written(err error) error {
	if p.ctx.Err() != nil && errors.Is(err, context.Cause(p.ctx)) {
		return err
	}
	return fmt.Errorf("write index table in place of %s: %w", p.t.file, err)
}

// fatal makes the index unusable, or known to be damaged.
func (p *pass) fatal(err error) error {
	err = fmt.Errorf("scavenge index: %w", err)
	p.x.tableFailed(err)
	return err
}
