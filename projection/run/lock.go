package run

import (
	"context"
	"sync/atomic"
)

// lock guards the data that the loop of a run works on. The loop holds it while it handles events,
// and lets others have it between two events when they ask for it. It is not a mutex since who
// waits for it may give up.
type lock struct {
	held  chan struct{}
	asked atomic.Int32 // so many wait for it besides the loop
}

// work is how the loop takes it: soon, as others hold it for a moment only.
func (l *lock) work() { l.held <- struct{}{} }

// ask is how all others take it.
func (l *lock) ask(ctx context.Context) error {
	l.asked.Add(1)
	defer l.asked.Add(-1)
	select {
	case l.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lock) release() { <-l.held }
