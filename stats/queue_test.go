package stats_test

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

// checkQueue compares all statistics of a queue named "q" in group "g".
func checkQueue(t *testing.T, q *stats.Queue, when string, want stats.QueueStatistics) {
	t.Helper()
	want.Name, want.Group = "q", "g"
	check.Equal(t, q.Statistics(), want, when)
}

func TestQueueStatistics(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		q := new(stats.Registry).Queue("q", "g", 1)
		read, write := q.Work("Read"), q.Work("Write")
		checkQueue(t, q, "at once", stats.QueueStatistics{IdlePercent: 100, Processing: -1})

		q.Enter(3)
		q.Leave(1)
		begun := read.Begin(0)
		time.Sleep(50 * ms)
		checkQueue(t, q, "within the first window", stats.QueueStatistics{Length: 2, PeakLength: 3, LifetimePeakLength: 3, IdlePercent: 100,
			Idle: -1, Processing: 50 * ms, Doing: "Read"})
		time.Sleep(50 * ms)
		checkQueue(t, q, "running", stats.QueueStatistics{Length: 2, PeakLength: 3, LifetimePeakLength: 3,
			Idle: -1, Processing: 100 * ms, Doing: "Read"})

		// What was spent in one window is not counted in the next one again.
		time.Sleep(100 * ms)
		read.End(begun, 1)
		time.Sleep(100 * ms)
		checkQueue(t, q, "half idle", stats.QueueStatistics{Length: 1, PeakLength: 2, LifetimePeakLength: 3, Items: 1, ItemsPerSecond: 5,
			ProcessingMs: 200, IdlePercent: 50, Idle: 100 * ms, Processing: -1, Done: "Read"})

		q.Enter(9)
		begun = write.Begin(5 * ms)
		time.Sleep(20 * ms)
		write.End(begun, 10)
		checkQueue(t, q, "too early to refresh", stats.QueueStatistics{PeakLength: 10, LifetimePeakLength: 10, Items: 11, ItemsPerSecond: 5,
			ProcessingMs: 200, IdlePercent: 50, Processing: -1, Done: "Write"})
		time.Sleep(80 * ms)
		checkQueue(t, q, "a batch", stats.QueueStatistics{PeakLength: 10, LifetimePeakLength: 10, Items: 11, ItemsPerSecond: 100,
			ProcessingMs: 2, IdlePercent: 80, Idle: 80 * ms, Processing: -1, Done: "Write"})
		checkQueue(t, q, "again at once", stats.QueueStatistics{PeakLength: 10, LifetimePeakLength: 10, Items: 11, ItemsPerSecond: 100,
			ProcessingMs: 2, IdlePercent: 80, Idle: 80 * ms, Processing: -1, Done: "Write"})
		time.Sleep(time.Hour)
		checkQueue(t, q, "idle", stats.QueueStatistics{LifetimePeakLength: 10, Items: 11, IdlePercent: 100,
			Idle: time.Hour + 80*ms, Processing: -1, Done: "Write"})
	})
}

func TestQueueWorkers(t *testing.T) {
	const ms = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var r stats.Registry
		q := r.Queue("q", "g", 4)
		read, write := q.Work("Read"), q.Work("Write")
		q.Enter(3)
		first := write.Begin(0)
		time.Sleep(50 * ms)
		second, third := read.Begin(0), read.Begin(0)
		time.Sleep(50 * ms)
		checkQueue(t, q, "three of four", stats.QueueStatistics{Length: 3, PeakLength: 3, LifetimePeakLength: 3, IdlePercent: 50,
			Idle: -1, Processing: 100 * ms, Doing: "Write"})
		write.End(first, 1)
		time.Sleep(100 * ms)
		checkQueue(t, q, "two of four", stats.QueueStatistics{Length: 2, PeakLength: 3, LifetimePeakLength: 3, Items: 1, ItemsPerSecond: 10,
			ProcessingMs: 100, IdlePercent: 50, Idle: -1, Processing: 150 * ms, Doing: "Read", Done: "Write"})
		if got := metric(&r, "eventstore_queue_busy_seconds"); math.Abs(got-0.4) > 1e-9 {
			t.Errorf("busy for %v s", got)
		}
		read.End(second, 1)
		read.End(third, 1)
		time.Sleep(100 * ms)
		checkQueue(t, q, "all done", stats.QueueStatistics{PeakLength: 2, LifetimePeakLength: 3, Items: 3, ItemsPerSecond: 20,
			ProcessingMs: 150, IdlePercent: 100, Idle: 100 * ms, Processing: -1, Done: "Read"})

		// More at a time than there are workers.
		q.Enter(6)
		var begun []time.Time
		for range 6 {
			begun = append(begun, read.Begin(0))
		}
		time.Sleep(100 * ms)
		checkQueue(t, q, "six of four", stats.QueueStatistics{Length: 6, PeakLength: 6, LifetimePeakLength: 6, Items: 3,
			Idle: -1, Processing: 100 * ms, Doing: "Read", Done: "Read"})
		for _, b := range begun {
			read.End(b, 1)
		}
		time.Sleep(100 * ms)
		checkQueue(t, q, "six done", stats.QueueStatistics{PeakLength: 6, LifetimePeakLength: 6, Items: 9, ItemsPerSecond: 60,
			ProcessingMs: 100, IdlePercent: 50, Idle: 100 * ms, Processing: -1, Done: "Read"})
	})
}

func TestQueueRegistration(t *testing.T) {
	var r stats.Registry
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			w := r.Queue("q", "g", 1).Work("Read")
			w.End(w.Begin(time.Second), 1)
			r.Queue("p", "", 0)
		})
	}
	wg.Wait()
	check.Equal(t, len(r.Queues()), 2, "queues")
	check.Equal(t, r.Queue("q", "", 1).Statistics().Items, 8, "items")
	if got := metric(&r, "eventstore_queue_queueing_duration_max_seconds", stats.Label{Name: "name", Value: "q"}); got != 1 {
		t.Errorf("waited for %v s", got)
	}
	var none *stats.Registry
	w := none.Queue("q", "g", 2).Work("Read")
	w.End(w.Begin(0), 1)
	if none.Queues() != nil {
		t.Error("a nil registry has queues")
	}
}

func TestQueueConcurrentUse(t *testing.T) {
	var r stats.Registry
	q := r.Queue("q", "g", 4)
	const workers, each = 8, 500
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	readers.Go(func() {
		last := 0.0
		for {
			f := q.Statistics()
			busy := metric(&r, "eventstore_queue_busy_seconds")
			if busy < last || f.IdlePercent < 0 || f.IdlePercent > 100 || f.PeakLength < f.Length || f.LifetimePeakLength < f.Length ||
				(f.Idle < 0) == (f.Processing < 0) {
				t.Errorf("busy %v after %v, %+v", busy, last, f)
				return
			}
			last = busy
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range workers {
		w := q.Work([]string{"Read", "Write"}[i%2])
		writers.Go(func() {
			for range each {
				q.Enter(1)
				w.End(w.Begin(0), 1)
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	if f := q.Statistics(); f.Length != 0 || f.Items != workers*each || f.Doing != "" {
		t.Errorf("got %+v", f)
	}
}

func BenchmarkParallel(b *testing.B) {
	var r stats.Registry
	c := r.Counter("c", "")
	h := r.Histogram("h", "", stats.DurationBounds)
	q := r.Queue("q", "", 8)
	w := q.Work("Read")
	for name, f := range map[string]func(){
		"counter":   c.Inc,
		"histogram": func() { h.Observe(0.003) },
		"queue":     func() { q.Enter(1); w.End(w.Begin(time.Microsecond), 1) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					f()
				}
			})
		})
	}
}
