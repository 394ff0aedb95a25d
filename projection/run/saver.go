package run

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// saver knows when a checkpoint is due, and of the one that is being written.
type saver struct {
	handled   int64 // events, since the last checkpoint
	unhandled int64 // bytes of the log, since the last event or checkpoint
	passed    int64 // bytes of the log, up to that
	handledAt int64 // the count of processed events when passed was set
	savedAt   time.Time

	saving atomic.Bool   // a checkpoint is being written, in a goroutine of its own
	saved  chan struct{} // closed when it is, or failed says why it is not; nil: there was none
	failed error
}

// due says that as much was passed since the last checkpoint that another is due.
func (s *saver) due(o *Options) bool {
	return (s.handled >= o.Config.CheckpointHandledThreshold || s.unhandled >= o.Config.CheckpointUnhandledBytesThreshold) && o.writesCheckpoints()
}

// may says that a checkpoint that is due can be begun, or that it must be waited for as
// the cache is full.
func (s *saver) may(o *Options, now time.Time, full func() bool) bool {
	if s.saving.Load() {
		return full()
	}
	return o.checkpointAfter() <= 0 || now.Sub(s.savedAt) >= o.checkpointAfter()
}

// passedOver takes how many bytes of the log were read so far, and events processed.
func (s *saver) passedOver(passed, processed int64) {
	if s.handledAt != processed {
		s.handledAt, s.passed = processed, passed
	}
	s.unhandled = passed - s.passed
}

// restart starts to count from 0: a checkpoint is taken.
func (s *saver) restart(passed, processed int64, now time.Time) {
	s.handled, s.unhandled, s.passed, s.handledAt, s.savedAt = 0, 0, passed, processed, now
}

// begin saves a checkpoint in a goroutine. The one before is saved.
func (s *saver) begin(work *sync.WaitGroup, save func() error) {
	s.saving.Store(true)
	saved := make(chan struct{})
	s.saved = saved
	work.Go(func() {
		defer close(saved)
		s.failed = save()
		s.saving.Store(false)
	})
}

// settled waits for a checkpoint that is being written, until ctx ends.
func (s *saver) settled(ctx context.Context) error {
	if s.saved == nil {
		return nil
	}
	select {
	case <-s.saved:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// wait waits for a checkpoint that is being written, and says why it was not.
func (s *saver) wait() error {
	if s.saved != nil {
		<-s.saved
	}
	return s.failed
}
