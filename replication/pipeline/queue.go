package pipeline

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/stats"
)

// States of a request. Who moves it to abandoned or answered decides who
// recycles it: the pipeline an abandoned one, the caller an answered one.
const (
	queued    uint32 = iota // nothing was decided; may be withdrawn
	decided                 // in the group being built or in flight
	abandoned               // the caller has gone
	answered                // the caller owns it again
)

// request is one caller's write, or its wish to have leadership confirmed. The
// objects are pooled, with the channel that wakes the caller.
type request struct {
	write *event.Write // nil: a confirmation
	bytes int64
	state atomic.Uint32
	ctx   context.Context // of the caller
	place int             // in queue.callers
	// capacity 1: the caller is to look at the state and its context. It may find nothing new
	look chan struct{}
	// what is signalled: look, or what the caller looks at for several requests
	wake    chan<- struct{}
	written event.Written
	err     error
	wrote   bool // the entry carries bytes of this request
}

// queue hands requests to the pipeline's goroutine. It bounds all requests that are not yet
// answered, by count and by bytes: those that wait, are decided, or are in flight.
type queue struct {
	maxCount int
	maxBytes int64
	wake     chan struct{} // capacity 1; signalled when the first request begins to wait
	pool     sync.Pool

	lengths *stats.Queue // counts every request from when it came until its caller has its answer

	asked chan struct{} // capacity 1; signalled when there is a first caller

	mu      sync.Mutex // guards what follows
	waiting []*request
	callers []*request // that are waited for
	since   time.Time  // when the first of them came
	count   int
	bytes   int64
	closed  error
}

func newQueue(maxCount int, maxBytes int64, lengths *stats.Queue) *queue {
	return &queue{
		maxCount: maxCount, maxBytes: maxBytes, wake: make(chan struct{}, 1), asked: make(chan struct{}, 1), lengths: lengths,
		pool: sync.Pool{New: func() any { return &request{look: make(chan struct{}, 1)} }},
	}
}

// fresh returns a request of so many bytes.
func (q *queue) fresh(ctx context.Context, w *event.Write, bytes int) *request {
	r := q.pool.Get().(*request)
	r.ctx, r.write, r.bytes, r.wake = ctx, w, int64(bytes), r.look
	r.state.Store(queued)
	return r
}

func (q *queue) recycle(r *request) {
	r.ctx, r.write, r.wake, r.written, r.err, r.wrote = nil, nil, nil, event.Written{}, nil, false
	q.pool.Put(r)
}

// push adds a request, or fails at once when there is no room.
func (q *queue) push(r *request) error {
	q.mu.Lock()
	if q.closed != nil {
		defer q.mu.Unlock()
		return q.closed
	}
	if q.count >= q.maxCount || q.bytes+r.bytes > q.maxBytes && q.count > 0 {
		q.mu.Unlock()
		return event.ErrBusy
	}
	q.waiting = append(q.waiting, r)
	r.place = len(q.callers)
	q.callers = append(q.callers, r)
	q.count++
	q.bytes += r.bytes
	first := len(q.waiting) == 1
	if first {
		q.since = time.Now()
	}
	alone := r.place == 0
	q.mu.Unlock()
	q.lengths.Enter(1)
	if first {
		bell.Ring(q.wake)
	}
	if alone {
		bell.Ring(q.asked)
	}
	return nil
}

// take exchanges the waiting requests for an empty slice, and says since when the first of them
// waits.
func (q *queue) take(empty []*request) (taken []*request, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken = q.waiting
	q.waiting = empty
	return taken, q.since
}

// release makes room after requests were answered or dropped.
func (q *queue) release(count int, bytes int64) {
	q.mu.Lock()
	q.count -= count
	q.bytes -= bytes
	q.mu.Unlock()
}

// close makes further pushes fail with the error; the first one stays.
func (q *queue) close(err error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = err
	}
	q.mu.Unlock()
}

func (q *queue) depth() (count int, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count, q.bytes
}

// abandon is called when the caller will not wait any longer. It reports false when the answer has
// been given meanwhile. A request that is still queued will not be decided; one that is decided
// continues without its caller.
func (q *queue) abandon(r *request) bool {
	for {
		switch r.state.Load() {
		case answered:
			return false
		case decided:
			if r.state.CompareAndSwap(decided, abandoned) {
				return true
			}
		case queued:
			if q.withdraw(r) {
				return true
			}
		}
	}
}

// withdraw holds the lock over both steps: once the state is abandoned, the
// pipeline may recycle a request it has taken already, and without the lock a
// new caller could have put the same object into the queue again.
func (q *queue) withdraw(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !r.state.CompareAndSwap(queued, abandoned) {
		return false
	}
	if at := slices.Index(q.waiting, r); at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
		q.count--
		q.bytes -= r.bytes
		q.lengths.Leave(1)
		q.recycle(r)
	}
	return true
}

// wait blocks until the request is answered, and recycles it. It reports false when its context
// ended first.
func (q *queue) wait(r *request) (event.Written, error, bool) {
	for range r.look {
		if r.state.Load() == answered || r.ctx.Err() != nil {
			break
		}
	}
	return q.collect(r)
}

// collect ends a caller's wait with the answer, and recycles the request. It reports false when
// there is none.
func (q *queue) collect(r *request) (event.Written, error, bool) {
	q.leave(r)
	if r.state.Load() != answered && q.abandon(r) {
		return event.Written{}, nil, false
	}
	written, err := r.written, r.err
	q.recycle(r)
	return written, err, true
}

// leave takes a caller off the list.
func (q *queue) leave(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	last := len(q.callers) - 1
	moved := q.callers[last]
	q.callers[r.place], q.callers[last] = moved, nil
	moved.place = r.place
	q.callers = q.callers[:last]
}

// contextPace is how long a caller may wait after its context has ended.
const contextPace = 50 * time.Millisecond

// watchContexts wakes callers whose context is over, until no caller waits any more and all is
// done. A timer for each write, and a goroutine that wakes for one of two reasons, would take 6 %
// of the processor time of a write.
func (q *queue) watchContexts(done <-chan struct{}) {
	pace := time.NewTimer(0)
	defer pace.Stop()
	for {
		select {
		case <-q.asked:
		case <-done:
			return
		}
		for q.lookAtContexts() {
			pace.Reset(contextPace)
			select {
			case <-pace.C:
			case <-done:
				return
			}
		}
	}
}

// lookAtContexts reports whether there are callers.
func (q *queue) lookAtContexts() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.callers {
		if r.ctx.Err() != nil {
			bell.Ring(r.wake)
		}
	}
	return len(q.callers) > 0
}
