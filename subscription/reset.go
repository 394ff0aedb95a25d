package subscription

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
)

const (
	countPage = 1000    // events that one look of a count takes
	countLook = 100_000 // records of the log that a count looks at
	countTime = 2 * time.Second
)

// Target is a place in what a group reads.
type Target struct {
	Kind TargetKind
	At   int64 // the number, the position, or the time in nanoseconds since 1970
}

// TargetKind says how a target is named.
type TargetKind uint8

// The kinds of targets. For a number, a position and a time the place is before the first event
// that is not before it.
const (
	ToStart TargetKind = iota
	ToEnd              // of this moment
	ToNumber
	ToPosition
	ToTime
)

// Reset is what a reset did or would do. Numbers are as in Info.
type Reset struct {
	From int64 // number of the first event that had no answer
	To   int64 // number from which the group reads on
	// events that had been handed out and come again, and events without an answer that do not come
	Again, LeftOut int64
	AtLeast        bool // the counts are not complete: there may be more
	Reads          Key  // as of Info: its Position makes texts of the numbers
}

// checkpointMetadata is stored with a checkpoint: do not change.
type checkpointMetadata struct {
	Since int64 `json:"since,omitempty"` // see place
	// Log is the position of the log of the event that the checkpoint names, if it is one of a
	// stream: the event may be gone when the place is asked for. nil: not known.
	Log   *int64   `json:"log,omitempty"`
	Reset *resetBy `json:"reset,omitempty"`
}

// resetBy says who moved a group. It is stored: do not change.
type resetBy struct {
	By string `json:"by"`
	At string `json:"at"`
}

// Preview returns what Reset would do, and does nothing.
func (s *Service) Preview(ctx context.Context, k Key, to Target) (r Reset, err error) {
	err = s.held(ctx, k, func(ctx context.Context, g *group, leave func()) error {
		p, err := g.plan(ctx, to)
		leave()
		if err == nil {
			r, err = g.outlook(ctx, &p)
		}
		return err
	})
	return r, err
}

// Reset moves a group to another place. Messages that were handed out are let go: their answers
// are passed over, unless they have been handed out again by then. Parked messages, and those that
// are replayed, stay. Consumers stay connected. A target beyond the end, or where nothing begins,
// is a *SettingsError; errors are also those of writing. After one that leaves the outcome open the
// reset is tried on until it is known.
func (s *Service) Reset(ctx context.Context, k Key, to Target, by string) (r Reset, err error) {
	err = s.held(ctx, k, func(ctx context.Context, g *group, leave func()) error {
		p, err := g.reset(ctx, to, by, leave)
		if err == nil {
			r, err = g.outlook(ctx, &p)
		}
		return err
	})
	return r, err
}

// held does something with a group while no page is read for it and no checkpoint is written, until
// leave is called, which must be once.
func (s *Service) held(ctx context.Context, k Key, do func(ctx context.Context, g *group, leave func()) error) error {
	t, err := s.running()
	if err != nil {
		return err
	}
	g, err := t.group(k)
	if err != nil {
		return err
	}
	bound, cancel := t.bound(ctx)
	defer cancel()
	leave, err := g.hold(bound)
	if err == nil {
		err = do(bound, g, leave)
	}
	return t.outcome(ctx, err)
}

// hold waits until no page is read and no checkpoint written. The group does not end before leave.
func (g *group) hold(ctx context.Context) (leave func(), err error) {
	g.mu.Lock()
	if g.closed || !g.core.loaded {
		g.mu.Unlock()
		return nil, event.ErrNotReady
	}
	g.work.Add(1)
	g.mu.Unlock()
	for i, token := range []chan struct{}{g.token, g.saving} {
		select {
		case token <- struct{}{}:
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-g.ctx.Done():
			err = event.ErrNotReady
		}
		if i > 0 {
			<-g.token
		}
		g.work.Done()
		return nil, err
	}
	return func() { <-g.saving; <-g.token; g.work.Done() }, nil
}

// plan is a reset to be done, and where the group stood then.
type plan struct {
	checkpoint int64 // to be written; -1: that nothing is answered
	next       int64 // number of the first event after it that may come
	oldest     int64 // number of the first event without an answer
	front      int64 // of the first event that was not handed out
	isAfter    bool  // the event at front is in fact the last that was
	open       int64 // messages without an answer before next
}

// plan finds out what a reset is to do. The caller holds the group.
func (g *group) plan(ctx context.Context, to Target) (p plan, err error) {
	if p.checkpoint, p.next, err = g.source.find(ctx, to); err != nil {
		return p, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.core
	p.front, p.isAfter = c.next, g.source.all && c.next == g.source.begun
	if m := c.buffer.head; m != nil {
		p.front, p.isAfter = m.number, false
	}
	p.oldest = p.front
	if m := c.unanswered.head; m != nil {
		p.oldest = min(p.oldest, m.number)
	}
	for m := c.unanswered.head; m != nil && m.number < p.next; m = m.links[byNumber].next {
		p.open++
	}
	return p, nil
}

// outlook returns what comes of a plan. A count that could not be completed is not an error.
func (g *group) outlook(ctx context.Context, p *plan) (r Reset, err error) {
	r = Reset{From: p.oldest, To: p.next, Reads: g.reads()}
	begin, end, isForward := p.next, p.front, p.next > p.front
	if isForward {
		begin, end = end, begin
	} else if p.isAfter {
		end++
	}
	n, isAll, err := g.source.count(ctx, begin, end, isForward && p.isAfter)
	if r.AtLeast = !isAll; isForward {
		r.LeftOut = n
	} else {
		r.Again = n
	}
	r.LeftOut += p.open
	return r, err
}

// reset moves the group. It calls leave when that is done, or cannot be.
func (g *group) reset(ctx context.Context, to Target, by string, leave func()) (plan, error) {
	p, err := g.plan(ctx, to)
	if err != nil {
		leave()
		return p, err
	}
	w := g.streams.checkpointWrite(p.checkpoint, -1, &resetBy{by, g.now().UTC().Format(time.RFC3339Nano)})
	try := func(ctx context.Context) error { return g.streams.saveCheckpoint(ctx, w) }
	if err = try(ctx); err == nil {
		g.move(&p, leave)
	} else if isOpen(ctx, err) {
		// What is in memory must be what is stored.
		g.work.Go(func() {
			if g.insist(troubleCheckpoint, try, func() {}) {
				g.move(&p, leave)
			} else {
				leave()
			}
		})
	} else {
		leave()
	}
	return p, err
}

// move lets the messages of the group go and reads on elsewhere.
func (g *group) move(p *plan, leave func()) {
	defer leave()
	g.metrics.checkpoints.Inc()
	g.apply(func(c *core, now time.Time) {
		c.reset(p.checkpoint, g.source.resume(p.checkpoint), now)
		if g.interrupt != nil {
			g.interrupt()
		}
	})
}

// reset is the input that the group is elsewhere: a checkpoint with that number was written, and
// messages are read from next on. All others are let go, but for those that are being parked, which
// are, and replayed ones.
func (c *core) reset(number, next int64, now time.Time) {
	for m := c.unanswered.head; m != nil; m = c.unanswered.head {
		switch m.state {
		case parking:
			m.isLetGo = true
		case outstanding:
			c.takeBack(m, now)
			m.state = done
		case delayed:
			m.state = done
		default:
			c.listOf(m).remove(m)
			m.state = done
		}
		delete(c.tracked, m.id)
		c.unanswered.remove(m)
	}
	c.buffer = list{}
	c.delays.letGo()
	c.checkpoint.reset(number, c.seq, now)
	c.ahead.reset(number, next)
}

// find returns the number of the checkpoint of a target, and that of the first event after it that
// may come.
func (s *source) find(ctx context.Context, to Target) (checkpoint, next int64, err error) {
	beyond := func(end int64) error {
		return &SettingsError{Plain: true, Text: fmt.Sprintf("%s is beyond the end, which is %s.", s.Position(to.At), s.Position(end))}
	}
	if s.all {
		end := s.store.LogEnd()
		switch next = to.At; to.Kind {
		case ToStart:
			return -1, 0, nil
		case ToEnd:
			next = end
		case ToTime:
			if next, err = s.store.PositionAt(ctx, to.At); err != nil {
				return 0, 0, fmt.Errorf("find the time of a reset: %w", err)
			}
		case ToNumber:
			if s.stream == event.AllStream {
				return 0, 0, &SettingsError{Plain: true, Text: "The events of $all have positions, and no numbers."}
			}
		}
		if next > end {
			return 0, 0, beyond(end)
		}
		page, err := s.store.ReadAll(ctx, event.AllRead{From: next, Backward: true, Count: 1, MaxScan: 1, MaxPayload: 1})
		if errors.Is(err, event.ErrBadPosition) {
			return 0, 0, &SettingsError{Plain: true, Text: fmt.Sprintf("No event begins at %s.", s.Position(next))}
		}
		return page.Last, next, err
	}
	info, err := s.store.StreamInfo(ctx, s.stream)
	switch {
	case err != nil:
		return 0, 0, err
	case info.HardDeleted:
		return 0, 0, event.ErrStreamDeleted
	}
	next = info.Last + 1
	isPast := func(r *event.Record) bool { return r.Position >= to.At }
	switch to.Kind {
	case ToStart:
		next = 0
	case ToEnd:
	case ToNumber:
		if to.At > next {
			return 0, 0, beyond(next)
		}
		next = to.At
	case ToTime:
		isPast = func(r *event.Record) bool { return r.Time >= to.At }
		fallthrough
	case ToPosition:
		first, err := catchup.First(ctx, s.store, s.stream, isPast)
		if err != nil && !errors.Is(err, event.ErrStreamNotFound) {
			return 0, 0, err
		}
		if first != nil {
			next = first.Number
		}
	}
	return next - 1, next, nil
}

// count returns how many messages there are from a number on, or after it, and before another one.
// In a stream the numbers tell; in the log it looks, and may not be able to look at all.
func (s *source) count(ctx context.Context, begin, end int64, after bool) (n int64, isAll bool, err error) {
	if !s.all {
		info, err := s.store.StreamInfo(ctx, s.stream)
		if err != nil {
			return 0, false, err
		}
		return max(0, min(end, info.Last+1)-max(begin, info.Metadata.MinVisible(info.Last))), true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	at := catchup.Cursor{Store: s.store, All: true, Query: s.index, Next: begin, After: after, Seen: -1}
	look := catchup.Look{Count: countPage, MaxPayload: 1}
	if s.names != nil && s.index == nil {
		look.IsSlow, look.Filter, look.Names = s.names.IsSlow(), s.matches, s.filterNames()
	}
	for looked := 0; at.Next < end; {
		page, err := at.Read(ctx, &look)
		if err != nil {
			return n, false, nil // What was counted stands.
		}
		for i := range page.Events {
			if page.Events[i].Position < end {
				n++
			}
		}
		if looked += page.Looked; !page.More {
			break
		}
		if looked >= countLook {
			return n, at.Next >= end, nil
		}
	}
	return n, true, nil
}
