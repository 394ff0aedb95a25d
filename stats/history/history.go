// Package history keeps in memory what the main statistics of a node were in the last hour, so that
// a chart of them is not empty when it is opened.
package history

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/annalsdb/annals/stats"
)

const (
	// Step is the time between two samples.
	Step = 10 * time.Second
	// Span is how long a sample is kept.
	Span  = time.Hour
	slots = int64(Span / Step)
)

// History has a ring of samples. A slot of it is for the ten seconds whose number, counted
// from 1970 on, is the slot's modulo the size of the ring.
type History struct {
	registry *stats.Registry
	now      func() time.Time
	wanted   map[string]bool // names of metrics

	mu     sync.Mutex // guards what follows
	first  int64      // number of the first sample; 0: none yet
	last   int64      // and of the last one
	at     [slots]int64
	values [slots][len(table)]float64 // NaN: not known
	before reading                    // of the last sample
}

// reading is what the metrics were at one moment.
type reading struct {
	at     time.Time // zero: there is none
	values [len(table)]float64
	counts [len(table)]float64 // of histograms
}

// New returns a history of the metrics in a registry. Now is the time; nil: the clock's.
func New(r *stats.Registry, now func() time.Time) *History {
	if now == nil {
		now = time.Now
	}
	h := &History{registry: r, now: now, wanted: make(map[string]bool)}
	for i := range table {
		h.wanted[table[i].metric] = true
	}
	return h
}

// Run takes samples until ctx ends.
func (h *History) Run(ctx context.Context) {
	for {
		h.sample()
		now := h.now()
		timer := time.NewTimer(now.Truncate(Step).Add(Step).Sub(now))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// read reads the metrics. Those of one name and several labels are summed up.
func (h *History) read() reading {
	r := reading{at: h.now()}
	for i := range table {
		r.values[i] = math.NaN()
	}
	h.registry.Select(func(name string) bool { return h.wanted[name] }, func(s stats.Sample) {
		for i := range table {
			if !table[i].is(&s) {
				continue
			}
			v := s.Value
			if s.Histogram != nil {
				v = s.Histogram.Sum
				r.counts[i] += float64(s.Histogram.Count)
			}
			if math.IsNaN(r.values[i]) {
				r.values[i] = 0
			}
			r.values[i] += v
		}
	})
	return r
}

// sample takes a sample, unless the clock went back to one that was taken.
func (h *History) sample() {
	r := h.read()
	h.mu.Lock()
	defer h.mu.Unlock()
	number := r.at.Unix() / int64(Step/time.Second)
	if number <= h.last {
		return
	}
	if h.first == 0 {
		h.first = number
	}
	h.last = number
	slot := number % slots
	h.at[slot] = number
	for i := range table {
		h.values[slot][i] = table[i].worth(&r, &h.before, i)
	}
	h.before = r
}

// Series are samples at one distance.
type Series struct {
	From   time.Time // of the first
	Names  []string
	Values [][]float64 // by name; NaN: not known
}

// Last returns the samples of the time before now.
func (h *History) Last(span time.Duration) Series {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := max(1, min(slots, int64(span/Step)))
	from := max(h.first, h.last-n+1)
	s := Series{From: time.Unix(from*int64(Step/time.Second), 0).UTC()}
	for i := range table {
		s.Names = append(s.Names, table[i].name)
		values := []float64{}
		for number := from; number <= h.last && h.first > 0; number++ {
			v := math.NaN()
			if slot := number % slots; h.at[slot] == number {
				v = h.values[slot][i]
			}
			values = append(values, v)
		}
		s.Values = append(s.Values, values)
	}
	return s
}

// How a value comes from a metric.
type how uint8

const (
	gauge        how = iota // as it is
	milliseconds            // as it is, in seconds
	rate                    // by how much it grew in a second, of a histogram its count
	// of what was added to a histogram since the last sample, in milliseconds
	mean
)

// one is a statistic of the history. Its name is part of the wire: do not change.
type one struct {
	name         string
	metric       string
	label, value string // the metric has the label; empty: any
	how          how
}

// table are the statistics. docs/watching.md says what each is.
var table = [...]one{
	{"appendsPerSecond", "annals_replication_requests_total", "", "", rate},
	{"commitMilliseconds", "annals_replication_commit_seconds", "", "", mean},
	{"appendsWaiting", "annals_replication_queue_requests", "", "", gauge},
	{"syncMilliseconds", "eventstore_writer_flush_duration_max_seconds", "", "", milliseconds},
	{"eventsWrittenPerSecond", "eventstore_io_events", "activity", "written", rate},
	{"bytesWrittenPerSecond", "eventstore_io_bytes", "activity", "written", rate},
	{"eventsReadPerSecond", "eventstore_io_events", "activity", "read", rate},
	{"bytesReadPerSecond", "eventstore_io_bytes", "activity", "read", rate},
	{"requestsPerSecond", "eventstore_queue_processing_duration_seconds", "message_type", "HttpRequest", rate},
	{"requestMilliseconds", "eventstore_queue_processing_duration_seconds", "message_type", "HttpRequest", mean},
	{"requestsUnderWay", "annals_queue_length", "queue", "MainQueue", gauge},
	{"connections", "eventstore_kestrel_connections", "", "", gauge},
	{"cpuPercent", "eventstore_proc_cpu", "", "", gauge},
	{"machineLoad", "eventstore_sys_load_avg", "period", "1m", gauge},
	{"memoryBytes", "eventstore_proc_mem_bytes", "kind", "working-set", gauge},
	{"heapBytes", "eventstore_gc_heap_size_bytes", "", "", gauge},
	{"machineMemoryFreeBytes", "eventstore_sys_mem_bytes", "kind", "free", gauge},
	{"diskUsedBytes", "eventstore_sys_disk_bytes", "kind", "used", gauge},
	{"diskTotalBytes", "eventstore_sys_disk_bytes", "kind", "total", gauge},
	{"diskBytesWrittenPerSecond", "eventstore_disk_io_bytes", "activity", "written", rate},
}

// is reports whether a metric counts for the statistic.
func (o *one) is(s *stats.Sample) bool {
	if s.Name != o.metric || o.label == "" {
		return s.Name == o.metric
	}
	for _, l := range s.Labels {
		if l.Name == o.label {
			return l.Value == o.value
		}
	}
	return false
}

// worth is the statistic, given what its metric, the i-th, was read as now and before.
func (o *one) worth(now, before *reading, i int) float64 {
	v := now.values[i]
	switch o.how {
	case milliseconds:
		return 1000 * v
	case rate:
		grown, seconds := v-before.values[i], now.at.Sub(before.at).Seconds()
		if now.counts[i] > 0 {
			grown = now.counts[i] - before.counts[i]
		}
		if before.at.IsZero() || seconds <= 0 || grown < 0 {
			return math.NaN()
		}
		return grown / seconds
	case mean:
		count := now.counts[i] - before.counts[i]
		if before.at.IsZero() || count <= 0 {
			return math.NaN() // Nothing was done.
		}
		return 1000 * (v - before.values[i]) / count
	}
	return v
}
