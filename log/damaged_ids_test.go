package eventlog

import (
	"errors"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// TestDamagedIDs: a start that cannot read some events knows the ids of all others. It cannot tell
// for writes to the streams of the damaged ones alone, or for all where a removed one is damaged,
// and says so.
func TestDamagedIDs(t *testing.T) {
	for _, name := range []string{"as written", "with a map", "with stubs"} {
		t.Run(name, func(t *testing.T) {
			m, fsys := newModel(), vfs.NewMem()
			l := mustOpen(t, testOptions(fsys))
			write(t, l, m.someFrames(16, true)...)
			switch name {
			case "with a map":
				merge(t, l, 0, 0)
			case "with stubs":
				removed := map[int64]bool{}
				_, err := l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 0, Keep: func(s *Stored) bool {
					removed[s.Position] = len(removed) < 5 && m.last[string(s.Stream)] != s.Number
					return !removed[s.Position]
				}})
				check.Must(t, err)
				check.Must(t, l.index.Flush())
				check.Must(t, l.index.Scavenge(background, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return !removed[e.Position], nil }}))
			}
			check.Must(t, l.index.Flush())
			first := newestFile(t, fsys, 0)
			closeLog(t, l)
			data := check.Value(vfs.ReadFile(fsys, testDir+"/"+first)).Must(t)
			var offsets []int64 // of items of the first chunk, trailers too
			for at := int64(chunkfile.HeaderSize); ; {
				it, err := chunkfile.ParseItem(data[at:])
				if err != nil {
					break
				}
				offsets = append(offsets, at)
				at += int64(len(it))
			}
			for _, at := range offsets {
				for _, field := range []int64{0, 40} { // Its length; its id or chain.
					rot(t, fsys, first, at+field)
					idsWithout(t, fsys, m, chunkfile.Item(data[at:]))
					rot(t, fsys, first, at+field)
				}
			}
		})
	}
}

// idsWithout opens a log of which an item is damaged, and asks for all ids.
func idsWithout(t *testing.T, fsys vfs.FS, m *model, damaged chunkfile.Item) {
	t.Helper()
	o := testOptions(fsys)
	l := mustOpen(t, o)
	defer closeLog(t, l)
	<-l.Reads.ids.loaded
	concerned := func(uint64) bool { return damaged.IsStub() }
	if damaged.IsRecord() {
		concerned = func(stream uint64) bool { return stream == damaged.StreamHash() }
	}
	for _, f := range m.frames {
		for _, e := range f.events {
			stream := chunkfile.HashStream(e.stream)
			isDamaged := !damaged.IsTrailer() && stream == damaged.StreamHash() && e.number == damaged.Number()
			n, ok, err := l.Facts.FindID(e.stream, e.id)
			has, herr := l.Facts.HasID(e.stream, e.number, e.id)
			if isDamaged {
				if !event.IsCorruption(err) || !event.IsCorruption(herr) {
					t.Fatalf("the damaged event: %d, %v, %v; %v, %v", n, ok, err, has, herr)
				}
				continue
			}
			if err != nil || !ok || n != e.number || herr != nil || !has {
				t.Fatalf("event %d of %s: %d, %v, %v; %v, %v", e.number, e.stream, n, ok, err, has, herr)
			}
			_, ok, err = l.Facts.FindID(e.stream, event.ID{9})
			_, undecided := errors.AsType[*event.CannotDecide](err)
			if ok || undecided != concerned(stream) || err != nil && !undecided {
				t.Fatalf("an unknown id in %s: %v, %v", e.stream, ok, err)
			}
		}
	}
	if (l.Facts.Unfit() != nil) == damaged.IsTrailer() {
		t.Errorf("unfit: %v", l.Facts.Unfit())
	}
}
