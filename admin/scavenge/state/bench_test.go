package state

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// benchName is the name of the i-th stream: the order of the names is not that of the numbers.
func benchName(dst []byte, i int) []byte {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(i))
	return fmt.Appendf(dst[:0], "order-%016x-%d", xxh3.Hash(b[:]), i)
}

func benchDB(b *testing.B) *DB {
	b.Helper()
	d, err := Open(b.Context(), Options{Dir: filepath.Join(b.TempDir(), "scavenging")})
	check.Must(b, err)
	b.Cleanup(func() { check.NoError(b, d.Close()) })
	return d
}

// fill stores streams in transactions of a million.
func fill(tb testing.TB, d *DB, from, to int, decide func(i int) Stream) {
	tb.Helper()
	fillNamed(tb, d, from, to, benchName, decide)
}

func fillNamed(tb testing.TB, d *DB, from, to int, nameOf func([]byte, int) []byte, decide func(i int) Stream) {
	tb.Helper()
	for from < to {
		end := min(to, from+1_000_000)
		err := d.Update(tb.Context(), func(tx *Tx) error {
			var name []byte
			for i := from; i < end; i++ {
				name = nameOf(name, i)
				if _, _, err := tx.Stream(name); err != nil {
					return err
				}
				s := decide(i)
				if err := tx.PutStream(name, &s); err != nil {
					return err
				}
			}
			return nil
		})
		check.Must(tb, err)
		from = end
	}
}

func benchStream(i int) Stream {
	return Stream{MetaNumber: 0, MetaPosition: int64(i) * 700, Retention: event.Retention{MaxCount: 100}, Discard: 17}
}

// BenchmarkPutStream stores metadata of new streams, as the accumulation does: what is known is
// read first.
func BenchmarkPutStream(b *testing.B) {
	d := benchDB(b)
	b.ReportAllocs()
	b.ResetTimer()
	fill(b, d, 0, b.N, benchStream)
}

// BenchmarkReplaceStream stores metadata of known streams.
func BenchmarkReplaceStream(b *testing.B) {
	d := benchDB(b)
	const n = 100_000
	fill(b, d, 0, n, benchStream)
	b.ReportAllocs()
	b.ResetTimer()
	err := d.Update(b.Context(), func(tx *Tx) error {
		var name []byte
		for i := range b.N {
			name = benchName(name, i%n)
			s, _, err := tx.Stream(name)
			if err != nil {
				return err
			}
			s.MetaNumber++
			if err := tx.PutStream(name, &s); err != nil {
				return err
			}
		}
		return nil
	})
	check.Must(b, err)
}

// BenchmarkPutSorted stores metadata in batches as large as those of the
// accumulation, each in the order of the names, of streams that are new, and then of them again.
func BenchmarkPutSorted(b *testing.B) {
	const batch, n = 1 << 16, 1 << 20
	d := benchDB(b)
	var names [][]byte
	for i := range n {
		names = append(names, benchName(nil, i))
	}
	for from := 0; from < n; from += batch {
		slices.SortFunc(names[from:from+batch], bytes.Compare)
	}
	b.ResetTimer()
	var before, after unix.Rusage
	check.Must(b, unix.Getrusage(unix.RUSAGE_SELF, &before))
	for b.Loop() {
		for from := 0; from < n; from += batch {
			err := d.Update(b.Context(), func(tx *Tx) error {
				for i, name := range names[from : from+batch] {
					if _, _, err := tx.Stream(name); err != nil {
						return err
					}
					s := benchStream(i)
					if err := tx.PutStream(name, &s); err != nil {
						return err
					}
				}
				return nil
			})
			check.Must(b, err)
		}
	}
	check.Must(b, unix.Getrusage(unix.RUSAGE_SELF, &after))
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/stream")
	b.ReportMetric(float64(cpu)/float64(b.N)/n, "cpu-ns/stream")
}

func BenchmarkDecisionsBuild(b *testing.B) {
	d := benchDB(b)
	const n = 1_000_000
	fill(b, d, 0, n, benchStream)
	for b.Loop() {
		t := check.Value(d.Decisions(b.Context())).Must(b)
		check.MustEqual(b, t.n, n)
		check.Must(b, t.Close())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/stream")
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{10_000, 5_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			if n > 1_000_000 && testing.Short() {
				b.Skip("takes a while")
			}
			t := buildFromList(b, vfs.OS, b.TempDir(), n, func(dst []byte, i int) []byte { return benchName(dst, i) })
			names := make([][]byte, 1<<18)
			for _, c := range []struct {
				name string
				from int
				hit  bool
			}{{"hit", 0, true}, {"miss", n, false}} {
				b.Run(c.name, func(b *testing.B) {
					r := rand.New(rand.NewPCG(1, 2))
					for i := range names {
						names[i] = benchName(nil, c.from+r.IntN(n))
					}
					b.ReportAllocs()
					b.ResetTimer()
					for i := range b.N {
						if _, ok := t.Find(names[i&(len(names)-1)]); ok != c.hit {
							b.Fatalf("%s", names[i&(len(names)-1)])
						}
					}
				})
			}
		})
	}
}

// TestFootprint is run by hand, with STATE_ORDERED for names in order: STATE_STREAMS=10000000 go
// test -run Footprint -v -timeout 0.
func TestFootprint(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("STATE_STREAMS"))
	if n == 0 {
		t.Skip("STATE_STREAMS is not set")
	}
	d, err := Open(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "scavenging")})
	check.Must(t, err)
	t.Logf("opened: %s", memory(t))
	name := benchName
	if os.Getenv("STATE_ORDERED") != "" {
		name = func(dst []byte, i int) []byte { return fmt.Appendf(dst[:0], "order-%032d", i) }
	}
	for i := 0; i < n; i += 1_000_000 {
		fillNamed(t, d, i, min(n, i+1_000_000), name, benchStream)
		t.Logf("%d streams: %s", i+1_000_000, memory(t))
	}
	dec, err := d.Decisions(t.Context())
	check.Must(t, err)
	t.Logf("decisions of %d: %s", dec.n, memory(t))
	check.Must(t, dec.Close())
	check.Must(t, d.Close())
	t.Logf("closed: %s", memory(t))
}

// TestDecisionsFootprint is run by hand: STATE_DECISIONS=20000000 go test -run DecisionsFootprint
// -v -timeout 0.
func TestDecisionsFootprint(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("STATE_DECISIONS"))
	if n == 0 {
		t.Skip("STATE_DECISIONS is not set")
	}
	t.Logf("before: %s", memory(t))
	table := buildFromList(t, vfs.OS, t.TempDir(), n, benchName)
	t.Logf("decisions of %d, %d bytes: %s", table.n, len(table.data), memory(t))
}

func memory(t *testing.T) string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return fmt.Sprintf("%s, heap in use %d KiB, at most %d KiB", regexp.MustCompile(`RssAnon:\s*(.*)`).FindSubmatch(status)[1], m.HeapInuse>>10, m.HeapSys>>10)
}
