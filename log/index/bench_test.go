package index_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// quiet makes an index on disk that never flushes or merges by itself.
func quiet(b *testing.B, dir string, noBloom bool) *index.Index {
	b.Helper()
	return open(b, index.Options{FS: vfs.OS, Dir: dir, MaxMemTable: 1 << 30, MaxAutoMergeLevel: -1, NoBloom: noBloom})
}

// addEvents adds n events, in turn to so many streams, in batches of 200.
func addEvents(b *testing.B, x *index.Index, first, n, streams int64) {
	b.Helper()
	batch := make([]index.Entry, 0, 200)
	for i := first; i < first+n; i++ {
		batch = append(batch, index.Entry{Hash: spread(uint64(i % streams)), Number: i / streams, Position: i * 300})
		if len(batch) == cap(batch) || i == first+n-1 {
			check.Must(b, x.Add(batch, (i+1)*300, event.Chain{}))
			batch = batch[:0]
		}
	}
}

var shapes = []struct {
	name    string
	streams int64
}{{"streams=100", 100}, {"streams=10k", 10_000}, {"streams=1M", 1_000_000}}

func BenchmarkAdd(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			const n = 1_000_000
			for b.Loop() {
				x := quiet(b, filepath.Join(b.TempDir(), "i"), false)
				addEvents(b, x, 0, n, s.streams)
				check.Must(b, x.Close())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/entry")
		})
	}
}

// BenchmarkFlush writes 1M entries with everything that belongs to it.
func BenchmarkFlush(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				x := quiet(b, filepath.Join(b.TempDir(), "i"), false)
				addEvents(b, x, 0, 1_000_000, s.streams)
				b.StartTimer()
				check.Must(b, x.Flush())
				b.StopTimer()
				check.Must(b, x.Close())
				b.StartTimer()
			}
		})
	}
}

// BenchmarkMerge merges 10 tables of 200k entries.
func BenchmarkMerge(b *testing.B) {
	for _, s := range shapes {
		b.Run(s.name, func(b *testing.B) {
			const runs, each = 10, 200_000
			for b.Loop() {
				b.StopTimer()
				x := quiet(b, filepath.Join(b.TempDir(), "i"), false)
				for i := range int64(runs) {
					addEvents(b, x, i*each, each, s.streams)
					check.Must(b, x.Flush())
				}
				b.StartTimer()
				check.Must(b, x.Merge(b.Context()))
				b.StopTimer()
				check.Must(b, x.Close())
				b.StartTimer()
			}
			b.ReportMetric(runs*each*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mentries/s")
		})
	}
}

func BenchmarkLookupMem(b *testing.B) {
	for _, s := range shapes {
		x := quiet(b, filepath.Join(b.TempDir(), "i"), false)
		const n = 1_000_000
		addEvents(b, x, 0, n, s.streams)
		lookups(b, x, s.name, n, s.streams)
		check.Must(b, x.Close())
	}
}

func lookups(b *testing.B, x *index.Index, name string, n, streams int64) {
	var buf []index.Entry
	b.Run(name+"/get", func(b *testing.B) {
		i := int64(0)
		for b.Loop() {
			i = (i + 7_654_321) % n
			buf = found(x.Get(buf[:0], spread(uint64(i%streams)), i/streams))
			check.MustEqual(b, len(buf), 1, "not found")
		}
	})
	b.Run(name+"/last", func(b *testing.B) {
		i := int64(0)
		for b.Loop() {
			i = (i + 7_654_321) % n
			if _, ok := last(x, spread(uint64(i%streams))); !ok {
				b.Fatal("not found")
			}
		}
	})
	b.Run(name+"/page20", func(b *testing.B) {
		i := int64(0)
		for b.Loop() {
			i = (i + 7_654_321) % n
			// Readers know the last number.
			if buf = found(x.Ascend(buf[:0], spread(uint64(i%streams)), i/streams, (n-1-i%streams)/streams, 20)); len(buf) == 0 {
				b.Fatal("not found")
			}
		}
	})
}

const big = 10_000_000

// bigIndex makes one table of 10M entries over 1M streams.
func bigIndex(b *testing.B, streams int64, noBloom bool) *index.Index {
	b.Helper()
	x := quiet(b, filepath.Join(b.TempDir(), "i"), noBloom)
	for i := range int64(10) {
		addEvents(b, x, i*big/10, big/10, streams)
		check.Must(b, x.Flush())
	}
	check.Must(b, x.Merge(b.Context()))
	return x
}

func BenchmarkLookupTable10M(b *testing.B) {
	for _, streams := range []int64{100, 1_000_000} {
		x := bigIndex(b, streams, false)
		lookups(b, x, map[bool]string{true: "streams=1M", false: "streams=100"}[streams > 100], big, streams)
		check.Must(b, x.Close())
	}
}

// BenchmarkAbsent asks ten tables for streams that none of them has.
func BenchmarkAbsent(b *testing.B) {
	x := quiet(b, filepath.Join(b.TempDir(), "i"), false)
	for i := range int64(10) {
		addEvents(b, x, i*100_000, 100_000, 1_000_000)
		check.Must(b, x.Flush())
	}
	b.Run("last", func(b *testing.B) {
		i := uint64(1 << 40)
		for b.Loop() {
			i++
			last(x, spread(i))
		}
	})
	b.Run("mayexist", func(b *testing.B) {
		i := uint64(1 << 40)
		for b.Loop() {
			i++
			x.MayExist(spread(i))
		}
	})
	check.Must(b, x.Close())
}

// BenchmarkOpen opens a table of 10M entries with its filters.
func BenchmarkOpen(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "i")
	x := quiet(b, dir, false)
	addEvents(b, x, 0, big, 1_000_000)
	check.Must(b, x.Flush())
	check.Must(b, x.Close())
	for b.Loop() {
		x := open(b, index.Options{FS: vfs.OS, Dir: dir})
		check.Must(b, x.Close())
	}
}

// BenchmarkEntries reads and checks 1M entries of ten tables in order.
func BenchmarkEntries(b *testing.B) {
	x := quiet(b, filepath.Join(b.TempDir(), "i"), false)
	for i := range int64(10) {
		addEvents(b, x, i*100_000, 100_000, 10_000)
		check.Must(b, x.Flush())
	}
	for b.Loop() {
		var all []index.Entry
		for e, err := range x.Entries() {
			check.Must(b, err)
			all = append(all, e)
		}
		if !slices.IsSortedFunc(all, less) {
			b.Fatal("not in order")
		}
	}
	check.Must(b, x.Close())
}

// BenchmarkScavenge goes through a table of 10M entries from which nothing, or every second entry,
// goes.
func BenchmarkScavenge(b *testing.B) {
	for _, c := range []struct {
		name string
		keep func(index.Entry) (bool, error)
	}{
		{"none", func(index.Entry) (bool, error) { return true, nil }},
		{"half", func(e index.Entry) (bool, error) { return e.Number%2 == 0, nil }},
		{"last", func(e index.Entry) (bool, error) { return e.Hash < 1<<64-1<<50, nil }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				x := bigIndex(b, 1_000_000, false)
				b.StartTimer()
				check.Must(b, x.Scavenge(b.Context(), index.ScavengeOptions{Keep: c.keep}))
				b.StopTimer()
				check.Must(b, x.Close())
				b.StartTimer()
			}
			b.ReportMetric(big*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mentries/s")
		})
	}
}
