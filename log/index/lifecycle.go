package index

import (
	"context"
	"sync"

	"github.com/annalsdb/annals/event"
)

// lifecycle says whether an index may still be changed, and ends what changes it. A failure or a
// close is for good: no work begins after it, and all work is over when close returns. The owner
// learns of the first failure, unless the index was closed before. Readers do not ask.
type lifecycle struct {
	readOnly bool
	onFatal  func(error)

	// mu guards the fields below, and those of Index that say so. No input, output or callback runs
	// under it.
	mu      sync.Mutex
	changed *sync.Cond // a frozen table came or went, or the index failed or was closed
	failed  error      // what made the index unusable
	closed  bool

	ctx    context.Context // ends when the index is closed or has failed
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // background goroutines, and merges and scavenges that were asked for
}

// begin is called once, before all else.
func (l *lifecycle) begin(onFatal func(error)) {
	l.onFatal, l.changed = onFatal, sync.NewCond(&l.mu)
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
}

// close is called once.
func (l *lifecycle) close() {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	l.cancel(event.ErrClosed)
	l.wg.Wait()
}

// usable returns why the index cannot be changed any more. mu must be held.
func (l *lifecycle) usable() error {
	switch {
	case l.readOnly:
		return ErrReadOnly
	case l.failed != nil:
		return l.failed
	case l.closed:
		return event.ErrClosed
	}
	return nil
}

// fail makes the index unusable and tells the owner, once.
func (l *lifecycle) fail(err error) {
	l.mu.Lock()
	first := l.failed == nil && !l.closed
	if first {
		l.failed = err
		l.changed.Broadcast()
	}
	l.mu.Unlock()
	if first {
		l.cancel(err)
		l.onFatal(err)
	}
}

// work registers work that a caller asked for: Close waits until end is called. The context
// returned ends with the given one, and when the index is closed or fails.
func (l *lifecycle) work(ctx context.Context) (_ context.Context, end func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return nil, nil, err
	}
	l.wg.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
		l.wg.Done()
	}, nil
}
