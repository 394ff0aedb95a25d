package subscription

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
)

// tick is how precise deadlines and timed checkpoints are.
const tick = time.Second

// maxUnanswered bounds the messages of one group that were handed out and have no answer. Beyond it
// no new message is handed out, but retries continue.
const maxUnanswered = 100_000

// group runs one subscription group. A caller with something to do locks mu, changes its state, and
// calls settle, which starts the work that follows from the change. mu is never held while a stream
// is read or written, nor while a caller waits.
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
	room  chan struct{} // one element: the buffer has room again
	space chan struct{} // one element: few replayed messages are left
	desk  desk

	mu     sync.Mutex // guards the fields below
	closed bool

	// Reading ahead.
	loaded  bool
	next    int64 // number of the next event to read
	known   int64 // newest number seen in the source, -1: none
	live    bool  // the end of the source was reached, and since then the buffer held all that came
	more    bool  // live, and there is something new to read
	reading bool  // a page is being read
	gone    bool  // the stream was hard-deleted: nothing can come any more

	messages

	checkpoint checkpoint

	replaying    bool  // parked messages are being fetched
	replayTarget int64 // parked messages below are not counted any more
	trimmed      int64 // the stream of replays is truncated before this number

	tasks   tasks
	alarm   *time.Timer // nil: not set
	alarmAt time.Time

	connections []*Connection
	strategy    strategy

	statistics statistics
	troubles   troubles
}

func newGroup(t *term, d *definition) *group {
	g := &group{
		definition: d, term: t, store: t.opts.Store, logger: t.opts.Logger.With("group", d.Key.String()), metrics: t.metrics,
		now: t.opts.Now, checkpoint: checkpoint{number: -1},
		tried: make(chan struct{}), token: make(chan struct{}, 1), room: make(chan struct{}, 1), space: make(chan struct{}, 1),
		known: -1,
	}
	g.desk = desk{g: g, token: make(chan struct{}, 1)}
	g.messages.begin()
	g.strategy = newStrategy(d.Settings.Strategy, g, t.opts.CorrelationMember)
	g.ctx, g.cancel = context.WithCancel(t.ctx)
	g.streams = ownStreams{ctx: g.ctx, definition: d, store: g.store, logger: g.logger, timeout: t.opts.WriteTimeout}
	g.source = newSource(&g.streams)
	g.troubles.logger, g.troubles.now = g.logger, g.now
	g.statistics.measured = g.now()
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

// settle starts the work that follows from a change of the state. The caller holds mu.
func (g *group) settle() {
	if g.closed || !g.loaded {
		return
	}
	g.dispatch()
	if !g.live && g.mayFill() {
		signal(g.room)
	}
	if g.replays.n < replayLow {
		signal(g.space)
	}
	now := g.now()
	if g.answered {
		g.statistics.answered, g.answered = now, false
	}
	if g.parking.n > 0 {
		g.begin(&g.tasks.parking, g.park)
	}
	if _, seq := g.position(); g.checkpoint.forced(seq, &g.Settings) {
		g.begin(&g.tasks.checkpointing, g.writeCheckpoints)
	}
	if g.trimDue() {
		g.begin(&g.tasks.trimming, g.trim)
	}
	g.setAlarm(now)
}

// tasks are the goroutines that write for a group and end when nothing is left to be written.
type tasks struct{ parking, checkpointing, trimming bool }

// begin runs a task unless it runs already or the group ends. The task sets
// running to false, with mu held, when it finds nothing to do. The caller holds mu.
func (g *group) begin(running *bool, task func()) {
	if *running || g.closed {
		return
	}
	*running = true
	g.work.Go(task)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// setAlarm sets the alarm to when something is due by time. An idle group has none. The caller
// holds mu.
func (g *group) setAlarm(now time.Time) {
	due, ok := g.checkpointAt()
	if m := g.out.head; m != nil {
		if deadline := g.deadline(m); !ok || deadline.Before(due) {
			due, ok = deadline, true
		}
	}
	if !ok {
		return // An alarm that is still set finds nothing to do.
	}
	// Whole ticks, at least one: what is due at once is due at the next tick.
	wait := max(tick, (due.Sub(now)+tick-1)/tick*tick)
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
	g.mu.Lock()
	defer g.mu.Unlock()
	g.alarm = nil
	if g.closed {
		return
	}
	if len(g.tracked) == 0 {
		g.tracked = nil // An idle group keeps no large map.
	}
	now := g.now()
	for m := g.out.head; m != nil && !g.deadline(m).After(now); m = g.out.head {
		g.metrics.expired.Inc()
		g.again(m)
	}
	if at, ok := g.checkpointAt(); ok && !at.After(now) {
		g.begin(&g.tasks.checkpointing, g.writeCheckpoints)
	}
	g.settle()
}

// deadline returns when the time of a message that was handed out is over.
func (g *group) deadline(m *message) time.Time { return m.given.Add(g.Settings.MessageTimeout) }

// handOut gives a message away. The caller holds mu.
func (g *group) handOut(m *message, to *Connection, now time.Time) {
	fresh := m.state == buffered
	g.listOf(m).remove(m)
	g.statistics.handedOut()
	if m.first.IsZero() {
		m.first = now
	}
	if fresh {
		// Of two events with one id the second is handed out and forgotten: an
		// answer could not tell which it means.
		if _, twice := g.tracked[m.id]; twice {
			m.state = done
			return
		}
		g.track(m)
	}
	m.state, m.to, m.given = outstanding, to, now
	g.out.pushBack(m)
	if to != nil {
		to.took(m)
	}
}

// again has an outstanding message handed out once more, or parks it when that
// was done often enough. The caller holds mu.
func (g *group) again(m *message) {
	g.takeBack(m)
	if m.retries >= g.Settings.MaxRetryCount {
		g.giveUp(m, fmt.Sprintf("Reached retry count of %d", g.Settings.MaxRetryCount))
		return
	}
	m.retries++
	g.metrics.retried.Inc()
	g.wait(m)
}

// read hands out at most count messages to a reader that pulls.
func (g *group) read(ctx context.Context, count int) (got []Message) {
	for {
		g.mu.Lock()
		g.statistics.asked = g.now()
		got = g.pull(got, count)
		g.mu.Unlock()
		// When the buffer holds too few, the stream is read at once, so that the caller also gets
		// events that were appended a moment ago or had no room in the buffer.
		if len(got) == count || !g.refill(ctx) {
			return got
		}
	}
}

// pull adds messages until there are count. The caller holds mu.
func (g *group) pull(got []Message, count int) []Message {
	if g.closed || !g.loaded {
		return got
	}
	had, n := len(got), min(count-len(got), g.retry.n+g.replays.n+g.buffer.n)
	got = slices.Grow(got, n)
	if g.tracked == nil && n > 0 {
		g.tracked = make(map[event.ID]*message, n)
	}
	now := g.now()
	for len(got) < count {
		m := g.takeNext()
		if m == nil {
			break
		}
		g.handOut(m, nil, now)
		got = append(got, m.handed())
	}
	g.metrics.delivered.Add(uint64(len(got) - had))
	g.settle()
	return got
}

// ack answers messages as processed. Only outstanding messages can be answered.
func (g *group) ack(ids []event.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	acknowledged := uint64(0)
	var next *message // Most are answered in the order in which they were handed out.
	for _, id := range ids {
		m := next
		if m == nil || m.id != id {
			if m = g.tracked[id]; m == nil || m.state != outstanding {
				continue
			}
		}
		next = g.out.next(m)
		g.takeBack(m)
		g.forget(m)
		acknowledged++
	}
	g.metrics.acknowledged.Add(acknowledged)
	g.settle()
}

// nack answers messages as not processed.
func (g *group) nack(ids []event.ID, action Action, reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, id := range ids {
		m := g.tracked[id]
		if m == nil || m.state != outstanding {
			continue
		}
		switch action {
		case Park:
			g.takeBack(m)
			g.giveUp(m, "Client explicitly NAK'ed message.\n"+reason)
		case Skip, Stop:
			g.takeBack(m)
			g.forget(m)
		default:
			g.again(m)
		}
	}
	g.settle()
}
