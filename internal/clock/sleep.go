// Package clock waits: for a time, between tries, and until a deadline.
package clock

import (
	"context"
	"time"
)

// Sleep waits for a time. If the context ends first it returns why.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Pauses are waits between tries, which double.
type Pauses struct {
	Least, Most time.Duration
	Failures    uint // so far
}

// Wait returns false when the context ends first.
func (p *Pauses) Wait(ctx context.Context) bool {
	d := min(p.Most, p.Least<<min(p.Failures, 10))
	p.Failures++
	return Sleep(ctx, d) == nil
}
