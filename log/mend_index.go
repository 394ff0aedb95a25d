package eventlog

import (
	"context"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/index"
)

// How long a damaged index waits for being built again, which reads the whole log.
const (
	mendIndexAfter = time.Second // a leader hands over first
	mendIndexAgain = time.Minute // from attempt to attempt: what stood in the way may be mended
)

// mendIndex rebuilds the index whenever a table is found to be damaged. The node keeps serving.
func (h *Health) mendIndex(ctx context.Context) {
	var tried time.Time
	for {
		for h.index.Damage() == nil {
			select {
			case <-ctx.Done():
				return
			case <-h.damages.mend:
			}
		}
		wait := mendIndexAfter
		if !tried.IsZero() {
			wait = max(wait, mendIndexAgain-time.Since(tried))
		}
		if clock.Sleep(ctx, wait) != nil {
			return
		}
		err := h.rebuildIndex(ctx)
		tried = time.Now()
		if err != nil && ctx.Err() == nil {
			h.logger.Error("the damaged index could not be built again yet", logkey.Error, err)
		}
	}
}

func (h *Health) rebuildIndex(ctx context.Context) error {
	h.bringing.Lock()
	defer h.bringing.Unlock()
	return index.Rebuild(ctx, h.index, func(upTo int64, add func([]index.Entry) error) error {
		// Entries that scavenges took out come back with the records that are still there. A run
		// that has its state open loses it, and the next one begins from the start.
		if err := h.removeScavengeState(); err != nil {
			return err
		}
		return h.entries(0, upTo, func(batch []index.Entry, _ int64, _ event.Chain) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return add(batch)
		})
	})
}
