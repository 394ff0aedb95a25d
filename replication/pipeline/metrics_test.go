package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

// The queue of writes shows what waits and what is done, and how long the first of a group waited.
func TestWriterQueueStatistics(t *testing.T) {
	inRig(t, func(r *rig) {
		first, entry := r.inFlight("a")
		second, third := r.submit("b"), r.submit("c")
		ctx, cancel := context.WithCancel(context.Background())
		gone := r.submitCtx(ctx, "d")
		time.Sleep(3*time.Second - contextPace) // of the bubble
		end(cancel)
		if a := <-gone; a.err != event.ErrWriteTimeout {
			t.Errorf("%+v", a)
		}
		f := r.p.queue.lengths.Statistics()
		// The one that went is decided already, and leaves with its group.
		if f.Name != "StorageWriterQueue" || f.Group != "" || f.Length != 4 || f.LifetimePeakLength != 4 || f.Doing != "WritePrepares" || f.Items != 0 {
			t.Errorf("while one is in flight: %+v", f)
		}
		entry.resolve(nil, nil)
		next := r.next("b c d")
		next.resolve(nil, nil)
		for _, c := range []chan answer{first, second, third} {
			if a := <-c; a.err != nil {
				t.Errorf("%+v", a)
			}
		}
		synctest.Wait()
		if f := r.p.queue.lengths.Statistics(); f.Length != 0 || f.Items != 4 || f.Doing != "" || f.Done != "WritePrepares" {
			t.Errorf("at the end: %+v", f)
		}
		longest := r.stats.Max("eventstore_queue_queueing_duration_max_seconds", "", stats.Label{Name: "name", Value: "StorageWriterQueue"})
		check.Equal(t, longest.Value(), 3, "the longest wait ... s")
	})
}
