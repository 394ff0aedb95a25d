package subscription

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/milestone"
)

const (
	// tick is how precise deadlines and timed checkpoints are.
	tick = time.Second
	// leastAlarm bounds how often a group with delayed messages looks for one that is due.
	leastAlarm = 10 * time.Millisecond
)

// group runs one subscription group: it reads and writes streams for its core, which decides.
// Inputs reach the core through apply, which also does what follows from them. mu is never held
// while a stream is read or written, nor while a caller waits.
//
// Its goroutines: one that reads ahead (run), and for as long as there is
// something to write one each for parking, checkpoints, replays and for
// truncating the stream of replays. stop ends them all and waits.
type group struct {
	*definition
	term    *term
	streams ownStreams
	source  source
	store   Store
	logger  hclog.Logger
	metrics *metrics
	now     func() time.Time

	ctx    context.Context // of the group's own life
	cancel context.CancelFunc
	work   sync.WaitGroup
	tried  chan struct{} // closed when loading succeeded, or failed for the first time
	// holds one element while a page is being read: pages come one after the other
	token chan struct{}
	// likewise while a checkpoint is being written. Who wants both takes token first.
	saving chan struct{}
	room   chan struct{} // one element: the buffer has room again
	space  chan struct{} // one element: few replayed messages are left
	desk   desk
	line   milestone.Line // core.done

	mu          sync.Mutex // guards the fields below
	closed      bool
	core        core
	connections []*Connection // those of the core's consumers
	alarm       *time.Timer   // nil: not set
	alarmAt     time.Time
	interrupt   context.CancelFunc // of the wait for events; nil: there was none

	counters counters
	troubles troubles
}

func newGroup(t *term, d *definition) *group {
	g := &group{
		definition: d, term: t, store: t.opts.Store, logger: t.opts.Logger.With("group", d.Key.String()), metrics: t.metrics,
		now: t.opts.Now, core: newCore(&d.Settings, t.opts.Now()),
		tried: make(chan struct{}), token: make(chan struct{}, 1), saving: make(chan struct{}, 1), room: make(chan struct{}, 1), space: make(chan struct{}, 1),
	}
	g.desk = desk{g: g, token: make(chan struct{}, 1)}
	g.ctx, g.cancel = context.WithCancel(t.ctx)
	g.streams = ownStreams{ctx: g.ctx, definition: d, store: g.store, logger: g.logger, timeout: t.opts.WriteTimeout}
	g.source = newSource(&g.streams)
	g.core.paused = d.paused
	g.core.strategy = newStrategy(&g.core, t.opts.CorrelationMember, g.streams.whole)
	g.troubles.logger, g.troubles.now = g.logger, g.now
	return g
}

// start begins to load the group and to read ahead.
func (g *group) start() { g.work.Go(g.run) }

// stop ends the group: connections are dropped, and learn why; all that is in memory is forgotten.
func (g *group) stop(why error) {
	g.cancel()
	g.mu.Lock()
	g.closed = true
	if g.alarm != nil && g.alarm.Stop() {
		g.work.Done()
	}
	g.alarm = nil
	for _, c := range g.connections {
		c.end(why)
	}
	g.connections = nil
	g.mu.Unlock()
	g.work.Wait()
}

// apply gives the core an input, and does what follows. It returns false when the group has ended:
// there are no more inputs.
func (g *group) apply(input func(c *core, now time.Time)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	now := g.now()
	input(&g.core, now)
	g.settle(now)
	return true
}

// settle does what follows from inputs, or begins to. The caller holds mu.
func (g *group) settle(now time.Time) {
	if g.closed {
		return
	}
	e := g.core.settle(now)
	g.line.Move(g.core.done())
	if e.counts != (counts{}) {
		g.metrics.add(&e.counts)
	}
	for _, to := range e.pushed {
		bell.Ring(to.arrived)
	}
	if e.hasRoom {
		bell.Ring(g.room)
	}
	if e.hasSpace {
		bell.Ring(g.space)
	}
	if batch := e.park; len(batch) > 0 {
		w := &event.Write{Stream: g.ParkedStream(), ExpectedVersion: event.AnyVersion, Events: parkedEvents(batch, now)}
		g.work.Go(func() { g.park(batch, w) })
	}
	if e.checkpoint {
		early := checkpointPace - now.Sub(g.core.checkpoint.written)
		g.work.Go(func() { g.writeCheckpoint(early) })
	}
	if before := e.trim; before > 0 {
		g.work.Go(func() { g.trim(before) })
	}
	g.setAlarm(e.alarm, e.exact, now)
}

// writeCheckpoint writes a checkpoint after a pause, tries that until it succeeds, and covers what
// is answered meanwhile. It is the only one that does, so no checkpoint overtakes another.
func (g *group) writeCheckpoint(pause time.Duration) {
	if pause > 0 && clock.Sleep(g.ctx, pause) != nil {
		return
	}
	g.insist(troubleCheckpoint, func(ctx context.Context) error {
		select {
		case g.saving <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-g.saving }()
		g.mu.Lock()
		number, seq, at := g.core.answered()
		if g.source.all { // The number is the position.
			at = -1
		}
		isOld := number == g.core.checkpoint.number // The group was moved since this was asked for.
		g.mu.Unlock()
		if !isOld {
			if err := g.streams.saveCheckpoint(ctx, g.streams.checkpointWrite(number, at, nil)); err != nil {
				return err
			}
			g.metrics.checkpoints.Inc()
		}
		g.apply(func(c *core, now time.Time) { c.checkpointed(number, seq, now) })
		return nil
	}, func() {})
}

// insist tries a write of the group until it succeeds, and calls tried when it did not. It returns
// false when the group ends first.
func (g *group) insist(kind int, try func(ctx context.Context) error, tried func()) bool {
	p := pauses()
	for {
		ctx, cancel := context.WithTimeout(g.ctx, g.streams.timeout)
		err := try(ctx)
		cancel()
		if g.ctx.Err() != nil {
			return false
		}
		g.troubles.note(kind, err)
		if err == nil {
			return true
		}
		tried()
		g.metrics.failed.Inc()
		if !p.Wait(g.ctx) {
			return false
		}
	}
}

// setAlarm sets the alarm to when something is due by time, at a tick or exactly; zero: nothing is.
// An idle group has none; one that is still set finds nothing to do. The caller holds mu.
func (g *group) setAlarm(due, exact, now time.Time) {
	if due.IsZero() && exact.IsZero() {
		return
	}
	// Whole ticks, at least one: what is due at once is due at the next tick.
	wait := max(tick, (due.Sub(now)+tick-1)/tick*tick)
	if !exact.IsZero() {
		if early := max(leastAlarm, exact.Sub(now)); due.IsZero() || early < wait {
			wait = early
		}
	}
	at := now.Add(wait)
	if g.alarm != nil {
		if !at.Before(g.alarmAt) {
			return
		}
		if !g.alarm.Stop() {
			return // It is about to go off, and sets itself again.
		}
		g.work.Done()
	}
	g.work.Add(1)
	g.alarmAt = at
	g.alarm = time.AfterFunc(wait, g.ring)
}

// ring is the tick.
func (g *group) ring() {
	defer g.work.Done()
	defer g.metrics.begin(g.metrics.ticking).end()
	g.apply(func(c *core, now time.Time) {
		g.alarm = nil
		c.tick(now)
	})
}

// read hands out at most count messages to a reader that pulls.
func (g *group) read(ctx context.Context, count int) (got []Message) {
	for {
		g.apply(func(c *core, now time.Time) { got = c.give(got, count, now) })
		// When the buffer holds too few, the stream is read at once, so that the caller also gets
		// events that were appended a moment ago or had no room in the buffer.
		if len(got) == count || !g.refill(ctx) {
			return got
		}
	}
}

// ack answers messages as processed.
func (g *group) ack(ids []event.ID) {
	g.apply(func(c *core, now time.Time) { c.ack(ids, now) })
}

// nack answers messages as not processed.
func (g *group) nack(ids []event.ID, action Action, reason string, after *time.Duration) {
	g.apply(func(c *core, now time.Time) { c.nack(ids, action, reason, after, now) })
}
