package state

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// hashes with ever more collisions, and one that piles all up at the end of the table.
var hashes = []struct {
	name string
	hash func([]byte) uint64
}{
	{"xxh3", hashName},
	{"few", func(name []byte) uint64 { return hashName(name) % 50 << 58 }},
	{"same tag", func(name []byte) uint64 { return hashName(name) &^ (1<<tagBits - 1) }},
	{"same home", func(name []byte) uint64 { return hashName(name) & (1<<tagBits - 1) }},
	{"last home", func(name []byte) uint64 { return ^uint64(0) - hashName(name)%3 }},
	{"one", func([]byte) uint64 { return 7 }},
}

func TestDecisionsModel(t *testing.T) {
	r := seeded(t)
	for _, h := range hashes {
		for _, n := range []int{0, 1, 2, 30, scaled(1000)} {
			t.Run(fmt.Sprintf("%s/%d", h.name, n), func(t *testing.T) {
				want, byHash := map[string]Decision{}, map[uint64][]NamedDecision{}
				var names []string
				for range n {
					name := strconv.Itoa(r.IntN(10 * n))
					if r.IntN(50) == 0 {
						name = string(bytes.Repeat([]byte(name), r.IntN(100)))
					}
					if _, ok := want[name]; ok {
						continue
					}
					d := Decision{Discard: r.Int64N(5) * r.Int64()}
					d.Discard = max(d.Discard, 0)
					if r.IntN(2) == 0 {
						d.Maybe, d.Cutoff = 1+r.Int64N(1<<40), r.Int64()-r.Int64()
					}
					want[name] = d
					names = append(names, name)
					hash := h.hash([]byte(name))
					byHash[hash] = append(byHash[hash], NamedDecision{Name: []byte(name), Decision: d})
				}
				fsys := vfs.NewMem()
				table, err := buildDecisions(t.Context(), fsys, "decisions", h.hash, func(put func([]byte, Decision) error) error {
					for _, name := range names {
						if err := put([]byte(name), want[name]); err != nil {
							return err
						}
					}
					return nil
				})
				check.Must(t, err)
				check.MustEqual(t, table.n, int64(len(want)), len(want))
				for _, name := range names {
					if d, ok := table.Find([]byte(name)); !ok || d != want[name] {
						t.Fatalf("%q: %+v %t, want %+v", name, d, ok, want[name])
					}
				}
				for i := range n + 10 {
					name := "no" + strconv.Itoa(i)
					if d, ok := table.Find([]byte(name)); ok {
						t.Fatalf("%q: %+v", name, d)
					}
					if hash := h.hash([]byte(name)); (table.ByHash(nil, hash) != nil) != (byHash[hash] != nil) {
						t.Fatalf("hash %x", hash)
					}
				}
				for hash, all := range byHash {
					if got := table.ByHash(nil, hash); !slices.EqualFunc(got, all, func(a, b NamedDecision) bool {
						return a.Decision == b.Decision && bytes.Equal(a.Name, b.Name)
					}) {
						t.Fatalf("hash %x: %d decisions, want %d", hash, len(got), len(all))
					}
				}
				check.Must(t, errors.Join(table.Err(), table.Close(), table.Close()))
				if names, err := fsys.List("/"); err != nil || len(names) > 0 {
					t.Fatalf("left: %q, %v", names, err)
				}
			})
		}
	}
}

// TestDecisionsMany is large enough for all parts to be spilled, and maps a real file.
func TestDecisionsMany(t *testing.T) {
	n := scaled(1_000_000)
	dir := t.TempDir()
	name := func(dst []byte, i int) []byte { return strconv.AppendInt(append(dst[:0], "stream-"...), int64(i), 10) }
	table := buildFromList(t, vfs.OS, dir, n, name)
	var scratch []byte
	for i := 0; i < n; i += 7 {
		scratch = name(scratch, i)
		if d, ok := table.Find(scratch); !ok || d.Discard != int64(i)+1 {
			t.Fatalf("%s: %+v %t", scratch, d, ok)
		}
		if scratch = name(scratch, n+i); table.ByHash(nil, hashName(scratch)) != nil {
			t.Fatalf("%s is found", scratch)
		}
	}
	if names, err := vfs.OS.List(dir); err != nil || !slices.Equal(names, []string{"decisions.tmp"}) {
		t.Fatalf("there are %q, %v", names, err)
	}
	check.MustEqual(t, testing.AllocsPerRun(100, func() { table.Find(scratch) }), 0, "allocations")
}

func TestDecisionsConcurrently(t *testing.T) {
	table := buildFromList(t, vfs.OS, t.TempDir(), 10_000, benchName)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 20_000 {
				if _, ok := table.Find(benchName(nil, i)); ok != (i < 10_000) {
					t.Errorf("%d: %t", i, ok)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestDecisionsDamaged changes each byte of a file: no answer may be wrong but a missing one.
func TestDecisionsDamaged(t *testing.T) {
	table := buildFromList(t, vfs.NewMem(), "/", 40, benchName)
	for at := range table.data {
		for _, bit := range []byte{1, 0x80} {
			table.data[at] ^= bit
			for i := 0; i < 80; i += 3 {
				name := benchName(nil, i)
				if d, ok := table.Find(name); ok && (i >= 40 || d.Discard != int64(i)+1) {
					t.Fatalf("byte %d: %s: %+v", at, name, d)
				}
				table.ByHash(nil, hashName(name))
			}
			table.data[at] ^= bit
		}
	}
	if err := table.Err(); !event.IsCorruption(err) {
		t.Fatal(err)
	}
}

func TestDecisionsFault(t *testing.T) {
	dir := t.TempDir()
	table := buildFromList(t, vfs.OS, dir, 10_000, benchName)
	search := func() (err error) {
		defer table.Guard(&err)()
		for i := range 10_000 {
			table.Find(benchName(nil, i))
		}
		return nil
	}
	check.Must(t, search())
	check.Must(t, os.Truncate(filepath.Join(dir, "decisions.tmp"), 0))
	if err := search(); !event.IsCorruption(err) {
		t.Fatal(err)
	}
	if err := table.Err(); !event.IsCorruption(err) {
		t.Fatal(err)
	}
	defer func() {
		if r := recover(); r != errMine {
			t.Fatal(r)
		}
	}()
	func() {
		var err error
		defer table.Guard(&err)()
		panic(errMine)
	}()
}

func TestDecisionsErrors(t *testing.T) {
	errInjected := errors.New("injected")
	for at := 0; ; at++ {
		operations := 0
		disk := vfs.NewMem()
		fsys := vfs.NewFaulty(disk, func(vfs.Op) error {
			if operations++; operations == at+1 {
				return errInjected
			}
			return nil
		})
		// All names in one part, so that a block is spilled and read again.
		table, err := buildDecisions(context.Background(), fsys, "decisions", func(name []byte) uint64 { return xxh3.Hash(name) >> 8 },
			func(put func([]byte, Decision) error) error {
				for i := range 3 * blockPairs {
					if err := put(binary.BigEndian.AppendUint32(nil, uint32(i)), Decision{Discard: 1}); err != nil {
						return err
					}
				}
				return nil
			})
		if err == nil {
			for i := 0; i < 3*blockPairs; i += 61 {
				if _, ok := table.Find(binary.BigEndian.AppendUint32(nil, uint32(i))); !ok {
					t.Fatal(i)
				}
			}
			err = table.Close()
		}
		if operations <= at {
			check.Must(t, err)
			break
		}
		check.MustBe(t, err, errInjected, "operation", at)
	}
}
