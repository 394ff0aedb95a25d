package record

import (
	"context"
	"sync"
	"time"
)

// Queue holds items that wait to be written. One goroutine takes them out and writes them.
type Queue[T any] struct {
	Writer
	Context context.Context // of all requests to the store
	cancel  context.CancelFunc
	items   chan T        // closed when nothing is put in any more
	done    chan struct{} // closed when the goroutine has ended

	// held for reading while an item is put in, and for writing while items is closed: that waits
	// for no room, as closing was closed before
	putting sync.RWMutex
	closed  sync.Once
}

// New returns a Queue for at most most items. It must be started and closed.
func New[T any](o Options, most int) *Queue[T] {
	o.EnsureDefaults()
	q := &Queue[T]{Writer: Writer{opts: o, closing: make(chan struct{})}, items: make(chan T, most), done: make(chan struct{})}
	q.Context, q.cancel = context.WithCancel(context.Background())
	return q
}

// Start runs work in a goroutine. work takes out and writes items until Next returns none.
func (q *Queue[T]) Start(work func(ctx context.Context)) {
	go func() {
		defer close(q.done)
		work(q.Context)
	}()
}

// Put puts an item into the queue, unless that is full or closed. It never waits.
func (q *Queue[T]) Put(item T) bool {
	q.putting.RLock()
	defer q.putting.RUnlock()
	if q.Closing() {
		return false
	}
	select {
	case q.items <- item:
		return true
	default:
		return false
	}
}

// PutWait is Put that waits for room, unless the queue is closed.
func (q *Queue[T]) PutWait(item T) bool {
	q.putting.RLock()
	defer q.putting.RUnlock()
	if q.Closing() {
		return false
	}
	select {
	case q.items <- item:
		return true
	case <-q.closing:
		return false
	}
}

// Next takes out the oldest items, most of them at most, and waits for one if there
// is none. There is none any more when the Queue was closed.
func (q *Queue[T]) Next(most int) (items []T) {
	for item := range q.items {
		if items = append(items, item); len(items) == most || len(q.items) == 0 {
			break
		}
	}
	return items
}

// Len is how many items wait.
func (q *Queue[T]) Len() int { return len(q.items) }

const (
	// flushTime is how long Close lets waiting items be written.
	flushTime = 3 * time.Second
	// stopTime is how long it then waits for a store whose context has ended.
	stopTime = time.Second
)

// Close lets waiting records be written for a few seconds, as long as the store takes them, and
// gives the rest up. It returns even if the store hangs. Records that are put into the queue later
// are left out.
func (q *Queue[T]) Close() {
	q.closed.Do(func() {
		close(q.closing)
		q.putting.Lock()
		defer q.putting.Unlock()
		close(q.items)
	})
	defer q.cancel()
	flush := time.AfterFunc(flushTime, q.cancel)
	defer flush.Stop()
	late := time.NewTimer(flushTime + stopTime)
	defer late.Stop()
	select {
	case <-q.done:
	case <-late.C:
		q.opts.Logger.Warn(q.opts.What + " is left to a write that does not return")
	}
}
