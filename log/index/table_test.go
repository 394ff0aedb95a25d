package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

func makeTable(t testing.TB, fsys vfs.FS, dir string, all []Entry) *table {
	t.Helper()
	return makeShaped(t, &Options{FS: fsys, Dir: dir}, all)
}

func makeShaped(t testing.TB, o *Options, all []Entry) *table {
	t.Helper()
	w := check.Value(newTableWriter(o, int64(len(all)), int64(len(all)))).Must(t)
	tab := check.Value(writeTable(context.Background(), w, 0, func(emit func(rows []byte) error) error {
		var row [entrySize]byte
		for _, e := range all {
			putEntry(row[:], e)
			if err := emit(row[:]); err != nil {
				return err
			}
		}
		return nil
	})).Must(t)
	return tab
}

// TestTable looks up entries under hashes spread in ways that mislead interpolation.
func TestTable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	cases := []struct {
		name  string
		entry func(i int) Entry
	}{
		{"uniform", func(int) Entry { return Entry{Hash: r.Uint64()} }},
		{"one stream", func(i int) Entry { return Entry{Hash: 99, Number: int64(i)} }},
		{"one stream with a tombstone", func(i int) Entry {
			return Entry{Hash: 99, Number: map[bool]int64{true: 1<<63 - 1, false: int64(i)}[i == 777]}
		}},
		{"long streams", func(i int) Entry { return Entry{Hash: uint64(i%10) * 0x1234567890abcdef, Number: int64(i)} }},
		{"small hashes and the largest", func(i int) Entry { return Entry{Hash: max(uint64(i), uint64(i/9999)*(1<<64-1))} }},
		{"clusters", func(i int) Entry { return Entry{Hash: r.Uint64N(8)<<61 + r.Uint64N(100), Number: r.Int64N(50)} }},
		{"powers", func(i int) Entry { return Entry{Hash: 1 << (i % 64), Number: int64(i)} }},
		{"all alike", func(i int) Entry { return Entry{Hash: 5, Number: 5} }},
	}
	for _, c := range cases {
		for _, count := range []int{1, 2, 33, 10000} {
			all := make([]Entry, count)
			for i := range all {
				all[i] = c.entry(i)
				all[i].Position = int64(i)
			}
			for _, packed := range []bool{false, true} {
				for i := range all {
					if packed {
						all[i].Number = all[i].Position
					}
				}
				slices.SortFunc(all, compareEntries)
				for name, o := range map[string]Options{"mapped": {FS: vfs.OS, Dir: t.TempDir()}, "read": {FS: vfs.NewMem()}} {
					o.Packed = packed
					tab := makeShaped(t, &o, all)
					t.Run(fmt.Sprint(c.name, " ", name, " packed=", packed), func(t *testing.T) { checkTable(t, r, tab, all) })
					tab.discard()
				}
			}
		}
	}
}

func checkTable(t *testing.T, r *rand.Rand, tab *table, all []Entry) {
	t.Helper()
	lazy, blocks := tab.samples, tab.blocks
	sums := func(sums []byte) blockSums {
		return newBlockSums(sums, uint64(tab.count*entrySize), blockEntries*entrySize, partEntries*entrySize)
	}
	for i := range 450 {
		tab.samples, tab.blocks = lazy, blocks
		if i%3 == 0 && !tab.packed { // Nothing was read before.
			tab.samples, tab.blocks = make([]atomic.Uint64, len(lazy)), sums(blocks.sums)
		}
		v := tab.view(i%2 == 0)
		e := all[r.IntN(len(all))]
		switch r.IntN(3) {
		case 0:
			e.Hash += r.Uint64N(3) - 1
		case 1:
			e.Number += r.Int64N(3) - 1
		}
		want := sort.Search(len(all), func(i int) bool {
			return all[i].Hash > e.Hash || all[i].Hash == e.Hash && all[i].Number >= e.Number
		})
		if got := v.search(e.Hash, e.Number); got != int64(want) {
			t.Fatalf("search(%x, %d) = %d, want %d of %d", e.Hash, e.Number, got, want, len(all))
		}
		v.done()
	}
	tab.samples, tab.blocks = lazy, blocks
	for range 10 {
		e := all[r.IntN(len(all))]
		checkSource(t, all, onDisk{tab}, e.Hash, e.Number-r.Int64N(5), e.Number, 1+r.IntN(10))
	}
	checkSource(t, all, onDisk{tab}, all[len(all)-1].Hash+1, 0, 9, 5)
}

func TestMergeReaderFindsDamage(t *testing.T) {
	mem := vfs.NewMem()
	a := makeTable(t, mem, "", []Entry{{1, 1, 1}, {5, 1, 2}})
	b := makeTable(t, mem, "", []Entry{{2, 1, 3}})
	defer a.release()
	defer b.release()
	f := check.Value(mem.OpenReadWrite(a.path)).Must(t)
	check.Must(t, check.Err(f.WriteAt([]byte{9}, tableHeaderSize+entrySize)))
	check.Must(t, f.Close())
	m := newMergeReader([]*table{a, b})
	for m.next() {
	}
	check.MustFail(t, m.err, "a changed entry went unnoticed")
}

func TestReadErrorIsReported(t *testing.T) {
	errDisk := errors.New("disk error")
	armed := false
	fsys := vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
		if armed && op.Kind == vfs.OpRead {
			return errDisk
		}
		return nil
	})
	tab := makeTable(t, fsys, "", []Entry{{1, 1, 1}, {5, 1, 2}})
	defer tab.release()
	var got error
	tab.onError = func(err error) { got = err }
	armed = true
	if e, ok, err := tab.last(5, true); ok || !errors.Is(err, errDisk) || !errors.Is(got, errDisk) {
		t.Fatalf("last = %+v, %v, %v with error %v", e, ok, err, got)
	}
}
