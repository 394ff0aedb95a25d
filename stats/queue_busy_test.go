package stats

import (
	"sync"
	"testing"
	"time"
)

// What was shown of the time spent while items ended is never more than they took.
func TestQueueCountsNoItemTwice(t *testing.T) {
	q := new(Registry).Queue("q", "", 1)
	w := q.Work("Read")
	for range 100 {
		done := make(chan struct{})
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						q.busySoFar(moment(time.Now()))
					}
				}
			})
		}
		begun := w.Begin(0)
		for time.Since(begun) < 300*time.Microsecond {
		}
		w.End(begun, 1)
		close(done)
		readers.Wait()
		if over := time.Duration(q.busyShown.Load() - q.busy.Load()); over > 0 {
			t.Fatalf("%v too much are shown", over)
		}
	}
}
