// Package milestone wakes goroutines that wait for something that moves forward, each when it is
// as far as that one waits for. The others sleep on, however often it moves.
package milestone

import (
	"container/heap"
	"context"
	"sync"
)

// Waiter is those who wait for one position.
type Waiter struct {
	position int64
	place    int // in the heap; -1: they were woken, or removed
	count    int

	Woken chan struct{} // closed when the position was passed
}

// List is all who wait, guarded by its owner. The zero value is an empty one.
type List struct {
	waiters byPosition
	at      map[int64]*Waiter // the same, by position: most wait for the same one, the next
}

// Add has one more woken when the end is above a position. It takes as long as the logarithm of how
// many positions there are.
func (l *List) Add(position int64) *Waiter {
	w := l.at[position]
	if w == nil {
		w = &Waiter{position: position, Woken: make(chan struct{})}
		if l.at == nil {
			l.at = map[int64]*Waiter{}
		}
		l.at[position] = w
		heap.Push(&l.waiters, w)
	}
	w.count++
	return w
}

// Remove takes out one that Add put in, if it was not woken.
func (l *List) Remove(w *Waiter) {
	if w.count--; w.place >= 0 && w.count == 0 {
		heap.Remove(&l.waiters, w.place)
		delete(l.at, w.position)
	}
}

// Pass wakes those whose position is below an end, and looks at no others.
func (l *List) Pass(end int64) {
	for len(l.waiters) > 0 && l.waiters[0].position < end {
		w := heap.Pop(&l.waiters).(*Waiter)
		delete(l.at, w.position)
		close(w.Woken)
	}
}

// Line is something that moves, and those who wait for it. The zero value stands at 0.
type Line struct {
	mu      sync.Mutex // guards the fields below
	end     int64
	waiting List
}

// Move has the line end somewhere else, and wakes those whose position it has passed.
func (l *Line) Move(end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = end
	l.waiting.Pass(end)
}

// End is where the line ends.
func (l *Line) End() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Wait returns nil when the line has passed a position, or the error of the context. look, which
// may be nil, is called once the line would wake the caller.
func (l *Line) Wait(ctx context.Context, position int64, look func()) error {
	l.mu.Lock()
	if l.end > position {
		l.mu.Unlock()
		return nil
	}
	w := l.waiting.Add(position)
	l.mu.Unlock()
	if look != nil {
		look()
	}
	select {
	case <-w.Woken:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.place < 0 {
		return nil // Both at once.
	}
	l.waiting.Remove(w)
	return context.Cause(ctx)
}

// byPosition is a heap.
type byPosition []*Waiter

func (h byPosition) Len() int           { return len(h) }
func (h byPosition) Less(i, j int) bool { return h[i].position < h[j].position }

func (h byPosition) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *byPosition) Push(x any) {
	w := x.(*Waiter)
	w.place = len(*h)
	*h = append(*h, w)
}

func (h *byPosition) Pop() any {
	old := *h
	n := len(old) - 1
	w := old[n]
	w.place, old[n] = -1, nil
	*h = old[:n]
	return w
}
