package eventlog

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// scavenged removes every second record of the streams "a…" and tells which.
func scavenged(m *model, below int64) (removed map[int64]bool, keep func(chunkfile.Item) bool) {
	removed = map[int64]bool{}
	for _, f := range m.frames {
		for _, e := range f.events {
			if e.position < below && e.stream[0] == 'a' && e.number%2 == 0 {
				removed[e.position] = true
			}
		}
	}
	return removed, func(it chunkfile.Item) bool { return !removed[it.Position()] }
}

func TestSwitchChunk(t *testing.T) {
	cases := map[string]struct {
		sources []string
		version int
		left    []string
	}{
		"one chunk":  {[]string{chunkfile.FileName(1, 0)}, 1, []string{chunkfile.FileName(0, 0), chunkfile.FileName(1, 1), chunkfile.FileName(2, 0), chunkfile.FileName(3, 0)}},
		"two merged": {[]string{chunkfile.FileName(0, 0), chunkfile.FileName(1, 0)}, 1, []string{chunkfile.FileName(0, 1), chunkfile.FileName(2, 0), chunkfile.FileName(3, 0)}},
		"all merged": {[]string{chunkfile.FileName(0, 0), chunkfile.FileName(1, 0), chunkfile.FileName(2, 0)}, 1, []string{chunkfile.FileName(0, 1), chunkfile.FileName(3, 0)}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			mem := vfs.NewCrashMem()
			counting := vfs.NewCounting(mem)
			o := testOptions(counting)
			l := mustOpen(t, o)
			write(t, l, m.someFrames(17, true)...)
			removed, keep := scavenged(m, 3*chunkfile.ChunkSize)
			for p := range removed { // Of the chunks that are rewritten.
				if !slices.Contains(c.sources, chunkfile.FileName(chunkfile.ChunkNumber(p), 0)) {
					delete(removed, p)
				}
			}
			rewrite(t, counting, "x.tmp", c.sources, keep)

			// A reader that began before keeps the old file.
			old := check.Value(l.view()).Must(t)
			check.Must(t, l.SwitchChunk("x.tmp"))
			verify(t, l, m.frames, removed)
			if got := chunkFiles(t, counting); len(got) != len(c.left)+len(c.sources) {
				t.Fatalf("files %v while the old ones are read", got)
			}
			cu := cursor{v: old}
			check.Must(t, cu.seekForward(0))
			items := 0
			for it, _, err := cu.next(); it != nil; it, _, err = cu.next() {
				check.Must(t, err)
				items++
			}
			check.MustEqual(t, items, 4*17, "the old view shows ... items")
			unfinished := mem.CrashClone(vfs.CrashOptions{}) // Between the rename and the removal.
			old.release()
			check.MustSlice(t, chunkFiles(t, counting), c.left, "files")
			write(t, l, m.someFrames(3, true)...)
			verify(t, l, m.frames, removed)
			closeLog(t, l)
			if open := counting.OpenFiles(); len(open) > 0 {
				t.Fatalf("left open: %v", open)
			}
			if misuse := counting.UsedAfterClose(); len(misuse) > 0 {
				t.Fatalf("used after close: %v", misuse)
			}

			l = mustOpen(t, o)
			verify(t, l, m.frames, removed)
			closeLog(t, l)
			// The index is rebuilt from what is left.
			check.Must(t, mem.RemoveAll(filepath.Join(testDir, "index")))
			l = mustOpen(t, o)
			rebuilt := func() error { return holds(l, m.frames, nil) }
			check.MustFail(t, rebuilt(), "removed records are indexed")
			for _, f := range m.frames {
				for _, e := range f.events {
					if got, err := l.index.Get(nil, chunkfile.HashStream(e.stream), e.number); err != nil || len(got) == 0 != removed[e.position] {
						t.Fatalf("index says %v, %v of event %d of %s", got, err, e.number, e.stream)
					}
				}
			}
			verify(t, l, m.frames, removed)

			o.FS = unfinished
			l = mustOpen(t, o)
			verify(t, l, m.frames[:17], removed)
			check.MustSlice(t, chunkFiles(t, unfinished), c.left, "files ... after the crash")
		})
	}
}

func TestRemovedPositions(t *testing.T) {
	m := newModel()
	fsys := vfs.NewMem()
	l := mustOpen(t, testOptions(fsys))
	write(t, l, m.someFrames(11, true)...)
	// One chunk without any record, one with some.
	rewrite(t, fsys, "x.tmp", []string{chunkfile.FileName(0, 0)}, func(chunkfile.Item) bool { return false })
	check.Must(t, l.SwitchChunk("x.tmp"))
	removed, keep := scavenged(m, 2*chunkfile.ChunkSize)
	rewrite(t, fsys, "y.tmp", []string{chunkfile.FileName(1, 0)}, keep)
	check.Must(t, l.SwitchChunk("y.tmp"))
	for _, f := range m.frames[:5] {
		for _, e := range f.events {
			removed[e.position] = true
		}
	}
	verify(t, l, m.frames, removed)
	var left []event.Record
	page := check.Value(l.Reads.ReadAll(event.AllRead{Count: 100})).Must(t)
	for _, e := range page.Events {
		left = append(left, e.Record)
	}
	// From any position of the rewritten chunks reading continues with the next record that is
	// left.
	for p := int64(0); p < m.frames[9].tail.End; p++ {
		if p == 3000 {
			p = chunkfile.ChunkSize - 10
		}
		if p > chunkfile.ChunkSize+3000 {
			break
		}
		next := slices.IndexFunc(left, func(r event.Record) bool { return r.Position >= p })
		page, err := l.Reads.ReadAll(event.AllRead{From: p, Count: 1})
		check.Must(t, err)
		check.MustEqual(t, page.Events[0].Position, left[next].Position, "forward from", p, page)
		page, err = l.Reads.ReadAll(event.AllRead{From: p, Count: 1, Backward: true})
		switch {
		case err != nil:
			t.Fatalf("backward from %d: %v", p, err)
		case next == 0 && (len(page.Events) != 0 || page.Next != 0 || page.More):
			t.Fatalf("backward from %d: %+v", p, page)
		case next > 0 && page.Events[0].Position != left[next-1].Position:
			t.Fatalf("backward from %d: %+v", p, page)
		}
	}
	check.MustBe(t, check.Err(l.Reads.ReadEvent("a0", 0, nil)), event.ErrEventNotFound)
}

func TestSwitchChunkRefuses(t *testing.T) {
	damage := func(offset int) func(t *testing.T, fsys vfs.FS) {
		return func(t *testing.T, fsys vfs.FS) {
			rewrite(t, fsys, "x.tmp", []string{chunkfile.FileName(1, 0)}, keepAll)
			edit(t, fsys, "x.tmp", func(b []byte) []byte { b[(len(b)+offset)%len(b)] ^= 1; return b })
		}
	}
	cases := map[string]func(t *testing.T, fsys vfs.FS){
		"no file":        func(*testing.T, vfs.FS) {},
		"header damaged": damage(30),
		"data damaged":   damage(chunkfile.HeaderSize + 30),
		"map damaged":    damage(-chunkfile.FooterSize - 3),
		"footer damaged": damage(-60),
		"footer missing": func(t *testing.T, fsys vfs.FS) {
			damage(0)(t, fsys)
			edit(t, fsys, "x.tmp", func(b []byte) []byte { return b[:len(b)-chunkfile.FooterSize] })
		},
		"the active one":  func(t *testing.T, fsys vfs.FS) { copyFile(t, fsys, chunkfile.FileName(3, 0), "x.tmp") },
		"another cluster": func(t *testing.T, fsys vfs.FS) { foreignChunk(t, fsys, event.ID{7}, 0) },
		"another history": func(t *testing.T, fsys vfs.FS) { foreignChunk(t, fsys, testCluster, 0) },
		"after the log":   func(t *testing.T, fsys vfs.FS) { foreignChunk(t, fsys, testCluster, 9) },
		"part of a merged file": func(t *testing.T, fsys vfs.FS) {
			foreignChunk(t, fsys, testCluster, 2)
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			fsys := vfs.NewCounting(vfs.NewMem())
			o := testOptions(fsys)
			o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
			l := mustOpen(t, o)
			write(t, l, m.someFrames(17, true)...)
			if name == "part of a merged file" {
				rewrite(t, fsys, "m.tmp", []string{chunkfile.FileName(1, 0), chunkfile.FileName(2, 0)}, keepAll)
				check.Must(t, l.SwitchChunk("m.tmp"))
			}
			prepare(t, fsys)
			before := chunkFiles(t, fsys)
			check.MustFail(t, l.SwitchChunk("x.tmp"), "the file was taken")
			check.MustSlice(t, chunkFiles(t, fsys), before, "files ..., before")
			verify(t, l, m.frames, nil)
			closeLog(t, l)
			if open := fsys.OpenFiles(); len(open) > 0 {
				t.Fatalf("left open: %v", open)
			}
		})
	}
}

func copyFile(t *testing.T, fsys vfs.FS, from, to string) {
	t.Helper()
	b := check.Value(vfs.ReadFile(fsys, filepath.Join(testDir, from))).Must(t)
	check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(testDir, to), b))
}

// foreignChunk puts a complete chunk of another log into the folder as x.tmp.
func foreignChunk(t *testing.T, fsys vfs.FS, cluster event.ID, number int) {
	t.Helper()
	h := chunkfile.Header{First: number, Last: number, FileID: event.ID(uuid.New()), Cluster: cluster}
	b := closeHeader(h.Bytes())
	f := chunkfile.Footer{LastCompletes: true, End: chunkfile.ChunkStart(number) + 64, DataSize: 64, FirstIndex: 1, LastIndex: 1, LastTerm: 1}
	b = append(b, make([]byte, 64)...)
	foot := f.Bytes(func(part []byte) [16]byte { return hash128(append(slices.Clone(b), part...)) })
	check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(testDir, "x.tmp"), append(b, foot...)))
}

// TestSwitchBetweenAppends: a switch publishes the set of chunks while frames wait
// for their commit; nothing of those may be seen before it.
func TestSwitchBetweenAppends(t *testing.T) {
	m := newModel()
	fsys := vfs.NewCounting(vfs.NewMem())
	l := mustOpen(t, testOptions(fsys))
	write(t, l, m.someFrames(7, true)...)
	more := m.someFrames(12, true) // Completes the active chunk, makes two more.
	for _, f := range more {
		check.Must(t, l.Append(f.Frame))
		rewrite(t, fsys, "x.tmp", []string{chunkFiles(t, fsys)[0]}, keepAll)
		check.Must(t, l.SwitchChunk("x.tmp"))
		verify(t, l, m.frames[:7], nil)
		mf := check.Value(l.Snapshot()).Must(t)
		check.MustEqual(t, mf.Tail.End, m.frames[6].tail.End, mf)
	}
	check.Must(t, l.Commit())
	verify(t, l, m.frames, nil)
	closeLog(t, l)
	if open := fsys.OpenFiles(); len(open) > 0 {
		t.Fatalf("left open: %v", open)
	}
	if _, err := fsys.Stat(filepath.Join(testDir, chunkfile.FileName(0, 11))); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("an old version is left: %v", err)
	}
}
