package index_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// The format of tables, once more.
const (
	headerSize = 32
	entrySize  = 24
	blockSize  = 1024 * entrySize
)

// onBoth runs a test on files that are mapped into memory and on some that are not.
func onBoth(t *testing.T, test func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("mapped", func(t *testing.T) { test(t, vfs.OS, t.TempDir()) })
	t.Run("read", func(t *testing.T) { test(t, vfs.NewMem(), "db/index") })
}

// blockAt returns where a block of a table begins.
func blockAt(t *testing.T, fsys vfs.FS, file string, packed bool, number int64) int64 {
	t.Helper()
	if !packed {
		return headerSize + number*blockSize
	}
	data := check.Value(vfs.ReadFile(fsys, file)).Must(t)
	foot := data[len(data)-80:]
	blocks := (int64(binary.LittleEndian.Uint64(foot[8:])) + 1023) / 1024
	lines := data[int64(len(data))-80-8-128-32*blocks:]
	return int64(binary.LittleEndian.Uint64(lines[32*number+16:]))
}

// oneTable makes an index of one table with many blocks and closes it.
func oneTable(t *testing.T, fsys vfs.FS, dir string, entries, streams int, packed bool) (*model, string) {
	t.Helper()
	m := &model{packed: packed}
	x := open(t, index.Options{Packed: packed, FS: fsys, Dir: dir})
	fill(t, x, m, entries, streams)
	check.Must(t, x.Flush())
	file := x.Tables()[0].File
	check.Must(t, x.Close())
	return m, filepath.Join(dir, file)
}

func warnings(b *bytes.Buffer) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: b, Level: hclog.Warn})
}

// everyStream says of which streams all that the index answers is compared: with the race detector,
// which sees the same in each, of a few in every block.
var everyStream = uint64(testkit.Fewer(7, 1))

// TestDamagedBlock: with a damaged block every lookup gives the right answer or an error. The index
// keeps working, does not copy the damage, and the next start rebuilds it.
func TestDamagedBlock(t *testing.T) { onShapes(t, testDamagedBlock) }

func testDamagedBlock(t *testing.T, packed bool) {
	const entries, streams, blocks = 5000, 700, 5
	for damaged := range blocks {
		onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
			m, file := oneTable(t, fsys, dir, entries, streams, packed)
			block := blockAt(t, fsys, file, packed, int64(damaged))
			flip(t, fsys, file, block+100)
			var logged bytes.Buffer
			x := open(t, index.Options{Packed: packed, FS: fsys, Dir: dir, Logger: warnings(&logged)})
			if x.Checkpoint() != m.end || x.Damage() != nil {
				t.Fatalf("checkpoint %d of %d, damage %v", x.Checkpoint(), m.end, x.Damage())
			}
			failed := 0
			refused := func(err error) bool {
				if c, ok := err.(*event.Corruption); ok && c.File == file && c.Offset == block {
					failed++
				} else if err != nil {
					t.Fatal(err)
				}
				return err != nil
			}
			for h := range uint64(streams + 50) {
				all := m.of(spread(h))
				if e, ok, err := x.Last(spread(h)); !refused(err) && (ok != (len(all) > 0) || ok && e != all[len(all)-1]) {
					t.Fatalf("Last(%d) = %v, %v", h, e, ok)
				}
				if got, err := x.Ascend(nil, spread(h), 0, 1<<62, 100); !refused(err) && !slices.Equal(got, all) {
					t.Fatalf("Ascend(%d) = %v", h, got)
				}
				third := int64(3)
				if packed && len(all) > 0 {
					third = all[min(3, len(all)-1)].Number
				}
				if got, err := x.Get(nil, spread(h), third); !refused(err) && !slices.Equal(got, m.ascend(spread(h), third, third, 1)) {
					t.Fatalf("Get(%d) = %v", h, got)
				}
				var down []index.Entry
				var err error
				for e, derr := range x.Down(spread(h), 1<<62, 0) {
					if err = derr; err == nil {
						down = append(down, e)
					}
				}
				slices.Reverse(down)
				if !refused(err) && !slices.Equal(down, all) {
					t.Fatalf("Down(%d) = %v", h, down)
				}
			}
			// All of a block's streams, and those that end or begin in a neighbour.
			if failed < 4*streams/blocks/2 || failed > 4*(streams+50)/blocks*2 {
				t.Errorf("%d lookups failed", failed)
			}
			fill(t, x, m, 100, streams)
			check.Must(t, x.Flush())
			for name, err := range map[string]error{
				"damage": x.Damage(), "merge": x.Merge(t.Context()),
				"scavenge": x.Scavenge(t.Context(), index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return e.Number > 2, nil }}),
			} {
				if !event.IsCorruption(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if _, err := x.Pin(); !event.IsCorruption(err) {
				t.Errorf("pin: %v", err)
			}
			fill(t, x, m, 100, streams)
			check.Must(t, x.Flush())
			check.Equal(t, len(x.Tables()), 3, "tables")
			check.Must(t, x.Close())
			check.Equal(t, strings.Count(logged.String(), "[ERROR]"), 1, "told ... times", &logged)
			rebuilt(t, fsys, dir, m)
		})
	}
}

// TestDamageBehindReads: blocks and pages that were right when they were read change on disk. Once
// the index is known to be damaged no lookup misses what is there, though it was right before.
func TestDamageBehindReads(t *testing.T) { onShapes(t, testDamageBehindReads) }

func testDamageBehindReads(t *testing.T, packed bool) {
	const entries, streams = 5000, 700
	onBoth(t, func(t *testing.T, fsys vfs.FS, dir string) {
		m, file := oneTable(t, fsys, dir, entries, streams, packed)
		x := open(t, index.Options{Packed: packed, FS: fsys, Dir: dir})
		defer func() { check.Must(t, x.Close()) }()
		for h := uint64(0); h < streams; h += everyStream {
			m.check(t, x, spread(h))
		}
		second := blockAt(t, fsys, file, packed, 1)
		end := blockAt(t, fsys, file, packed, 3)
		overwrite(t, fsys, file, second, end-second) // Of five blocks.
		overwrite(t, fsys, file+".bloomfilter", 32, 512)
		check.Must(t, index.Check(x, func(int64) error { return nil }))
		if !event.IsCorruption(x.Damage()) {
			t.Fatalf("damage: %v", x.Damage())
		}
		failed := 0
		for h := range uint64(streams) {
			want := m.of(spread(h))
			got, err := x.Ascend(nil, spread(h), 0, 1<<62, 100)
			e, ok, lerr := x.Last(spread(h))
			switch {
			case event.IsCorruption(err) || event.IsCorruption(lerr):
				failed++
			case err != nil || lerr != nil || !slices.Equal(got, want) || !ok || e != want[len(want)-1]:
				t.Fatalf("stream %d: %v, %v, %v; last: %v, %v, %v", h, got, want, err, e, ok, lerr)
			}
		}
		if failed < streams/5 || failed > streams*3/5 {
			t.Errorf("%d lookups of %d failed", failed, streams)
		}
	})
}

// overwrite changes bytes of a file under those who have it open.
func overwrite(t *testing.T, fsys vfs.FS, name string, at, n int64) {
	t.Helper()
	f, err := fsys.OpenReadWrite(name)
	check.Must(t, err)
	data := make([]byte, n)
	_, err = f.ReadAt(data, at)
	check.Must(t, err)
	for i := range data {
		data[i] ^= 0x5a
	}
	_, err = f.WriteAt(data, at)
	check.Must(t, err)
	check.Must(t, f.Close())
}

// rebuilt expects an index that must be built again, and builds it.
func rebuilt(t *testing.T, fsys vfs.FS, dir string, m *model) {
	t.Helper()
	x := open(t, index.Options{Packed: m.packed, FS: fsys, Dir: dir})
	if x.Checkpoint() != 0 || len(x.Tables()) != 0 {
		t.Fatalf("checkpoint %d, tables %v", x.Checkpoint(), x.Tables())
	}
	m.replay(t, x)
	check.Must(t, x.Flush())
	check.Must(t, x.Close())
	m.verifyFiles(t, fsys, dir)
}

// TestMergeFindsDamage: nothing was read of the block before.
func TestMergeFindsDamage(t *testing.T) { onShapes(t, testMergeFindsDamage) }

func testMergeFindsDamage(t *testing.T, packed bool) {
	fsys, m, tables := build(t, packed)
	flip(t, fsys, filepath.Join(dir, tables[0].File), 300)
	x := open(t, index.Options{Packed: packed, FS: fsys})
	if err := x.Merge(t.Context()); !event.IsCorruption(err) || x.Damage() == nil || !slices.Equal(x.Tables(), tables) {
		t.Fatalf("merge: %v, damage %v, tables %v", err, x.Damage(), x.Tables())
	}
	check.Must(t, x.Close())
	rebuilt(t, fsys, dir, m)
}

// TestDamagedTableAtOpen: the existence filter is rebuilt from a damaged table.
func TestDamagedTableAtOpen(t *testing.T) { onShapes(t, testDamagedTableAtOpen) }

func testDamagedTableAtOpen(t *testing.T, packed bool) {
	fsys, m, tables := build(t, packed)
	flip(t, fsys, filepath.Join(dir, tables[1].File), 300)
	check.Must(t, fsys.Remove(filepath.Join(dir, "stream-existence", "streamExistenceFilter.dat")))
	rebuilt(t, fsys, dir, m)
}

// TestDamagedFilterPage: a filter denies nothing where it is damaged, and the next start rebuilds
// it.
func TestDamagedFilterPage(t *testing.T) {
	const streams = 60_000 // three pages
	fsys, dir := vfs.OS, t.TempDir()
	m, file := oneTable(t, fsys, dir, streams, streams, false)
	file += ".bloomfilter"
	flip(t, fsys, file, 32+40_000)
	for _, warned := range []int{1, 0} {
		var logged bytes.Buffer
		x := open(t, index.Options{FS: fsys, Dir: dir, ExistenceFilterMax: -1, Logger: warnings(&logged)})
		for h := range uint64(streams) {
			if _, ok := last(x, spread(h)); !ok {
				t.Fatalf("%d is not there", h)
			}
		}
		for h := range uint64(1000) {
			if e, ok := last(x, spread(streams+h)); ok {
				t.Fatalf("%d is there: %v", h, e)
			}
		}
		if _, err := fsys.Stat(file); strings.Count(logged.String(), "next start") != warned || (err == nil) != (warned == 0) || x.Damage() != nil {
			t.Fatalf("%s, file: %v, damage %v", &logged, err, x.Damage())
		}
		check.Must(t, x.Close())
	}
	m.verifyFiles(t, fsys, dir)
}

// TestDamagedFilterIsKnown: once a lookup has found that a filter changed, no other one believes it
// because it was right before.
func TestDamagedFilterIsKnown(t *testing.T) {
	const streams = 300
	fsys, dir := vfs.OS, t.TempDir()
	m, file := oneTable(t, fsys, dir, streams, streams, false)
	x := open(t, index.Options{FS: fsys, Dir: dir})
	for h := range uint64(streams) {
		m.check(t, x, spread(h))
	}
	overwriteWith(t, fsys, file+".bloomfilter", 32, make([]byte, 256)...)
	for h := range uint64(streams) {
		if _, ok := last(x, spread(h)); !ok {
			t.Fatalf("%d is not there", h)
		}
	}
	for h := range uint64(streams) {
		m.check(t, x, spread(h))
	}
	check.Must(t, x.Close())
}

// What a table denies that has just changed, or its filter, is there all the same, or an error, for
// every kind of lookup: a page of a stream has no gap.
func TestTableThatHasJustChanged(t *testing.T) {
	justChanged(t, ".bloomfilter", 32, 256)
	for at := range int64(20) {
		justChanged(t, "", 100+300*at, 32)
	}
}

func justChanged(t *testing.T, suffix string, at int64, bytes int) {
	const streams, each = 100, 3
	fsys, dir := vfs.OS, t.TempDir()
	_, file := oneTable(t, fsys, dir, streams*each, streams, false)
	x := open(t, index.Options{FS: fsys, Dir: dir})
	defer func() { check.Must(t, x.Close()) }()
	all := func() {
		for h := range uint64(streams) {
			judge := func(name string, found []index.Entry, err error, want int) {
				if err == nil && len(found) != want {
					t.Fatalf("%s of %d found %d entries with %d bytes at %d%s changed", name, h, len(found), bytes, at, suffix)
				}
			}
			found, err := x.Ascend(nil, spread(h), 0, each-1, each)
			judge("ascend", found, err, each)
			found, err = x.Descend(nil, spread(h), each-1, 0, each)
			judge("descend", found, err, each)
			found, err = x.Get(nil, spread(h), 1)
			judge("get", found, err, 1)
			pages := index.Pages{Index: x, Hash: spread(h)}
			found, _, err = pages.Next(nil, 0, each-1, false)
			judge("page", found, err, each)
		}
	}
	all()
	overwriteWith(t, fsys, file+suffix, at, make([]byte, bytes)...)
	all()
}

// TestOpenReadsLittle: what is read of a table at open does not grow with it.
func TestOpenReadsLittle(t *testing.T) { onShapes(t, testOpenReadsLittle) }

func testOpenReadsLittle(t *testing.T, packed bool) {
	fsys := vfs.NewMem()
	dir := "db/index"
	oneTable(t, fsys, dir, 200_000, 100, packed)
	var read int64
	counting := vfs.NewFaulty(fsys, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && !strings.Contains(op.Name, "stream-existence") {
			read += op.Len
		}
		return nil
	})
	x := open(t, index.Options{Packed: packed, FS: counting, Dir: dir})
	size := x.Tables()[0].Bytes
	check.Must(t, x.Close())
	if read > size/map[bool]int64{false: 500, true: 50}[packed] {
		t.Errorf("read %d bytes of %d", read, size)
	}
}

// TestRotAfterReads: any bit of what was compared with its checksum may change. Certain lookups
// answer rightly or not at all, at once; others do when what they believe is ten seconds old.
func TestRotAfterReads(t *testing.T) { onShapes(t, testRotAfterReads) }

func testRotAfterReads(t *testing.T, packed bool) {
	const entries, streams = 3000, 300
	fsys, dir := vfs.OS, t.TempDir()
	m, file := oneTable(t, fsys, dir, entries, streams, packed)
	size := int64(entries * entrySize)
	if packed {
		size = blockAt(t, fsys, file, packed, entries/1024)
	}
	for _, place := range []struct {
		name     string
		file     string
		at, size int64
	}{
		{"hash", file, headerSize, entrySize},
		{"number", file, headerSize + 8, entrySize},
		{"position", file, headerSize + 16, entrySize},
		{"filter", file + ".bloomfilter", 32, 1},
	} {
		t.Run(place.name, func(t *testing.T) {
			step, first := testkit.Sample(t, 3)
			for round := int64(first); round < 8; round += int64(step) {
				x := open(t, index.Options{Packed: packed, FS: fsys, Dir: dir})
				for h := uint64(0); h < streams; h += everyStream {
					m.check(t, x, spread(h))
				}
				at := place.at + round*37*place.size
				data := check.Value(os.ReadFile(place.file)).Must(t)
				data[at] ^= 1 << round
				overwriteWith(t, fsys, place.file, at, data[at])
				failed := 0
				for h := range uint64(streams + 50) {
					all := m.of(spread(h))
					e, ok, err := x.Last(spread(h))
					newest := all[max(len(all)-1, 0):]
					number := int64(len(all)) - 1
					if packed && number >= 0 {
						number = newest[0].Number
					}
					got, gerr := index.GetCertain(x, nil, spread(h), number)
					if event.IsCorruption(err) {
						failed++
					} else if err != nil || ok != (len(all) > 0) || ok && e != newest[0] {
						t.Fatalf("%d: Last %v, %v, %v", h, e, ok, err)
					}
					if !event.IsCorruption(gerr) && (gerr != nil || !slices.Equal(got, newest)) {
						t.Fatalf("%d: GetCertain %v, %v", h, got, gerr)
					}
				}
				if inTable := place.file == file; inTable != (failed > 0) || inTable != (x.Damage() != nil) {
					t.Errorf("%d lookups failed, damage %v", failed, x.Damage())
				}
				check.Must(t, x.Close())
				data[at] ^= 1 << round
				check.Must(t, os.WriteFile(place.file, data, 0o644))
			}
		})
	}
	x := open(t, index.Options{Packed: packed, FS: fsys, Dir: dir})
	defer func() { check.Must(t, x.Close()) }()
	hash := m.log[0].Hash
	m.check(t, x, hash)
	overwrite(t, fsys, file, headerSize, size)
	if got, err := x.Ascend(nil, hash, 0, 1<<62, 1); err == nil && (packed || len(got) > 0 && got[0] == m.of(hash)[0]) {
		t.Fatal("nothing was overwritten")
	}
	index.ForgetChecks(x)
	if got, err := x.Ascend(nil, hash, 0, 1<<62, 1); !event.IsCorruption(err) {
		t.Errorf("ten seconds later: %v, %v", got, err)
	}
}

func overwriteWith(t *testing.T, fsys vfs.FS, name string, at int64, b ...byte) {
	t.Helper()
	f, err := fsys.OpenReadWrite(name)
	check.Must(t, err)
	_, err = f.WriteAt(b, at)
	check.Must(t, errors.Join(err, f.Close()))
}
