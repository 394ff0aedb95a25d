package pipeline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
)

// instantFuture has resolved already.
type instantFuture struct{}

func (instantFuture) Error() error  { return nil }
func (instantFuture) Response() any { return nil }

// countingDecider costs next to nothing.
type countingDecider struct{ n int }

func (d *countingDecider) Reset() error { return nil }
func (d *countingDecider) Decide(*event.Write) event.Decision {
	d.n++
	return event.Decision{}
}

var oneByte = []byte{1}

func (d *countingDecider) Seal() []byte { return oneByte }
func (d *countingDecider) Applied()     {}

// BenchmarkPipeline measures what the write path itself costs: hand-over,
// grouping and answers, on a raft that takes no time.
func BenchmarkPipeline(b *testing.B) {
	for _, writers := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			deps := newFakeRaft().dependencies()
			deps.Propose = func([]byte) Future { return instantFuture{} }
			deps.Barrier = func() Future { return instantFuture{} }
			p := New(deps, &countingDecider{}, Options{})
			defer p.Close()
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			var begun atomic.Int64
			for range writers {
				wg.Go(func() {
					w := &event.Write{Stream: "s"}
					for begun.Add(1) <= int64(b.N) {
						if _, err := p.Submit(context.Background(), w); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(p.metrics.requests.Value())/float64(max(p.metrics.size.Snapshot().Count, 1)), "requests/entry")
		})
	}
}
