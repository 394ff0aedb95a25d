package projection_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection"
)

// idleStore is a store whose sources stay as they are.
type idleStore struct{ *memdb.DB }

func (idleStore) WaitStreams(ctx context.Context, _ []string, _ []int64) error {
	<-ctx.Done()
	return ctx.Err()
}

func (idleStore) WaitLog(ctx context.Context, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

func (idleStore) LogEnd() int64 { return 0 }

func (idleStore) ReadAll(context.Context, event.AllRead) (event.AllPage, error) {
	return event.AllPage{}, nil
}

// BenchmarkIdle loads projections that have nothing to do, and says what one costs.
func BenchmarkIdle(b *testing.B) {
	for _, enabled := range []bool{true, false} {
		b.Run(fmt.Sprintf("enabled=%t", enabled), func(b *testing.B) {
			const n = 1000
			store := idleStore{memdb.Open(b, memdb.Options{})}
			o := projection.Options{Store: store, May: func(context.Context, projection.Identity, string, bool) error { return nil }}
			ready := func(s *projection.Service) {
				for !s.Running() {
					time.Sleep(time.Millisecond)
				}
			}
			first := projection.New(o)
			first.Start(context.Background())
			ready(first)
			for i := range n {
				_, err := first.Create(context.Background(), projection.Creation{Name: fmt.Sprint("p", i), Mode: projection.Continuous, By: admin, Enabled: enabled,
					Query: fmt.Sprintf("fromStream('s-%d').when({$init: function() { return {n: 0}; }, a: function(s, e) { s.n++; return s; }})", i)})
				check.Must(b, err)
			}
			first.Stop()
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			goroutines := runtime.NumGoroutine()
			b.ResetTimer()
			for range b.N {
				s := projection.New(o)
				s.Start(context.Background())
				ready(s)
				want := map[bool]string{true: "Running", false: "Stopped"}[enabled]
				for done := 0; done < n; {
					done = 0
					list := check.Value(s.List(projection.AllKinds)).Must(b)
					for i := range list {
						if list[i].Name[0] == 'p' && list[i].Status == want {
							done++
						}
					}
					time.Sleep(time.Millisecond)
				}
				b.StopTimer()
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc+after.StackInuse-before.StackInuse)/n, "B/projection")
				b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/n, "goroutines/projection")
				s.Stop()
				b.StartTimer()
			}
		})
	}
}
