package bench

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// outcome is one operation that succeeded.
type outcome struct {
	part   int           // which part of a mixed workload, 0 otherwise
	events int64         // events written or read
	bytes  int64         // payload
	rest   time.Duration // how long the worker waits before its next operation
	took   time.Duration // what counts as its time; 0: from its begin to its end
}

// errorCount is how often one kind of error came up.
type errorCount struct {
	Count   int64  `json:"count"`
	Example string `json:"example"`
}

const (
	// Two digits are what a histogram tells apart: all durations of one of its buckets are within
	// 0.8 % of each other.
	latencyDigits = 2
	// Longer durations count as this one in a histogram.
	longestLatency = 18 * time.Minute
)

// tally holds the counts of one part.
type tally struct {
	events, bytes int64
	latency       *hdrhistogram.Histogram // nanoseconds
	sum, max      time.Duration           // of all latencies, exact
}

func newTally() *tally {
	return &tally{latency: hdrhistogram.New(1, int64(longestLatency), latencyDigits)}
}

func (t *tally) add(out outcome, took time.Duration) {
	took = max(took, 0) // A clock that was set back.
	t.events += out.events
	t.bytes += out.bytes
	_ = t.latency.RecordValue(int64(min(took, longestLatency))) // It fails beyond its bounds.
	t.sum += took
	t.max = max(t.max, took)
}

// merge adds what another tally has counted.
func (t *tally) merge(from *tally) {
	t.events += from.events
	t.bytes += from.bytes
	t.latency.Merge(from.latency)
	t.sum += from.sum
	t.max = max(t.max, from.max)
}

func (t *tally) reset() {
	t.latency.Reset()
	*t = tally{latency: t.latency}
}

// count returns how many operations succeeded.
func (t *tally) count() int64 { return t.latency.TotalCount() }

// quantile returns the duration that the share q of all latencies does not exceed, zero when there
// are none.
func (t *tally) quantile(q float64) time.Duration {
	return min(time.Duration(t.latency.ValueAtQuantile(100*q)), t.max)
}

func (t *tally) mean() time.Duration { return t.sum / time.Duration(max(t.count(), 1)) }

// recorder holds what one worker did since it was last drained.
type recorder struct {
	mu     sync.Mutex // the worker adds, the session drains
	parts  []*tally
	errors map[string]*errorCount
}

func newRecorder(parts int) *recorder {
	r := &recorder{errors: map[string]*errorCount{}}
	for range parts {
		r.parts = append(r.parts, newTally())
	}
	return r
}

func (r *recorder) add(out outcome, took time.Duration) {
	r.mu.Lock()
	r.parts[out.part].add(out, took)
	r.mu.Unlock()
}

func (r *recorder) fail(err error) {
	kind := kindOf(err)
	r.mu.Lock()
	countError(r.errors, kind, 1, err.Error())
	r.mu.Unlock()
}

func countError(errors map[string]*errorCount, kind string, n int64, example string) {
	e := errors[kind]
	if e == nil {
		e = &errorCount{Example: example}
		errors[kind] = e
	}
	e.Count += n
}

// drainInto moves everything to another recorder, which no other goroutine may use meanwhile.
func (r *recorder) drainInto(to *recorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, t := range r.parts {
		to.parts[i].merge(t)
		t.reset()
	}
	for kind, e := range r.errors {
		countError(to.errors, kind, e.Count, e.Example)
	}
	clear(r.errors)
}

// errorTotal returns how many errors were counted, of all kinds.
func (r *recorder) errorTotal() int64 {
	var n int64
	for _, e := range r.errors {
		n += e.Count
	}
	return n
}

// whole returns the first parts added together, as a copy.
func (r *recorder) whole(parts int) *tally {
	sum := newTally()
	for _, t := range r.parts[:parts] {
		sum.merge(t)
	}
	return sum
}
