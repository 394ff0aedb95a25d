package index_test

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// tester is what both testing.T and rapid.T offer.
type tester = check.T

func open(t tester, opt index.Options) *index.Index {
	t.Helper()
	if opt.Dir == "" {
		opt.Dir = "db/index"
	}
	if opt.OnFatal == nil {
		opt.OnFatal = func(err error) { panic(err) }
	}
	x := check.Value(index.Open(opt)).Must(t, "open")
	return x
}

// found is what a lookup has found without an error.
func found(entries []index.Entry, err error) []index.Entry {
	if err != nil {
		panic(err)
	}
	return entries
}

// last is Last without an error.
func last(x *index.Index, hash uint64) (index.Entry, bool) {
	e, ok, err := x.Last(hash)
	if err != nil {
		panic(err)
	}
	return e, ok
}

func less(a, b index.Entry) int {
	switch {
	case a.Hash != b.Hash:
		if a.Hash < b.Hash {
			return -1
		}
		return 1
	case a.Number != b.Number:
		if a.Number < b.Number {
			return -1
		}
		return 1
	case a.Position < b.Position:
		return -1
	case a.Position > b.Position:
		return 1
	}
	return 0
}

// model is the log as far as the index knows it.
type model struct {
	log    []index.Entry // in order of positions
	end    int64
	packed bool // the number of each entry is its position

	mu    sync.Mutex // guards known
	known *byHash    // of the log as it was asked about last
}

// byHash is a log by hashes.
type byHash struct {
	entries int
	last    int64 // position of the last entry
	of      map[uint64][]index.Entry
	shares  index.Shares // their Entries
}

// byHash sorts the log, if it has changed: what is taken out of it or added, changes its length or
// its last position, as positions rise.
func (m *model) byHash() *byHash {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := int64(-1)
	if n := len(m.log); n > 0 {
		last = m.log[n-1].Position
	}
	if k := m.known; k != nil && k.entries == len(m.log) && k.last == last {
		return k
	}
	m.known = &byHash{entries: len(m.log), last: last, of: map[uint64][]index.Entry{}}
	for _, e := range m.log {
		m.known.of[e.Hash] = append(m.known.of[e.Hash], e)
		m.known.shares[e.Hash>>61].Entries++
	}
	for _, es := range m.known.of {
		slices.SortFunc(es, less)
	}
	return m.known
}

// onShapes runs a test on both shapes of tables.
func onShapes(t *testing.T, test func(t *testing.T, packed bool)) {
	t.Run("plain", func(t *testing.T) { test(t, false) })
	t.Run("packed", func(t *testing.T) { test(t, true) })
}

// even holds for every second entry.
func even(e index.Entry) bool { return e.Position/100%2 == 0 }

// add appends an entry to the log; positions are distinct and rising.
func (m *model) add(hash uint64, number int64) index.Entry {
	if m.packed {
		number = m.end
	}
	e := index.Entry{Hash: hash, Number: number, Position: m.end}
	m.end += 100
	m.log = append(m.log, e)
	return e
}

func (m *model) of(hash uint64) []index.Entry { return m.byHash().of[hash] }

func (m *model) ascend(hash uint64, from, to int64, limit int) []index.Entry {
	var es []index.Entry
	for _, e := range m.of(hash) {
		if e.Number >= from && e.Number <= to && len(es) < limit {
			es = append(es, e)
		}
	}
	return es
}

func (m *model) descend(hash uint64, from, downTo int64, limit int) []index.Entry {
	var es []index.Entry
	for _, e := range slices.Backward(m.of(hash)) {
		if e.Number <= from && e.Number >= downTo && len(es) < limit {
			es = append(es, e)
		}
	}
	return es
}

// replay adds what the index does not hold durably, as the owner does at start.
func (m *model) replay(t tester, x *index.Index) {
	t.Helper()
	from := x.Checkpoint()
	if from > m.end {
		t.Fatalf("checkpoint %d is beyond the end of the log, %d", from, m.end)
	}
	var batch []index.Entry
	for _, e := range m.log {
		if e.Position >= from {
			batch = append(batch, e)
		}
	}
	check.Must(t, x.Add(batch, m.end, event.Chain{}))
}

// check compares all that the index answers about a hash with the model.
func (m *model) check(t tester, x *index.Index, hash uint64) {
	t.Helper()
	all := m.of(hash)
	got, ok := last(x, hash)
	if ok != (len(all) > 0) || ok && got != all[len(all)-1] {
		t.Fatalf("Last(%x) = %+v, %v; want the end of %+v", hash, got, ok, all)
	}
	check.MustEqual(t, check.Value(x.Count(hash, 0, math.MaxInt64)).Must(t), int64(len(all)), "entries of", hash)
	if m.packed {
		entries := m.byHash().shares
		for i, share := range x.Shares() {
			check.MustEqual(t, share.Entries, entries[i].Entries, "entries with the bits", i)
			if (share.Hashes > 0) != (share.Entries > 0) || share.Hashes > share.Entries {
				t.Fatalf("%d hashes in %d entries", share.Hashes, share.Entries)
			}
		}
	}
	if !x.MayExist(hash) && len(all) > 0 {
		t.Fatalf("MayExist(%x) denies %+v", hash, all)
	}
	const top = 1<<63 - 1
	for _, limit := range []int{1, 3, 1000} {
		m.checkRange(t, x, hash, 0, top, limit)
	}
	for _, e := range all {
		want := m.ascend(hash, e.Number, e.Number, 1000)
		if got := found(x.Get(nil, hash, e.Number)); !slices.Equal(got, want) {
			t.Fatalf("Get(%x, %d) = %+v, want %+v", hash, e.Number, got, want)
		}
		m.checkRange(t, x, hash, e.Number, e.Number+5, 4)
		if m.packed {
			m.checkRange(t, x, hash, e.Number-501, e.Number+1001, 4)
		}
	}
	if got := found(x.Get(nil, hash, 1<<40)); len(got) != 0 {
		t.Fatalf("Get(%x) of a number never added = %+v", hash, got)
	}
}

func (m *model) checkRange(t tester, x *index.Index, hash uint64, low, high int64, limit int) {
	t.Helper()
	prefix := []index.Entry{{Hash: 1}, {Hash: 2}}
	want := append(slices.Clone(prefix), m.ascend(hash, low, high, limit)...)
	if got := found(x.Ascend(slices.Clone(prefix), hash, low, high, limit)); !slices.Equal(got, want) {
		t.Fatalf("Ascend(%x, %d, %d, %d) = %+v, want %+v", hash, low, high, limit, got, want)
	}
	want = append(slices.Clone(prefix), m.descend(hash, high, low, limit)...)
	if got := found(x.Descend(slices.Clone(prefix), hash, high, low, limit)); !slices.Equal(got, want) {
		t.Fatalf("Descend(%x, %d, %d, %d) = %+v, want %+v", hash, high, low, limit, got, want)
	}
}

// verifyFiles checks the set on disk offline: it holds just the entries below its checkpoint.
func (m *model) verifyFiles(t tester, fsys vfs.FS, dir string) {
	t.Helper()
	x := check.Value(index.OpenReadOnly(fsys, dir)).Must(t)
	defer func() { check.Must(t, x.Close()) }()
	var want []index.Entry
	for _, e := range m.log {
		if e.Position < x.Checkpoint() {
			want = append(want, e)
		}
	}
	slices.SortFunc(want, less)
	var got []index.Entry
	for e, err := range x.Entries() {
		check.Must(t, err)
		got = append(got, e)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("files hold %d entries below %d, want %d", len(got), x.Checkpoint(), len(want))
	}
}

// fill adds n entries over a few streams in batches and returns the model.
func fill(t *testing.T, x *index.Index, m *model, n, streams int) {
	t.Helper()
	for i := 0; i < n; i += 10 {
		var batch []index.Entry
		for j := i; j < min(n, i+10); j++ {
			k := len(m.log)
			batch = append(batch, m.add(spread(uint64(k%streams)), int64(k/streams)))
		}
		check.Must(t, x.Add(batch, m.end, event.Chain{}))
	}
}

// spread makes a uniform hash of a small number.
func spread(n uint64) uint64 {
	n = (n + 1) * 0x9e3779b97f4a7c15
	n ^= n >> 32
	n *= 0xd6e8feb86659fd93
	return n ^ n>>29
}
