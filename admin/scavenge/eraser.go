package scavenge

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/stats"
)

// Times that the eraser takes.
const (
	erasePatience = 45 * time.Second // for a try
	erasePace     = 10 * time.Second // between tries
)

// eraser has the Raft log forget what was removed, and tries again if that fails:
// the run that asked need not wait for a cluster without a leader.
type eraser struct {
	erase  func(ctx context.Context, position int64) error
	logger hclog.Logger
	metric *stats.Gauge // 1 while something is left to erase

	mu   sync.Mutex // guards left
	left int64      // up to where is still to be erased in the background, 0: nothing is
}

// do erases once; if that fails it goes on in the background until that ends.
func (e *eraser) do(ctx, background context.Context, owned *sync.WaitGroup, position int64) {
	err := e.once(ctx, position)
	if err == nil {
		return
	}
	e.logger.Warn("the Raft log may still hold what was removed, its compaction is tried again", "error", err)
	e.mu.Lock()
	defer e.mu.Unlock()
	trying := e.left > 0
	e.left = max(e.left, position)
	e.metric.Set(1)
	if !trying {
		owned.Go(func() { e.retry(background) })
	}
}

// retry erases up to the last position that was asked for.
func (e *eraser) retry(ctx context.Context) {
	ticker := time.NewTicker(erasePace)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		e.mu.Lock()
		position := e.left
		e.mu.Unlock()
		if e.once(ctx, position) == nil && e.settle(position) {
			e.logger.Info("the Raft log was compacted: what was removed is gone from it too")
			return
		}
	}
}

// settle notes what was erased, and reports whether nothing is left.
func (e *eraser) settle(position int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left > position {
		return false
	}
	e.left = 0
	e.metric.Set(0)
	return true
}

func (e *eraser) once(ctx context.Context, position int64) error {
	ctx, cancel := context.WithTimeout(ctx, erasePatience)
	defer cancel()
	return e.erase(ctx, position)
}
