package grpcapi

import (
	"context"
	"sync"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/clock"
)

// forwards are writes that are done at the leader, each by a goroutine. Those to one stream
// go one after the other, as they were begun: on the way they could overtake each other.
type forwards struct {
	running sync.WaitGroup

	mu   sync.Mutex // guards the fields below
	last map[string]*forwarded
}

// forwarded is a write on its way.
type forwarded struct {
	done    chan struct{} // closed when the others stand
	written event.Written
	err     error
}

// Done leaves a write that it gives up to its goroutine, which ends with the context.
func (f *forwarded) Done(giveUp bool) (event.Written, error, bool) {
	select {
	case <-f.done:
		return f.written, f.err, true
	default:
		return event.Written{}, event.ErrWriteTimeout, giveUp
	}
}

// begin is Store.Begin for a write that another node decides.
func (f *forwards) begin(store api.Store, ctx *clock.Deadline, w *event.Write, wake chan<- struct{}) *forwarded {
	own := &forwarded{done: make(chan struct{})}
	f.mu.Lock()
	before := f.last[w.Stream]
	f.last[w.Stream] = own
	f.mu.Unlock()
	f.running.Go(func() {
		defer ctx.Release()
		if before.awaited(ctx) {
			own.written, own.err = store.WriteAnywhere(ctx, w)
		} else {
			own.err = event.ErrWriteTimeout
		}
		close(own.done)
		f.mu.Lock()
		if f.last[w.Stream] == own {
			delete(f.last, w.Stream)
		}
		f.mu.Unlock()
		bell.Ring(wake)
	})
	return own
}

// awaited waits for a write, which may be none. It reports false when the context ends first.
func (f *forwarded) awaited(ctx context.Context) bool {
	if f == nil {
		return true
	}
	select {
	case <-f.done:
		return true
	case <-ctx.Done():
		return false
	}
}
