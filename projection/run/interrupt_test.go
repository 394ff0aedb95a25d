package run

import (
	"context"
	"sync"
	"testing"

	"github.com/annalsdb/annals/projection/handler"
)

// stuck is a counter whose second event never ends, unless it is interrupted.
type stuck struct {
	*counter
	begun, cut chan struct{}
	once       sync.Once
	n          int
}

func newStuck() *stuck {
	return &stuck{counter: newCounter(handler.Definition{}), begun: make(chan struct{}), cut: make(chan struct{})}
}

func (e *stuck) Process(ev *handler.Event) (handler.Outcome, error) {
	if e.n++; e.n == 1 {
		return e.counter.Process(ev)
	}
	close(e.begun)
	<-e.cut
	return handler.Outcome{}, handler.ErrInterrupted
}

func (e *stuck) Interrupt() { e.once.Do(func() { close(e.cut) }) }

// TestEndWhileAnEventIsHandled: no end waits for a handler that takes long, and to cut it off is
// not a fault. The event is behind the checkpoint.
func TestEndWhileAnEventIsHandled(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(r *Run, cancel func())
		want  Ending
		saves int
	}{
		"abort":      {func(r *Run, _ func()) { r.Abort() }, Aborted, 0},
		"stop":       {func(r *Run, _ func()) { r.Stop() }, Stopped, 1},
		"close":      {func(r *Run, _ func()) { r.Close() }, Lost, 0},
		"leadership": {func(_ *Run, cancel func()) { cancel() }, Lost, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.add("a:", "a:")
				h := newStuck()
				o := options(handler.Definition{})
				o.use(h)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := start(ctx, o, w.parts())
				<-h.begun
				c.end(r, cancel)
				ended(t, r, c.want)
				if f := r.Statistics(); w.saves != c.saves || f.Reason != "" || c.saves > 0 && w.root.At.String() != "C:1/P:1" {
					t.Errorf("%d checkpoints, at %v: %+v", w.saves, w.root.At, f)
				}
			})
		})
	}
}
