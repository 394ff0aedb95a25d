// Package chunklock is the lock that jobs share which rewrite the chunk files of
// a node: only one of them works at a time.
package chunklock

import (
	"sync"

	"github.com/annalsdb/annals/event"
)

// Lock is held by the one job that may switch chunk files. The zero value is free.
type Lock struct {
	mu     sync.Mutex // guards holder
	holder *Hold
}

// Hold is one job's hold on a Lock.
type Hold struct{ lock *Lock }

// TryLock takes the lock, or fails at once with event.ErrChunksLocked.
func (l *Lock) TryLock() (*Hold, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder != nil {
		return nil, event.ErrChunksLocked
	}
	l.holder = &Hold{lock: l}
	return l.holder, nil
}

// Unlock lets go of the lock. It is idempotent.
func (h *Hold) Unlock() {
	h.lock.mu.Lock()
	defer h.lock.mu.Unlock()
	if h.lock.holder == h {
		h.lock.holder = nil
	}
}
