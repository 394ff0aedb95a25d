package pipeline

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
)

// end ends a context within a bubble, and lets its caller notice.
func end(cancel context.CancelFunc) {
	cancel()
	time.Sleep(contextPace)
	synctest.Wait()
}

// resolving resolves what is proposed, each after a while, until it is stopped.
func (r *rig) resolving() (stop func()) {
	over := make(chan struct{})
	var raft sync.WaitGroup
	raft.Go(func() {
		for {
			select {
			case f := <-r.proposals:
				time.Sleep(rand.N(60 * time.Millisecond))
				f.resolve(nil, nil)
			case <-over:
				return
			}
		}
	})
	return func() {
		time.Sleep(time.Second) // Requests that no caller waits for are done as well.
		close(over)
		raft.Wait()
	}
}

// Wherever a context ends, its caller gets its own answer or none, and within contextPace.
func TestContextsThatEndAtAnyTime(t *testing.T) {
	inRig(t, func(r *rig) {
		r.lead()
		stop := r.resolving()
		var callers sync.WaitGroup
		for w := range 40 {
			callers.Go(func() {
				stream, next := fmt.Sprint("s", w), int64(0)
				for range 100 {
					most := rand.N(120 * time.Millisecond)
					ctx, cancel := context.WithTimeout(context.Background(), most)
					begun := time.Now()
					done, err := r.p.Submit(ctx, &event.Write{Stream: stream})
					cancel()
					switch took := time.Since(begun); {
					case took > most+contextPace:
						t.Errorf("a caller with %s waited %s", most, took)
					case err != nil && err != event.ErrWriteTimeout:
						t.Error(err)
					case err == nil && done.First < next:
						t.Errorf("write %d of %s got the answer of an earlier one, %d", next, stream, done.First)
					case err == nil:
						next = done.First + 1
					}
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
