package index

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func announceNothing(uint64) {}

// TestMemChainSteps bounds the steps of a search in a long chain.
func TestMemChainSteps(t *testing.T) {
	const n = 1 << 17
	m := newMemTable()
	for i := range int64(n) {
		m.add(Entry{Hash: 42, Number: i * 2, Position: i}, announceNothing)
	}
	head := m.head(42)
	if head.isDisordered() {
		t.Fatal("a rising stream counts as disordered")
	}
	worst := 0
	for target := int64(0); target < 2*n; target += 997 {
		steps := 0
		b := m.descendTo(head, func(b *memBlock) bool { steps++; return b.first.number <= target })
		if b == nil || m.countUpTo(head, target) != int(target/2+1) {
			t.Fatalf("search for %d found %+v", target, b)
		}
		worst = max(worst, steps)
	}
	if depth := int(head.depth()); depth > n>>largestBlock+largestBlock || worst > 6*9 {
		t.Fatalf("%d steps through a list of %d blocks", worst, depth)
	}
}

// TestMemTable compares a table in memory with a sorted list, for streams in
// order, streams that share a hash, and hashes that fall on one slot.
func TestMemTable(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	cases := []struct {
		name   string
		count  int
		hash   func() uint64
		number func(i int) int64
	}{
		{"one stream", 3000, func() uint64 { return 7 }, func(i int) int64 { return int64(i) }},
		{"gaps", 3000, func() uint64 { return 7 }, func(i int) int64 { return int64(i*i) + 5 }},
		{"two streams under one hash", 3000, func() uint64 { return 7 }, func(i int) int64 { return int64(i/2) + int64(i%2)*100 }},
		{"falling", 2000, func() uint64 { return 7 }, func(i int) int64 { return int64(5000 - i) }},
		{"many streams", 20000, func() uint64 { return r.Uint64N(3000) << 44 }, func(i int) int64 { return int64(i) }},
		{"single events", 20000, r.Uint64, func(int) int64 { return 0 }},
		{"neighbouring hashes", 5000, func() uint64 { return r.Uint64N(500) }, func(i int) int64 { return int64(i) }},
		{"chaos", 5000, func() uint64 { return r.Uint64N(30) }, func(int) int64 { return r.Int64N(40) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMemTable()
			var all []Entry
			for i := range c.count {
				e := Entry{Hash: c.hash(), Number: c.number(i), Position: int64(i)}
				m.add(e, announceNothing)
				all = append(all, e)
			}
			slices.SortFunc(all, compareEntries)
			var got []Entry
			check.Must(t, m.sorted(func(rows []byte) error {
				for row := range slices.Chunk(rows, entrySize) {
					got = append(got, getEntry(row))
				}
				return nil
			}))
			check.MustSlice(t, got, all, "sorted gives something else")
			for range 200 {
				probe := all[r.IntN(len(all))]
				from, to := probe.Number-r.Int64N(20), probe.Number+r.Int64N(20)
				limit := 1 + r.IntN(30)
				checkSource(t, all, m, probe.Hash, from, to, limit)
			}
			checkSource(t, all, m, 1<<62+12345, 0, 1<<62, 10)
		})
	}
}

// source is what tables in memory and on disk have in common.
type source interface {
	last(hash uint64) (Entry, bool)
	ascend(dst []Entry, hash uint64, from, to int64, max int) []Entry
	descend(dst []Entry, hash uint64, from, downTo int64, max int) []Entry
}

// onDisk is a table that is whole.
type onDisk struct{ *table }

func (o onDisk) last(hash uint64) (Entry, bool) {
	e, ok, err := o.table.last(hash, true)
	if err != nil {
		panic(err)
	}
	return e, ok
}

func (o onDisk) ascend(dst []Entry, hash uint64, from, to int64, max int) []Entry {
	return must(o.table.ascend(dst, hash, from, to, max, false))
}

func (o onDisk) descend(dst []Entry, hash uint64, from, downTo int64, max int) []Entry {
	return must(o.table.descend(dst, hash, from, downTo, max, true))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func checkSource(t *testing.T, all []Entry, s source, hash uint64, from, to int64, limit int) {
	t.Helper()
	var stream, window []Entry
	for _, e := range all {
		if e.Hash != hash {
			continue
		}
		stream = append(stream, e)
		if e.Number >= from && e.Number <= to {
			window = append(window, e)
		}
	}
	e, ok := s.last(hash)
	if ok != (len(stream) > 0) || ok && e != stream[len(stream)-1] {
		t.Fatalf("last(%x) = %+v, %v", hash, e, ok)
	}
	n := min(limit, len(window))
	if got := s.ascend(nil, hash, from, to, limit); !slices.Equal(got, window[:n]) {
		t.Fatalf("ascend(%x, %d, %d, %d) = %+v, want %+v", hash, from, to, limit, got, window[:n])
	}
	down := slices.Clone(window)
	slices.Reverse(down)
	if got := s.descend(nil, hash, to, from, limit); !slices.Equal(got, down[:n]) {
		t.Fatalf("descend(%x, %d, %d, %d) = %+v, want %+v", hash, to, from, limit, got, down[:n])
	}
}
