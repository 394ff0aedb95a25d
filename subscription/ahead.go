package subscription

import (
	"context"
	"errors"
	"fmt"
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
	checkpoint, err := g.streams.checkpoint(ctx)
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
	if checkpoint >= 0 {
		end, err := g.term.next(ctx, g.Stream)
		if err != nil {
			return err
		}
		if checkpoint >= end {
			known = end - 1
			g.logger.Warn("the checkpoint is beyond the end of what the group reads: the group gets nothing until events reach it",
				"checkpoint", g.Position(checkpoint), logkey.End, g.Position(end))
		}
		if next, err = g.source.after(ctx, checkpoint); err != nil {
			return fmt.Errorf("find the first event after the checkpoint %s: %w", g.Position(checkpoint), err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return context.Canceled
	}
	g.checkpoint.number, g.checkpoint.at, g.last, g.next = checkpoint, g.now(), checkpoint, next
	g.trimmed, g.replayEnd = replays.from, replays.end
	g.known = known
	g.addReplays(replays.all, forgotten)
	g.loaded = true
	if len(settled.Replaying) > 0 {
		g.work.Go(func() { g.desk.finish(func() {}) })
	}
	g.settle()
	return nil
}

// step does the next thing that reading ahead has to do. It reports whether
// anything came of it; if not, it must not be called again at once.
func (g *group) step() (progress bool, err error) {
	g.mu.Lock()
	if g.live && g.more && g.buffer.n >= g.Settings.BufferSize {
		g.live, g.more = false, false // It is read again when there is room.
	}
	var (
		gone = g.gone
		full = !g.live && !g.mayFill()
		wait = g.live && !g.more
		from = g.next
	)
	g.mu.Unlock()
	switch {
	case gone:
		<-g.ctx.Done()
		return true, nil
	case full:
		select {
		case <-g.room:
		case <-g.ctx.Done():
		}
		return true, nil
	case wait:
		if err := g.source.wait(g.ctx, from); err != nil {
			return false, err
		}
		g.mu.Lock()
		g.more = g.live
		g.mu.Unlock()
	}
	return g.fill(g.ctx)
}

// mayFill reports whether there is room for a batch. The caller holds mu.
func (g *group) mayFill() bool {
	return g.buffer.n == 0 || g.Settings.BufferSize-g.buffer.n > g.Settings.batch()
}

// refill reads on for a reader if the buffer is empty. It reports whether to look
// into the buffer again, which others fill and empty as well.
func (g *group) refill(ctx context.Context) bool {
	g.mu.Lock()
	ok, isFilled := g.loaded && !g.closed && g.mayHandOut(), g.buffer.n > 0
	isGone, next := g.gone, g.next
	g.mu.Unlock()
	if !ok || isFilled || isGone {
		return ok && isFilled
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

	g.mu.Lock()
	room := g.Settings.BufferSize - g.buffer.n
	if g.closed || !g.loaded || g.gone || room <= 0 || !g.live && !g.mayFill() {
		progress = !g.closed && g.loaded // Another reader was faster.
		g.mu.Unlock()
		return progress, nil
	}
	from := g.next
	g.reading = true
	forgotten := g.forgotten
	g.mu.Unlock()

	b, err := g.source.read(ctx, from, room)

	g.mu.Lock()
	defer g.mu.Unlock()
	g.reading = false
	if errors.Is(err, event.ErrStreamDeleted) {
		g.gone, g.live, g.more = true, true, false
		return true, nil
	}
	if err != nil || g.closed {
		return false, err
	}
	before, wasLive := g.next, g.live
	if g.forgotten != forgotten {
		for i := range b.events {
			b.events[i] = *withoutPayload(&b.events[i])
		}
	}
	g.add(&b)
	g.settle()
	return g.next > before || g.live != wasLive || !g.more, nil
}

// add puts the events of a batch into the buffer, and moves past the batch. The caller holds mu.
func (g *group) add(b *batch) {
	g.known = max(g.known, b.known)
	messages := make([]message, len(b.events))
	for i := range b.events {
		m, e := &messages[i], &b.events[i]
		g.seq++
		m.id, m.event, m.number, m.before, m.seq, m.bucket = e.ID, e, g.source.number(&e.Record), g.last, g.seq, -1
		g.last = m.number
		g.buffer.pushBack(m)
	}
	g.seq += b.progress
	g.last, g.next = max(g.last, b.passed), b.next
	if b.end {
		g.live, g.more = true, false
	}
}
