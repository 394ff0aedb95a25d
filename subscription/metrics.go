package subscription

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/annalsdb/annals/stats"
)

// groupSeries is for how many groups there are metrics of their own.
const groupSeries = 200

// metrics are the counters over all groups, for as long as the node runs, and the series of single
// groups.
type metrics struct {
	registry *stats.Registry
	service  *Service

	queue                                     *stats.Queue
	reading, answering, changing, ticking     *stats.Work
	delivered, acknowledged, retried, expired *stats.Counter
	parked, replays, checkpoints, failed      *stats.Counter

	mu     sync.Mutex // guards series
	series map[Key]bool
}

func newMetrics(r *stats.Registry, s *Service) *metrics {
	m := &metrics{registry: r, service: s, series: map[Key]bool{}}
	m.queue = r.Queue("PersistentSubscriptions", "", runtime.GOMAXPROCS(0))
	m.reading, m.answering = m.queue.Work("ReadSubscription"), m.queue.Work("AnswerSubscription")
	m.changing, m.ticking = m.queue.Work("ChangeSubscription"), m.queue.Work("SubscriptionTick")
	counter := func(name, help string) *stats.Counter { return r.Counter("annals_subscription_"+name+"_total", help) }
	m.delivered = counter("delivered", "Messages of persistent subscriptions handed out; one that is handed out again counts again.")
	m.acknowledged = counter("acknowledged", "Messages of persistent subscriptions that consumers acknowledged.")
	m.retried = counter("retried", "Messages of persistent subscriptions put back to be handed out again.")
	m.expired = counter("expired", "Messages of persistent subscriptions that consumers did not answer in time.")
	m.parked = counter("parked", "Messages of persistent subscriptions that were parked.")
	m.replays = counter("replays", "Replays of parked messages that were asked for.")
	m.checkpoints = counter("checkpoints", "Checkpoints of persistent subscriptions written.")
	m.failed = counter("failed_writes", "Writes of persistent subscriptions that failed and are tried again.")
	r.GaugeFunc("annals_subscription_groups", "Groups of persistent subscriptions that this node runs.", func() float64 { return float64(len(m.groups())) })
	return m
}

// add counts what became of messages.
func (m *metrics) add(c *counts) {
	m.delivered.Add(c.delivered)
	m.acknowledged.Add(c.acknowledged)
	m.retried.Add(c.retried)
	m.expired.Add(c.expired)
}

// timed is one piece of work that runs.
type timed struct {
	work  *stats.Work
	begun time.Time
}

func (m *metrics) begin(w *stats.Work) timed {
	m.queue.Enter(1)
	return timed{w, w.Begin(0)}
}

func (t timed) end() { t.work.End(t.begun, 1) }

func (m *metrics) groups() []*group {
	if t := m.service.term.Load(); t != nil {
		return t.all()
	}
	return nil
}

// groupMetrics are the metrics of one group. The labels are group, or with pair
// set those that the names are known with.
var groupMetrics = []struct {
	name, help string
	pair       bool
	read       func(ctx context.Context, g *group) float64
}{
	{"annals_subscription_lag_events", "Events between the checkpoint of a group and the end of its stream; of a group on $all, bytes of the log.", false, lag},
	{"annals_subscription_oldest_unacknowledged_seconds", "Age of the oldest message that was handed out and has no answer.", false,
		func(_ context.Context, g *group) float64 {
			g.mu.Lock()
			defer g.mu.Unlock()
			return age(g.core.oldestOutstanding(false), g.now())
		}},
	{"annals_subscription_oldest_parked_seconds", "Age of the oldest parked message.", false,
		func(ctx context.Context, g *group) float64 { at, _ := g.oldestParked(ctx); return age(at, g.now()) }},
	{"annals_subscription_stalled", "1 while a group with messages and readers makes no progress.", false,
		func(_ context.Context, g *group) float64 {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.stalled(g.now()) != "" {
				return 1
			}
			return 0
		}},
	{"annals_subscription_delayed_messages", "Messages of a group that wait for a delay before they are tried again.", false,
		func(_ context.Context, g *group) float64 {
			g.mu.Lock()
			defer g.mu.Unlock()
			return float64(len(g.core.due))
		}},
	{"annals_subscription_paused", "1 while a group is paused.", false,
		func(_ context.Context, g *group) float64 {
			g.mu.Lock()
			defer g.mu.Unlock()
			if g.core.paused != nil {
				return 1
			}
			return 0
		}},
	{"eventstore_persistent_subscriptions_messages_parked", "Messages of a group that were parked since it was loaded.", true,
		func(_ context.Context, g *group) float64 { return float64(g.counters.parked.Value()) }},
	{"eventstore_persistent_subscriptions_replays_requested", "Replays of a group that were asked for since it was loaded.", true,
		func(_ context.Context, g *group) float64 { return float64(g.counters.replays.Value()) }},
}

func labelsOf(k Key, pair bool) []stats.Label {
	if pair {
		return []stats.Label{{Name: "event_stream_id", Value: k.Stream}, {Name: "group_name", Value: k.Group}}
	}
	return []stats.Label{{Name: "group", Value: k.String()}}
}

// added registers the metrics of a group, if there are not too many already.
func (m *metrics) added(k Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.series[k] || len(m.series) >= groupSeries {
		return
	}
	m.series[k] = true
	for _, one := range groupMetrics {
		read := func() float64 {
			t := m.service.term.Load()
			if t == nil {
				return 0
			}
			g, err := t.group(k)
			if err != nil {
				return 0
			}
			return one.read(t.ctx, g)
		}
		m.registry.GaugeFunc(one.name, one.help, read, labelsOf(k, one.pair)...)
	}
}

// removed takes the metrics of a group away.
func (m *metrics) removed(k Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.series[k] {
		return
	}
	delete(m.series, k)
	for _, one := range groupMetrics {
		m.registry.Remove(one.name, labelsOf(k, one.pair)...)
	}
}

func lag(ctx context.Context, g *group) float64 {
	oldest, newest, err := g.source.span(ctx)
	if err != nil || newest < 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	from := g.core.checkpoint.number
	if from < 0 { // Nothing before the start is to be handed out.
		from = g.first() - 1
	}
	return float64(max(0, newest-max(from, oldest-1)))
}

// age returns the seconds since a time, 0 for the zero time.
func age(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at).Seconds())
}
