// Package chunklock is the lock that jobs share which rewrite the chunk files of
// a node: only one of them works at a time.
package chunklock

import (
	"context"
	"sync"

	"github.com/annalsdb/annals/event"
)

// Lock is held by the one job that may switch chunk files. The zero value is free.
type Lock struct {
	mu     sync.Mutex // guards holder
	holder *Hold
}

// Hold is one job's hold on a Lock.
type Hold struct {
	lock *Lock
	over chan struct{} // closed when it ends
}

// TryLock takes the lock, or fails at once with event.ErrChunksLocked.
func (l *Lock) TryLock() (*Hold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != nil {
		return nil, event.ErrChunksLocked
	}
	l.holder = &Hold{lock: l, over: make(chan struct{})}
	return l.holder, nil
}

// Lock takes the lock as soon as it is free. To make it so is the caller's
// business: jobs may take hours.
func (l *Lock) Lock(ctx context.Context) (*Hold, error) {
	for {
		hold, err := l.TryLock()
		if err == nil {
			return hold, nil
		}
		select {
		case <-l.over():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// over returns a channel that is closed when the present hold ends.
func (l *Lock) over() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != nil {
		return l.holder.over
	}
	free := make(chan struct{})
	close(free)
	return free
}

// Unlock lets go of the lock. It is idempotent.
func (h *Hold) Unlock() {
	h.lock.mu.Lock()
	defer h.lock.mu.Unlock()
	if h.lock.holder == h {
		h.lock.holder = nil
		close(h.over)
	}
}
