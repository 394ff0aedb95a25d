package eventlog

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// TestRottedMap: whatever bit of a position map changes, an item is found where it is or damage is
// met: none that is there reads as removed, and none is passed over.
func TestRottedMap(t *testing.T) {
	m := newModel()
	m.someFrames(16, true)
	l := emptyLog(t)
	write(t, l, m.frames...)
	removed := map[int64]bool{}
	_, err := l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 0, IDsFrom: chunkfile.ChunkSize, Keep: func(s *Stored) bool {
		if s.Number%3 == 1 {
			removed[s.Position] = true
		}
		return !removed[s.Position]
	}})
	check.Must(t, err)
	v := check.Value(l.view()).Must(t)
	defer v.release()
	c := v.set.chunks[0]
	var records, items []int64 // positions, the second with trailers and without what was removed
	for _, f := range m.frames {
		if chunkfile.ChunkNumber(f.First) > 0 {
			break
		}
		for at := 0; at < len(f.Records); {
			it := check.Value(chunkfile.ParseItem(f.Records[at:])).Must(t)
			records = append(records, it.Position())
			if !removed[it.Position()] {
				items = append(items, it.Position())
			}
			at += len(it)
		}
		items = append(items, f.First+int64(len(f.Records)))
	}
	if len(removed) < 3 || len(items) != c.MapEntries() {
		t.Fatalf("%d removed, %d items, %d in the map", len(removed), len(items), c.MapEntries())
	}
	file, err := l.opts.FS.OpenReadWrite(filepath.Join(testDir, newestFile(t, l.opts.FS, 0)))
	check.Must(t, err)
	defer func() { check.Must(t, file.Close()) }()
	met := 0
	damaged := func(err error) bool {
		if event.IsCorruption(err) {
			met++
		} else if err != nil {
			t.Fatal(err)
		}
		return err != nil
	}
	for bit := range c.Footer.MapSize * 8 {
		at := chunkfile.HeaderSize + c.Footer.DataSize + bit/8
		flip := func() {
			b := make([]byte, 1)
			check.Must(t, vfs.ReadFull(file, b, at))
			b[0] ^= 1 << (bit % 8)
			_, err := file.WriteAt(b, at)
			check.Must(t, err)
		}
		flip()
		for _, p := range records {
			if it, err := v.itemAt(p, new([]byte)); !damaged(err) && (it == nil) != removed[p] {
				t.Fatalf("bit %d: item %v at %d, removed: %v", bit, it, p, removed[p])
			}
			// The first item after it, and the last before it.
			next := 0
			for next < len(items) && items[next] <= p {
				next++
			}
			cu := cursor{v: v}
			if err := cu.seekForward(p + 1); !damaged(err) && next < len(items) {
				if _, is, err := cu.next(); !damaged(err) && is != items[next] {
					t.Fatalf("bit %d: %d follows %d, want %d", bit, is, p, items[next])
				}
			}
			if err := cu.seekBackward(p + 1); !damaged(err) && next > 0 {
				if _, is, err := cu.prev(); !damaged(err) && is != items[next-1] {
					t.Fatalf("bit %d: %d is before %d, want %d", bit, is, p+1, items[next-1])
				}
			}
		}
		flip()
	}
	if met < int(c.Footer.MapSize) {
		t.Errorf("damage was met %d times", met)
	}
}

// TestRotAndDecisions: with any bit of the index changed after it was read, the facts of a stream
// that numbers are given by are right, or are not told.
func TestRotAndDecisions(t *testing.T) {
	m := newModel()
	m.someFrames(60, false)
	dir := t.TempDir()
	o := Options{Dir: dir, ClusterID: testCluster, StreamCache: 1, SkipVerify: true}
	o.EnsureDefaults()
	l := mustOpen(t, o)
	write(t, l, m.frames...)
	check.Must(t, l.index.Flush())
	closeLog(t, l)
	last := map[string]int64{}
	for _, f := range m.frames {
		for _, e := range f.events {
			if e.number != event.TombstoneNumber {
				last[e.stream] = e.number
			}
		}
	}
	met := 0
	for round := range int64(16) {
		l := mustOpen(t, o)
		tables := l.index.Tables()
		name := filepath.Join(dir, "index", tables[0].File)
		for s := range last {
			_, err := l.Reads.StreamInfo(s)
			check.Must(t, err)
		}
		file := check.Value(o.FS.OpenReadWrite(name)).Must(t)
		b := make([]byte, 1)
		at := 32 + (round*997)%(tables[0].Entries*24)
		check.Must(t, vfs.ReadFull(file, b, at))
		change := func(mask byte) {
			b[0] ^= mask
			_, err := file.WriteAt(b, at)
			check.Must(t, err)
		}
		change(1 << (round % 8))
		for s, n := range last {
			l.Reads.streams.reset()
			info, err := l.Reads.StreamInfo(s)
			if event.IsCorruption(err) {
				met++
			} else if err != nil || info.Last != n {
				t.Fatalf("round %d: the last of %s is %d, %v; want %d", round, s, info.Last, err, n)
			}
			_, err = l.Reads.PositionOf(s, n)
			if err != nil && !event.IsCorruption(err) {
				t.Fatal(err)
			}
		}
		change(1 << (round % 8))
		check.Must(t, errors.Join(file.Sync(), file.Close()))
		closeLog(t, l)
		l = mustOpen(t, o) // Builds it again if damage was known.
		check.Must(t, l.index.Flush())
		closeLog(t, l)
	}
	if met == 0 {
		t.Error("no damage was met")
	}
}
