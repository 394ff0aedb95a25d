package scavenge

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/clock"
)

// leastPause is how long the run must owe before it pauses: short pauses would
// only spread the work without leaving the machine alone.
const leastPause = time.Second

// pacer keeps the share of time in which a run is active at about a percentage.
type pacer struct {
	percent int

	mu     sync.Mutex // guards the fields below
	since  time.Time  // the run's start
	paused time.Duration
}

// wait pauses if the run has been active for more than its share, and returns
// early with ctx's error.
func (p *pacer) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.percent >= 100 {
		return nil
	}
	p.mu.Lock()
	active := time.Since(p.since) - p.paused
	owed := active*time.Duration(100-p.percent)/time.Duration(p.percent) - p.paused
	p.mu.Unlock()
	if owed < leastPause {
		return nil
	}
	begun := time.Now()
	_ = clock.Sleep(ctx, owed) // How long it slept counts, and ctx says the rest.
	p.mu.Lock()
	p.paused += time.Since(begun)
	p.mu.Unlock()
	return ctx.Err()
}

// share is the share of time in which the run was active, for logs.
func (p *pacer) share() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := time.Since(p.since)
	if total <= 0 {
		return "100%"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(total-p.paused)/float64(total))
}
