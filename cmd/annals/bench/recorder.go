package bench

import (
	"sync"
	"time"
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

// tally is what was counted of one part.
type tally struct {
	events, bytes int64
	latency       histogram
}

// recorder holds what one worker did since it was last drained.
type recorder struct {
	mu     sync.Mutex // the worker adds, the session drains
	parts  []tally
	errors map[string]*errorCount
}

func newRecorder(parts int) *recorder {
	return &recorder{parts: make([]tally, parts), errors: map[string]*errorCount{}}
}

func (r *recorder) add(out outcome, took time.Duration) {
	r.mu.Lock()
	t := &r.parts[out.part]
	t.events += out.events
	t.bytes += out.bytes
	t.latency.record(took)
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
	for i := range r.parts {
		from, t := &r.parts[i], &to.parts[i]
		t.events += from.events
		t.bytes += from.bytes
		from.events, from.bytes = 0, 0
		from.latency.drainInto(&t.latency)
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

// first returns the first part alone, as a copy.
func (r *recorder) first() *tally { return (&recorder{parts: r.parts[:1]}).whole() }

// whole returns all parts added together, as a copy.
func (r *recorder) whole() *tally {
	sum := new(tally)
	for i := range r.parts {
		part := r.parts[i] // a copy, because draining empties it
		sum.events += part.events
		sum.bytes += part.bytes
		part.latency.drainInto(&sum.latency)
	}
	return sum
}
