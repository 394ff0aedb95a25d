package replication

import (
	"context"
	"time"
)

// A leader that falls silent keeps its connections: a wait for its answer
// ends once another node, or none, has led for so long.
const (
	LeaderPace = 250 * time.Millisecond
	grace      = 4 // times the pace
)

// While returns a context that ends when what holds, looked at so often, has not held for a
// while, and a function that must be called at the end.
func While(ctx context.Context, pace time.Duration, holds func() bool) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		for away := 0; away < grace; {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			away++
			if holds() {
				away = 0
			}
		}
	}()
	return ctx, func() { cancel(); <-done }
}
