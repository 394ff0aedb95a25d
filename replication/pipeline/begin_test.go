package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// Writes that one goroutine begins are decided in their order, and answered without a goroutine
// that waits for each.
func TestBegunInOrder(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		wake := make(chan struct{}, 1)
		var begun []Pending
		for _, stream := range []string{"a", "b", "a", "conflict", "a"} {
			d := check.Value(r.p.Begin(r.t.Context(), &event.Write{Stream: stream}, wake)).Must(t)
			begun = append(begun, d)
			synctest.Wait()
		}
		r.next("a").resolve(nil, nil) // was in flight when the others came
		entry := r.next("b a a")
		<-wake
		for i, want := range []error{nil, event.ErrWriteTimeout} { // one is there, one is given up
			if _, err, ok := begun[i].Done(i == 1); !ok || err != want {
				t.Errorf("%d: %v, %v", i, err, ok)
			}
		}
		if _, _, ok := begun[2].Done(false); ok {
			t.Error("answered without being written")
		}
		entry.resolve(nil, nil)
		synctest.Wait()
		<-wake
		for i, want := range []int64{1, 0, 2} {
			written, err, ok := begun[2+i].Done(false)
			if conflict := i == 1; !ok || written.First != want || (err != nil) != conflict {
				t.Errorf("%d: %v, %v, %v", 2+i, written, err, ok)
			}
		}
	})
}

// A context that ends wakes the one who began the write, and so do answers of every kind.
func TestBegunIsWoken(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(r *rig, cancel context.CancelFunc)
		want error
	}{
		{"the context ends", func(_ *rig, cancel context.CancelFunc) { cancel() }, event.ErrWriteTimeout},
		{"leadership is lost", func(r *rig, _ context.CancelFunc) {
			r.leaderNow.Store(false)
			r.next("a").resolve(raft.ErrLeadershipLost, nil)
		}, event.ErrOutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			inRig(t, func(r *rig) {
				r.lead()
				ctx, cancel := context.WithCancel(r.t.Context())
				defer cancel()
				wake := make(chan struct{}, 1)
				d := check.Value(r.p.Begin(ctx, &event.Write{Stream: "a"}, wake)).Must(t)
				synctest.Wait()
				c.do(r, cancel)
				<-wake
				if _, err, ok := d.Done(ctx.Err() != nil); !ok || !errors.Is(err, c.want) {
					t.Errorf("%v, %v", err, ok)
				}
				if ctx.Err() != nil {
					r.next("a").resolve(nil, nil)
				}
			})
		})
	}
}

// Whatever is given up and when, each write has its own answer or none, and nothing remains.
func TestBegunAndGivenUpAtAnyTime(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		stop := r.resolving()
		var callers sync.WaitGroup
		for w := range 10 {
			callers.Go(func() {
				stream, wake := fmt.Sprint("s", w), make(chan struct{}, 1)
				type write struct {
					Pending
					at    int
					until time.Time
				}
				var inFlight []write
				const writes = 500
				var numbers [writes]int64 // of the events, -1 where it is not known
				for begun := 0; begun < writes || len(inFlight) > 0; {
					for range min(rand.N(20), writes-begun) {
						ctx, cancel := context.WithTimeout(context.Background(), rand.N(120*time.Millisecond)+1)
						defer cancel()
						until, _ := ctx.Deadline()
						d, err := r.p.Begin(ctx, &event.Write{Stream: stream}, wake)
						if err != nil {
							t.Error(err)
							return
						}
						inFlight = append(inFlight, write{d, begun, until})
						begun++
					}
					if len(inFlight) > 0 {
						<-wake
					}
					rest := inFlight[:0]
					for _, d := range inFlight {
						done, err, ok := d.Done(!time.Now().Before(d.until))
						switch numbers[d.at] = done.First; {
						case !ok:
							rest = append(rest, d)
						case err == event.ErrWriteTimeout:
							numbers[d.at] = -1
						case err != nil:
							t.Error(err)
						}
					}
					inFlight = rest
				}
				next := int64(0)
				for _, n := range numbers {
					if n >= 0 && n < next {
						t.Errorf("a write of %s got the answer of an earlier one, %d", stream, n)
					}
					next = max(next, n+1)
				}
			})
		}
		callers.Wait()
		stop()
		if n, bytes := r.p.queue.depth(); n != 0 || bytes != 0 || len(r.p.queue.callers) != 0 {
			t.Errorf("%d requests of %d bytes and %d callers remain", n, bytes, len(r.p.queue.callers))
		}
	})
}
