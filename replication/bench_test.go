package replication_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats"
)

// BenchmarkRaftSingleNode measures acknowledged writes through the whole write
// path of one node, with a state machine in memory.
func BenchmarkRaftSingleNode(b *testing.B) {
	for _, kind := range []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal} {
		for _, writers := range []int{1, 32, 256} {
			b.Run(fmt.Sprintf("%s/writers=%d", kind, writers), func(b *testing.B) {
				y := newToy()
				o := toyOptions(y, b.TempDir(), kind)
				o.Stats = new(stats.Registry)
				r := open(b, o)
				defer closeReplica(b, r)
				b.ReportAllocs()
				b.ResetTimer()
				var wg sync.WaitGroup
				var begun atomic.Int64
				for i := range writers {
					wg.Go(func() {
						w := &event.Write{Stream: fmt.Sprintf("%0250d", i), ExpectedVersion: event.AnyVersion}
						for begun.Add(1) <= int64(b.N) {
							if _, err := r.Pipeline().Submit(context.Background(), w); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				s := samples(o.Stats)
				b.ReportMetric(s["annals_replication_requests_total"]/max(s["annals_replication_entry_bytes"], 1), "requests/entry")
			})
		}
	}
}

// BenchmarkConfirm measures linearizable reads on the leader of three nodes: those that come during
// one round share the next one.
func BenchmarkConfirm(b *testing.B) {
	for _, readers := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			leading := startHouse(b, 3, onDisk, measured).leader()
			leader, barriers := leading.cluster.Load(), func() float64 { return leading.metrics()["annals_replication_barriers_total"] }
			before := barriers()
			b.ResetTimer()
			var wg sync.WaitGroup
			var begun atomic.Int64
			for range readers {
				wg.Go(func() {
					for begun.Add(1) <= int64(b.N) {
						if err := leader.Writes.Confirm(context.Background()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric((barriers()-before)/float64(b.N), "rounds/op")
		})
	}
}
