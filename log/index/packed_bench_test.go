package index_test

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// eventBytes is what an event takes in the log of these benchmarks.
const eventBytes = 350

// addPacked makes a packed index on disk of so many events. keys appends the keys of an event to be
// posted. It is one table where one is true, else what the merger makes of it.
func addPacked(b *testing.B, events int64, one bool, keys func(dst []uint64, i int64) []uint64) *index.Index {
	b.Helper()
	opt := index.Options{FS: vfs.OS, Dir: filepath.Join(b.TempDir(), "i"), Packed: true, MaxMemTable: 1_400_000}
	x := open(b, opt)
	var dst []uint64
	batch := make([]index.Entry, 0, 1000)
	for i := range events {
		for _, k := range keys(dst[:0], i) {
			batch = append(batch, index.Entry{Hash: spread(k), Number: i * eventBytes, Position: i * eventBytes})
		}
		if len(batch) > 900 || i == events-1 {
			check.Must(b, x.Add(batch, (i+1)*eventBytes, event.Chain{}))
			batch = batch[:0]
		}
	}
	check.Must(b, x.Flush())
	x.WaitMerges()
	if one {
		check.Must(b, x.Merge(b.Context()))
	}
	return x
}

// BenchmarkPackedSize reports what an entry takes on disk: in its table, with the filter of the
// table, and in the existence filter.
func BenchmarkPackedSize(b *testing.B) {
	const events = 10_000_000
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name string
		keys func(dst []uint64, i int64) []uint64
	}{
		{"categories=100,types=200", func(dst []uint64, _ int64) []uint64 {
			return append(dst, r.Uint64N(100), 1000+r.Uint64N(200))
		}},
		{"unique", func(dst []uint64, i int64) []uint64 { return append(dst, uint64(i)) }},
		{"thousand", func(dst []uint64, _ int64) []uint64 { return append(dst, r.Uint64N(events/1000)) }},
	} {
		for _, one := range []bool{false, true} {
			b.Run(c.name+map[bool]string{false: "/levels", true: "/merged"}[one], func(b *testing.B) {
				for b.Loop() {
					x := addPacked(b, events, one, c.keys)
					n := x.Sizes()
					var tables int64
					for _, t := range x.Tables() {
						tables += t.Bytes
					}
					b.ReportMetric(float64(tables)/float64(n.Entries), "B/entry")
					b.ReportMetric(float64(n.Bytes)/float64(n.Entries), "B/entry+filter")
					b.ReportMetric(float64(n.Bytes)/events, "B/event")
					b.ReportMetric(float64(n.Keys*2)/float64(n.Entries), "existence-B/entry")
					b.ReportMetric(float64(n.Memory)/float64(n.Entries), "memory-B/entry")
					check.Must(b, x.Close())
				}
			})
		}
	}
}

// BenchmarkPackedList reads a list of 1M entries out of 100M in steps of 1000.
func BenchmarkPackedList(b *testing.B) {
	const events, list = 50_000_000, uint64(1 << 40)
	r := rand.New(rand.NewPCG(1, 2))
	x := addPacked(b, events, false, func(dst []uint64, i int64) []uint64 {
		if i%50 == 0 {
			return append(dst, r.Uint64N(100), list)
		}
		return append(dst, r.Uint64N(100), 1000+r.Uint64N(200))
	})
	b.Logf("%d tables, %+v", len(x.Tables()), x.Sizes())
	var page []index.Entry
	read := func(b *testing.B, next func(from int64) (int64, bool)) {
		var all int64
		for b.Loop() {
			n := 0
			for from, more := next(-1); more; from, more = next(from) {
				n += len(page)
			}
			check.MustEqual(b, n, events/50, "entries")
			all += int64(n)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(all), "ns/entry")
	}
	b.Run("ascend", func(b *testing.B) {
		read(b, func(from int64) (int64, bool) {
			page = found(x.Ascend(page[:0], spread(list), from+1, 1<<62, 1000))
			if len(page) == 0 {
				return 0, false
			}
			return page[len(page)-1].Number, true
		})
	})
	b.Run("descend", func(b *testing.B) {
		read(b, func(from int64) (int64, bool) {
			if from < 0 {
				from = 1 << 62
			}
			page = found(x.Descend(page[:0], spread(list), from-1, 0, 1000))
			if len(page) == 0 {
				return 0, false
			}
			return page[len(page)-1].Number, true
		})
	})
	b.Run("last", func(b *testing.B) {
		for b.Loop() {
			last(x, spread(list))
		}
	})
	check.Must(b, x.Close())
}
