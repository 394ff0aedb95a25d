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
	once sync.Once
	full chan struct{} // has room for one; full: a job has the lock
}

func (l *Lock) taken() chan struct{} {
	l.once.Do(func() { l.full = make(chan struct{}, 1) })
	return l.full
}

// Hold is one job's hold on a Lock.
type Hold struct {
	Unlock func() // releases the lock; it is idempotent
}

func newHold(taken chan struct{}) *Hold { return &Hold{sync.OnceFunc(func() { <-taken })} }

// TryLock takes the lock, or fails at once with event.ErrChunksLocked.
func (l *Lock) TryLock() (*Hold, error) {
	select {
	case l.taken() <- struct{}{}:
		return newHold(l.taken()), nil
	default:
		return nil, event.ErrChunksLocked
	}
}

// Lock takes the lock as soon as it is free. To make it so is the caller's
// business: jobs may take hours.
func (l *Lock) Lock(ctx context.Context) (*Hold, error) {
	select {
	case l.taken() <- struct{}{}:
		return newHold(l.taken()), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
