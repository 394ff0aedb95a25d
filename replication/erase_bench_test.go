package replication_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
)

// BenchmarkEraseLog measures how long writes wait at the worst while the Raft log is
// rewritten, and at the worst without that.
func BenchmarkEraseLog(b *testing.B) {
	for _, kind := range bothStores {
		b.Run(string(kind), func(b *testing.B) {
			y := newToy()
			r := open(b, toyOptions(y, b.TempDir(), kind))
			defer closeReplica(b, r)
			ctx, stop := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			var mu sync.Mutex
			var worst []time.Duration // of this stretch
			for w := range 32 {
				wg.Go(func() {
					for ctx.Err() == nil {
						begun := time.Now()
						if _, err := r.Pipeline().Submit(context.Background(), &event.Write{Stream: fmt.Sprintf("%0200d", w), ExpectedVersion: event.AnyVersion}); err != nil {
							b.Error(err)
							return
						}
						mu.Lock()
						worst = append(worst, time.Since(begun))
						mu.Unlock()
					}
				})
			}
			stretch := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				if len(worst) == 0 {
					return 0
				}
				longest := slices.Max(worst)
				worst = worst[:0]
				return longest
			}
			var with, without []time.Duration
			for b.Loop() {
				pause := time.NewTimer(300 * time.Millisecond)
				<-pause.C
				without = append(without, stretch())
				check.Must(b, r.EraseLog(ctx, y.Tail().End))
				with = append(with, stretch())
			}
			stop()
			wg.Wait()
			slices.Sort(with)
			slices.Sort(without)
			mean, most := replication.RewriteStalls(r)
			b.ReportMetric(mean.Seconds()*1000, "ms-lock-mean")
			b.ReportMetric(most.Seconds()*1000, "ms-lock-max")
			b.ReportMetric(with[len(with)/2].Seconds()*1000, "ms-stall-p50")
			b.ReportMetric(with[len(with)-1].Seconds()*1000, "ms-stall-max")
			b.ReportMetric(without[len(without)/2].Seconds()*1000, "ms-idle-p50")
			b.ReportMetric(without[len(without)-1].Seconds()*1000, "ms-idle-max")
		})
	}
}
