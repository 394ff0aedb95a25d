package record

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Queue holds items that wait to be written. One goroutine takes them out and writes them.
type Queue[T any] struct {
	Writer
	Context context.Context // of all requests to the store
	cancel  context.CancelFunc
	// has one element for each item, and room for as many as there may be; nil: any number
	room chan struct{}
	wake chan struct{} // has room for one: something was put into an empty queue
	done chan struct{} // closed when the goroutine has ended

	mu    sync.Mutex // guards the fields below, and the closing of closing
	items []T
}

// New returns a Queue for at most most items; 0: any number. It must be started and closed.
func New[T any](o Options, most int) *Queue[T] {
	o.EnsureDefaults()
	q := &Queue[T]{
		Writer: Writer{opts: o, closing: make(chan struct{})}, wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if most > 0 {
		q.room = make(chan struct{}, most)
	}
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
	if q.room != nil {
		select {
		case q.room <- struct{}{}:
		default:
			return false
		}
	}
	return q.put(item)
}

// PutWait is Put that waits for room, unless the queue is closed.
func (q *Queue[T]) PutWait(item T) bool {
	if q.room != nil {
		select {
		case q.room <- struct{}{}:
		case <-q.closing:
			return false
		}
	}
	return q.put(item)
}

// put puts an item into the queue, in which it has room.
func (q *Queue[T]) put(item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Closing() { // Nothing is put in any more, so that the room does not matter.
		return false
	}
	q.items = append(q.items, item)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// Next takes out the oldest items, most of them at most, and waits for one if there
// is none. There is none any more when the Queue was closed.
func (q *Queue[T]) Next(most int) []T {
	for {
		closing := q.Closing() // Before it looks: nothing is put in after that.
		if items := q.take(most); len(items) > 0 || closing {
			return items
		}
		select {
		case <-q.wake:
		case <-q.closing:
		}
	}
}

func (q *Queue[T]) take(most int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(most, len(q.items))
	items := slices.Clone(q.items[:n])
	clear(q.items[:n])
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil
	}
	for range min(n, cap(q.room)) {
		<-q.room // Each item has its element: this does not wait.
	}
	return items
}

// Len is how many items wait.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

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
	q.mu.Lock()
	if !q.Closing() {
		close(q.closing)
	}
	q.mu.Unlock()
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
