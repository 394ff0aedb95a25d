package subscription

import (
	"context"
	"errors"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

// fillWait is how long a reader waits at most for a page that another reader reads.
const fillWait = time.Second

func pauses() clock.Pauses { return clock.Pauses{Least: 100 * time.Millisecond, Most: 5 * time.Second} }

// run loads the group and then reads ahead for as long as the group lives.
func (g *group) run() {
	p := pauses()
	for first := true; ; first = false {
		err := g.load(g.ctx)
		if g.ctx.Err() == nil {
			g.troubles.note(troubleLoading, err)
		}
		if first {
			close(g.tried)
		}
		if err == nil {
			break
		}
		if !p.Wait(g.ctx) {
			return
		}
	}
	p.Failures = 0
	for g.ctx.Err() == nil {
		progress, err := g.step()
		if err != nil && g.ctx.Err() != nil {
			return
		}
		g.troubles.note(troubleReading, err)
		if err == nil && progress {
			p.Failures = 0
		} else if !p.Wait(g.ctx) {
			return
		}
	}
}

// load reads how far the group got, the messages that are being replayed, and those that are still
// to be replayed.
func (g *group) load(ctx context.Context) error {
	checkpoint, at, isFound, err := g.streams.checkpoint(ctx)
	if err != nil {
		return err
	}
	forgotten := g.forgets()
	replays, err := g.streams.replays(ctx)
	if err != nil {
		return err
	}
	settled, err := g.desk.settled(ctx)
	if err != nil {
		return err
	}
	next, known := g.first(), checkpoint
	if isFound {
		end, err := g.term.next(ctx, g.reads().Stream)
		if err != nil {
			return err
		}
		if checkpoint >= end {
			known = end - 1
			g.logger.Warn("the checkpoint is beyond the end of what the group reads: the group gets nothing until events reach it",
				"checkpoint", g.Position(checkpoint), logkey.End, g.Position(end))
		}
		next = g.source.resume(checkpoint)
	}
	ok := g.apply(func(c *core, now time.Time) {
		c.load(checkpoint, next, known, now)
		c.lastAt = at
		c.copied.from, c.copied.end = replays.from, replays.end
		c.addReplays(replays.all, forgotten)
		if len(settled.Replaying) > 0 || settled.Forward != nil {
			g.work.Go(func() { g.desk.finish(func() {}) })
		}
		if settled.Paced != nil {
			g.work.Go(g.desk.resumePaced)
		}
	})
	if !ok {
		return context.Canceled
	}
	return nil
}

// step does the next thing that reading ahead has to do. It reports whether
// anything came of it; if not, it must not be called again at once.
func (g *group) step() (progress bool, err error) {
	ctx, cancel := g.ctx, context.CancelFunc(func() {})
	g.mu.Lock()
	errand, from := g.core.errand(), g.core.next
	if errand == awaitEvents {
		ctx, cancel = context.WithCancel(g.ctx)
		g.interrupt = cancel
	}
	g.mu.Unlock()
	defer cancel()
	switch errand {
	case awaitEnd:
		<-g.ctx.Done()
		return true, nil
	case awaitRoom:
		select {
		case <-g.room:
		case <-g.ctx.Done():
		}
		return true, nil
	case awaitEvents:
		if err := g.source.wait(ctx, from); err != nil {
			if ctx.Err() != nil && g.ctx.Err() == nil {
				return true, nil // The group was moved.
			}
			return false, err
		}
		g.mu.Lock()
		g.core.arrive()
		g.mu.Unlock()
	}
	return g.fill(g.ctx)
}

// refill reads on for a reader if the buffer is empty. It reports whether to look
// into the buffer again, which others fill and empty as well.
func (g *group) refill(ctx context.Context) bool {
	g.mu.Lock()
	isFilled, wants := g.core.wantsMore()
	isOver, next := g.closed, g.core.next
	g.mu.Unlock()
	if isOver || !wants {
		return isFilled && !isOver
	}
	if _, newest, err := g.source.span(ctx); err != nil || newest < next {
		return false
	}
	progress, err := g.fill(ctx)
	// An error the one that reads ahead meets as well, and deals with.
	return progress && err == nil
}

// fill reads one page into the buffer. It reports whether the group got any
// further. Only one page is read at a time, also for several callers.
func (g *group) fill(ctx context.Context) (progress bool, err error) {
	select {
	case g.token <- struct{}{}:
	default:
		// The page that is being read is as good, if it comes soon.
		ctx, cancel := context.WithTimeout(ctx, fillWait)
		defer cancel()
		select {
		case g.token <- struct{}{}:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	defer func() { <-g.token }()

	var room int
	var from int64
	var forgotten uint64
	g.apply(func(c *core, _ time.Time) {
		room, from, forgotten = c.beginPage(), c.next, c.forgotten
		progress = c.loaded
	})
	if room == 0 {
		return progress, nil // Another reader was faster.
	}
	b, err := g.source.read(ctx, from, room)
	progress = false
	g.apply(func(c *core, _ time.Time) {
		c.reading = false
		if errors.Is(err, event.ErrStreamDeleted) {
			c.end()
			progress, err = true, nil
		} else if err == nil {
			progress = c.add(&b, g.source.number, forgotten)
		}
	})
	return progress, err
}
