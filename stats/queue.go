package stats

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// queueWindow is the least time between two refreshes of a queue's recent
// statistics. Until then they stay as they are, so that two readers at the same
// time do not halve each other's window.
const queueWindow = 100 * time.Millisecond

// Queue measures work that waits in line to be done by one or more workers. Its
// updates are a few atomic operations each. Registered queues appear in the
// statistics under their names.
type Queue struct {
	name, group string
	registry    *Registry

	length       atomic.Int64
	peak         atomic.Int64 // since the last refresh
	lifetimePeak atomic.Int64
	items        atomic.Uint64
	busy         atomic.Int64 // nanoseconds of work that ended
	busyShown    atomic.Int64 // the most that busySoFar returned
	ended        atomic.Int64 // moment at which an item ended last
	done         atomic.Pointer[Work]
	underWay     []slot // one per worker
	waited       *Max

	mu        sync.Mutex // guards what follows, of the last refresh
	at        int64      // its moment
	itemsThen uint64
	busyThen  int64
	spentThen int64 // busySoFar
	shown     QueueStatistics
}

// slot is one running item, or batch of items.
type slot struct {
	begun atomic.Int64 // moment, 0 when the slot is free
	work  atomic.Pointer[Work]
}

// Work is one kind of item of a queue, named as messages of the queue are.
type Work struct {
	name  string
	queue *Queue
	took  *Histogram
}

// QueueStatistics are the statistics of a queue at one moment. The recent ones are
// about the time between the last two refreshes.
type QueueStatistics struct {
	Name, Group string // the group is empty for a queue that stands alone

	Length, PeakLength, LifetimePeakLength int64  // PeakLength is of late, until now
	Items                                  uint64 // done since the process began
	ItemsPerSecond                         int64  // of late
	// mean of the items that were done of late; 0: none was
	ProcessingMs float64
	IdlePercent  float64 // of late, of the time of all workers

	// How long nothing has been done, or how long the oldest running item has taken. One of them is
	// negative.
	Idle, Processing time.Duration

	Doing, Done string // kinds of the oldest running item and of the one done last; empty: none
}

// Queue registers a queue worked on by so many workers. Registering the same name
// again returns the same queue. It also registers metrics of its name.
func (r *Registry) Queue(name, group string, workers int) *Queue {
	if r == nil {
		return newQueue(nil, name, group, workers)
	}
	// A caller that finds the queue here finds it complete.
	r.queueMu.Lock()
	defer r.queueMu.Unlock()
	for _, q := range r.queues {
		if q.name == name {
			return q
		}
	}
	q := newQueue(r, name, group, workers)
	r.queues = append(r.queues, q)
	r.CounterFunc("eventstore_queue_busy_seconds", "Time spent on the items of a queue.",
		func() float64 { return time.Duration(q.busySoFar(moment(time.Now()))).Seconds() }, Label{"queue", name})
	r.GaugeFunc("annals_queue_length", "Items that wait in a queue or are being handled.",
		func() float64 { return float64(max(0, q.length.Load())) }, Label{"queue", name})
	return q
}

func newQueue(r *Registry, name, group string, workers int) *Queue {
	q := &Queue{name: name, group: group, registry: r, underWay: make([]slot, max(1, workers))}
	q.waited = r.Max("eventstore_queue_queueing_duration_max_seconds", "Longest wait in a queue of late.", Label{"name", name})
	q.at = moment(time.Now())
	q.ended.Store(q.at)
	q.shown = QueueStatistics{Name: name, Group: group, IdlePercent: 100}
	return q
}

// Queues returns the registered queues in the order of their registration.
func (r *Registry) Queues() []*Queue {
	if r == nil {
		return nil
	}
	r.queueMu.Lock()
	defer r.queueMu.Unlock()
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

// Begin notes that an item, or a batch of them, is being worked on after it has waited, and returns
// the moment for End. Items have entered before. More of them may run than there are workers; the
// surplus shows only when it ends.
func (w *Work) Begin(waited time.Duration) (begun time.Time) {
	w.queue.waited.Observe(waited.Seconds())
	begun = time.Now()
	m := slotMoment(begun)
	for i := range w.queue.underWay {
		// Loading first keeps workers from tearing at each other's slots.
		if s := &w.queue.underWay[i]; s.begun.Load() == 0 && s.begun.CompareAndSwap(0, m) {
			s.work.Store(w)
			break
		}
	}
	return begun
}

// End notes that n items are done, which were begun together.
func (w *Work) End(begun time.Time, n int) {
	q, m := w.queue, slotMoment(begun)
	// Of two items begun at the same moment it does not matter whose slot is freed.
	for i := range q.underWay {
		if s := &q.underWay[i]; s.begun.Load() == m && s.begun.CompareAndSwap(m, 0) {
			break
		}
	}
	took := max(0, time.Since(begun)) // Not less than a reader that saw the slot has counted.
	w.took.Observe(took.Seconds())
	q.busy.Add(int64(took))
	q.items.Add(uint64(n))
	q.length.Add(-int64(n))
	q.done.Store(w)
	raise(&q.ended, m+int64(took))
}

// slotMoment is the moment as slots hold it, where 0 has a meaning of its own.
func slotMoment(t time.Time) int64 {
	if m := moment(t); m != 0 {
		return m
	}
	return 1
}

// oldest returns the item that has run the longest, and the time spent up to now on all running
// items.
func (q *Queue) oldest(now int64) (begun int64, work *Work, spent int64) {
	begun = now
	for i := range q.underWay {
		m := q.underWay[i].begun.Load()
		if m == 0 {
			continue
		}
		spent += max(0, now-m)
		if of := q.underWay[i].work.Load(); of != nil && (work == nil || m < begun) {
			begun, work = min(m, now), of
		}
	}
	return begun, work, spent
}

// busySoFar returns the nanoseconds of work until now. An item that ends at this
// very moment may be missing, but what was returned once is never taken back.
func (q *Queue) busySoFar(now int64) int64 {
	// The other way round an item that ends in between would be in both. End frees the slot first.
	ended := q.busy.Load()
	_, _, spent := q.oldest(now)
	raise(&q.busyShown, ended+spent)
	return q.busyShown.Load()
}

// Statistics returns the statistics of the queue. The recent ones are refreshed at
// most ten times a second.
func (q *Queue) Statistics() QueueStatistics {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := moment(time.Now())
	f := &q.shown
	f.Length, f.Items = max(0, q.length.Load()), q.items.Load()
	f.LifetimePeakLength = max(f.Length, q.lifetimePeak.Load())
	f.Idle, f.Processing, f.Doing, f.Done = -1, -1, "", ""
	if begun, work, _ := q.oldest(now); work != nil {
		f.Processing, f.Doing = time.Duration(now-begun), work.name
	} else {
		f.Idle = max(0, time.Duration(now-q.ended.Load()))
	}
	if w := q.done.Load(); w != nil {
		f.Done = w.name
	}
	f.PeakLength = max(f.PeakLength, q.peak.Load(), f.Length)
	if now-q.at >= int64(queueWindow) {
		q.refresh(now)
	}
	return *f
}

// refresh renews the recent statistics. The caller holds mu.
func (q *Queue) refresh(now int64) {
	f := &q.shown
	elapsed, items := float64(now-q.at), float64(f.Items-q.itemsThen)
	ended, spent := q.busy.Load(), q.busySoFar(now)
	f.ItemsPerSecond = int64(math.Round(items / elapsed * float64(time.Second)))
	f.ProcessingMs = 0
	if items > 0 {
		f.ProcessingMs = float64(ended-q.busyThen) / items / float64(time.Millisecond)
	}
	f.IdlePercent = min(100, max(0, 100-100*float64(spent-q.spentThen)/(elapsed*float64(len(q.underWay)))))
	f.PeakLength = max(q.peak.Swap(f.Length), f.Length)
	q.at, q.itemsThen, q.busyThen, q.spentThen = now, f.Items, ended, spent
}
