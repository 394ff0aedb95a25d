package stats

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// queueWindow is the least time between two refreshes of the figures that a queue
// shows of late; until then they stay as they are, so that two readers at the same
// time do not halve each other's window. The reference does the same.
const queueWindow = 100 * time.Millisecond

// processBegan is what moments are counted from, on the monotonic clock.
var processBegan = time.Now()

func moment() int64 { return int64(time.Since(processBegan)) }

// Queue measures work that waits in line to be done by one or more workers. Its
// updates are a few atomic operations each. Registered queues appear in the
// statistics under their names.
type Queue struct {
	name, group string
	workers     float64
	registry    *Registry

	length       atomic.Int64
	peak         atomic.Int64 // since the last refresh
	lifetimePeak atomic.Int64
	items        atomic.Uint64
	busy         atomic.Int64 // nanoseconds of work that ended
	active       atomic.Int64 // items under way
	since        atomic.Int64 // when the item begun last was begun, or when the last one ended
	doing        atomic.Pointer[Work]
	done         atomic.Pointer[Work]
	waited       *Max

	mu    sync.Mutex // guards what follows, of the last refresh
	at    int64
	count uint64
	spent int64
	shown QueueFigures
}

// Work is one kind of item of a queue, named as messages of the queue are.
type Work struct {
	name  string
	queue *Queue
	took  *Histogram
}

// QueueFigures are the figures of a queue at one moment.
type QueueFigures struct {
	Name, Group string // the group is empty for a queue that stands alone

	Length, PeakLength, LifetimePeakLength int64 // PeakLength since the last refresh but one
	Items                                  uint64
	ItemsPerSecond                         int64   // between the last two refreshes
	ProcessingMs                           float64 // mean of one item between the last two refreshes
	IdlePercent                            float64 // between the last two refreshes

	Idle, Processing time.Duration // how long it does nothing, or the item under way; one is negative
	Doing, Done      string        // kinds of item under way and done last; empty: none
}

// Queue registers a queue worked on by so many workers. Registering the same name
// again returns the same queue. Besides the figures it registers metrics of its name.
func (r *Registry) Queue(name, group string, workers int) *Queue {
	fresh := &Queue{name: name, group: group, workers: float64(max(1, workers)), registry: r, waited: new(Max)}
	fresh.at = moment()
	fresh.since.Store(fresh.at)
	if r == nil {
		return fresh
	}
	r.mu.Lock()
	for _, q := range r.queues {
		if q.name == name {
			r.mu.Unlock()
			return q
		}
	}
	r.queues = append(r.queues, fresh)
	r.mu.Unlock()
	fresh.waited = r.Max("eventstore_queue_queueing_duration_max_seconds", "Longest wait in a queue of late.", Label{"name", name})
	r.CounterFunc("eventstore_queue_busy_seconds", "Time spent on the items of a queue.",
		func() float64 { return time.Duration(fresh.busy.Load()).Seconds() }, Label{"queue", name})
	r.GaugeFunc("annals_queue_length", "Items that wait in a queue or are under way.",
		func() float64 { return float64(fresh.length.Load()) }, Label{"queue", name})
	return fresh
}

// Queues returns the registered queues in the order of their registration.
func (r *Registry) Queues() []*Queue {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queues[:len(r.queues):len(r.queues)]
}

// Work registers a kind of item.
func (q *Queue) Work(name string) *Work {
	return &Work{name: name, queue: q, took: q.registry.Histogram("eventstore_queue_processing_duration_seconds",
		"Time taken by the items of a queue.", DurationBounds, Label{"message_type", name}, Label{"queue", q.name})}
}

// Enter counts n items that begin to wait.
func (q *Queue) Enter(n int) {
	length := q.length.Add(int64(n))
	raise(&q.peak, length)
	raise(&q.lifetimePeak, length)
}

// Leave counts n items that went away without having been worked on.
func (q *Queue) Leave(n int) { q.length.Add(-int64(n)) }

// Begin notes that an item, or a batch of them, is being worked on after it has
// waited, and returns the moment for End. Items have entered before.
func (w *Work) Begin(waited time.Duration) (begun time.Time) {
	q := w.queue
	q.waited.Observe(waited.Seconds())
	q.active.Add(1)
	q.doing.Store(w)
	q.since.Store(moment())
	return time.Now()
}

// End notes that n items are done, which were begun together.
func (w *Work) End(begun time.Time, n int) {
	q := w.queue
	took := time.Since(begun)
	w.took.Observe(took.Seconds())
	q.busy.Add(int64(took))
	q.items.Add(uint64(n))
	q.length.Add(-int64(n))
	q.done.Store(w)
	if q.active.Add(-1) == 0 {
		q.since.Store(moment())
	}
}

// Figures returns the figures of the queue. What is said of late is renewed at
// most ten times a second.
func (q *Queue) Figures() QueueFigures {
	now := moment()
	q.mu.Lock()
	defer q.mu.Unlock()
	f := &q.shown
	f.Name, f.Group = q.name, q.group
	f.Length, f.Items, f.LifetimePeakLength = max(0, q.length.Load()), q.items.Load(), q.lifetimePeak.Load()
	f.Idle, f.Processing, f.Doing, f.Done = -1, -1, "", ""
	active := q.active.Load() > 0
	current := max(0, time.Duration(now-q.since.Load()))
	if w := q.doing.Load(); active && w != nil {
		f.Processing, f.Doing = current, w.name
	} else {
		f.Idle = current
	}
	if w := q.done.Load(); w != nil {
		f.Done = w.name
	}
	f.PeakLength = max(f.PeakLength, q.peak.Load())
	if elapsed := now - q.at; elapsed >= int64(queueWindow) {
		busy := q.busy.Load()
		if active {
			busy += int64(current)
		}
		items, spent := f.Items-q.count, max(0, busy-q.spent)
		f.ItemsPerSecond = int64(math.Round(float64(items) * float64(time.Second) / float64(elapsed)))
		f.ProcessingMs = 0
		if items > 0 {
			f.ProcessingMs = float64(spent) / float64(items) / float64(time.Millisecond)
		}
		f.IdlePercent = max(0, 100-100*float64(spent)/(float64(elapsed)*q.workers))
		f.PeakLength = max(q.peak.Swap(f.Length), f.Length)
		q.at, q.count, q.spent = now, f.Items, q.busy.Load()
	}
	return *f
}

func raise(peak *atomic.Int64, to int64) {
	for have := peak.Load(); to > have; have = peak.Load() {
		if peak.CompareAndSwap(have, to) {
			return
		}
	}
}
