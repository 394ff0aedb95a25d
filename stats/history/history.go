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
