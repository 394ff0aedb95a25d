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
	// of histograms of which a quantile is wanted: the values in each bucket
	buckets [len(table)]buckets
}

// buckets are those of a histogram, or of several with the same bounds.
type buckets struct {
	bounds []float64
	counts []uint64
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

// read reads the metrics. Those of one name and several labels are summed up, unless the largest is
// wanted.
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
				if table[i].quantile > 0 {
					r.buckets[i].add(s.Histogram)
				}
			}
			switch {
			case math.IsNaN(r.values[i]):
				r.values[i] = v
			case table[i].how == largest:
				r.values[i] = max(r.values[i], v)
			default:
				r.values[i] += v
			}
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
	largest                 // as it is, the largest of all labels
	milliseconds            // as it is, in seconds
	rate                    // by how much it grew in a second, of a histogram its count
	// of what was added to a histogram since the last sample, in milliseconds
	mean
	among // a quantile of these, in milliseconds
)

// one is a statistic of the history. Its name is part of the wire: do not change.
type one struct {
	name         string
	metric       string
	label, value string // the metric has the label; empty: any
	how          how
	quantile     float64 // of among
}

// table are the statistics. docs/watching.md says what each is.
var table = [...]one{
	{"appendsPerSecond", "annals_replication_requests_total", "", "", rate, 0},
	{"commitMilliseconds", "annals_replication_commit_seconds", "", "", mean, 0},
	{"appendsWaiting", "annals_replication_queue_requests", "", "", gauge, 0},
	{"syncMilliseconds", "eventstore_writer_flush_duration_max_seconds", "", "", milliseconds, 0},
	{"eventsWrittenPerSecond", "eventstore_io_events", "activity", "written", rate, 0},
	{"bytesWrittenPerSecond", "eventstore_io_bytes", "activity", "written", rate, 0},
	{"eventsReadPerSecond", "eventstore_io_events", "activity", "read", rate, 0},
	{"bytesReadPerSecond", "eventstore_io_bytes", "activity", "read", rate, 0},
	{"requestsPerSecond", "eventstore_queue_processing_duration_seconds", "message_type", "HttpRequest", rate, 0},
	{"requestMilliseconds", "eventstore_queue_processing_duration_seconds", "message_type", "HttpRequest", mean, 0},
	{"requestsUnderWay", "annals_queue_length", "queue", "MainQueue", gauge, 0},
	{"connections", "eventstore_kestrel_connections", "", "", gauge, 0},
	{"cpuPercent", "eventstore_proc_cpu", "", "", gauge, 0},
	{"machineLoad", "eventstore_sys_load_avg", "period", "1m", gauge, 0},
	{"memoryBytes", "eventstore_proc_mem_bytes", "kind", "working-set", gauge, 0},
	{"heapBytes", "eventstore_gc_heap_size_bytes", "", "", gauge, 0},
	{"machineMemoryFreeBytes", "eventstore_sys_mem_bytes", "kind", "free", gauge, 0},
	{"diskUsedBytes", "eventstore_sys_disk_bytes", "kind", "used", gauge, 0},
	{"diskTotalBytes", "eventstore_sys_disk_bytes", "kind", "total", gauge, 0},
	{"diskBytesWrittenPerSecond", "eventstore_disk_io_bytes", "activity", "written", rate, 0},
	{"commitP50Milliseconds", "annals_replication_commit_seconds", "", "", among, 0.5},
	{"commitP99Milliseconds", "annals_replication_commit_seconds", "", "", among, 0.99},
	{"replicationLagBytes", "annals_raft_peer_lag_bytes", "", "", largest, 0},
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
	case among:
		if before.at.IsZero() {
			return math.NaN()
		}
		return 1000 * now.buckets[i].quantile(&before.buckets[i], o.quantile)
	}
	return v
}

// add counts a histogram in.
func (b *buckets) add(d *stats.Distribution) {
	if b.counts == nil {
		b.bounds, b.counts = d.Bounds, make([]uint64, len(d.Counts))
	}
	for i, n := range d.Counts {
		b.counts[i] += n
	}
}

// quantile is one of the values that were added since before, as near as their bucket tells; NaN if
// there are none.
func (b *buckets) quantile(before *buckets, q float64) float64 {
	added, all := make([]float64, len(b.counts)), 0.0
	for i, n := range b.counts {
		if before.counts != nil {
			n -= min(n, before.counts[i])
		}
		added[i] = float64(n)
		all += added[i]
	}
	below := 0.0
	for i, n := range added {
		if n == 0 || below+n < q*all {
			below += n
			continue
		}
		if i == len(b.bounds) {
			return b.bounds[i-1]
		}
		low := 0.0
		if i > 0 {
			low = b.bounds[i-1]
		}
		return low + (b.bounds[i]-low)*(q*all-below)/n
	}
	return math.NaN()
}
