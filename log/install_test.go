package eventlog

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/inspect"
)

// rewrittenSource is a log whose chunks first to last are one rewritten file.
func rewrittenSource(t testing.TB, m *model, first, last int, keep func(chunkfile.Item) bool) *Log {
	t.Helper()
	l := emptyLog(t)
	write(t, l, m.frames...)
	var names []string
	for n := first; n <= last; n++ {
		names = append(names, chunkfile.FileName(n, 0))
	}
	rewrite(t, l.opts.FS, "x.tmp", names, keep)
	check.Must(t, l.SwitchChunk("x.tmp"))
	return l
}

// chunkFrom puts the file that a log has for a chunk into the folder of another one, and returns
// its name.
func chunkFrom(t testing.TB, from, to *Log, number int) string {
	t.Helper()
	file, name, err := to.Transfer.CreateTemp()
	check.Must(t, err)
	b, err := vfs.ReadFile(from.opts.FS, filepath.Join(testDir, newestFile(t, from.opts.FS, number)))
	check.Must(t, err)
	_, err = file.WriteAt(b, 0)
	check.Must(t, errors.Join(err, file.Close()))
	return name
}

func TestInstallChunk(t *testing.T) {
	m := newModel()
	m.someFrames(6, true)
	m.term = 2
	m.someFrames(11, true) // Chunks: 0 to 4, 5 to 10, 11 to 15, and one more frame.
	cases := map[string]struct {
		have, first, last int
		files             []string
	}{
		"into nothing":                            {0, 0, 1, []string{"chunk-000000.000001"}},
		"over a part of the active chunk":         {3, 0, 0, []string{"chunk-000000.000001"}},
		"over a whole chunk":                      {5, 0, 0, []string{"chunk-000000.000001"}},
		"after a whole chunk":                     {5, 1, 1, []string{"chunk-000000.000000", "chunk-000001.000001"}},
		"over the second, active":                 {7, 1, 1, []string{"chunk-000000.000000", "chunk-000001.000001"}},
		"merged over a whole and an active chunk": {8, 0, 1, []string{"chunk-000000.000001"}},
		"merged over whole chunks":                {11, 0, 2, []string{"chunk-000000.000001"}},
		"merged, over all there is":               {16, 0, 2, []string{"chunk-000000.000001"}},
		"merged, one chunk more":                  {5, 1, 2, []string{"chunk-000000.000000", "chunk-000001.000001"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			removed, keep := scavenged(m, 3*chunkfile.ChunkSize)
			for p := range removed {
				if n := chunkfile.ChunkNumber(p); n < c.first || n > c.last {
					delete(removed, p)
				}
			}
			from := rewrittenSource(t, m, c.first, c.last, keep)
			counting := vfs.NewCounting(vfs.NewMem())
			o := testOptions(counting)
			o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
			to := mustOpen(t, o)
			write(t, to, m.frames[:c.have]...)
			ends := slices.IndexFunc(m.frames, func(f testFrame) bool { return f.tail.End == chunkfile.ChunkStart(c.last+1) }) + 1
			scavenging := filepath.Join(to.opts.IndexDir, scavengeFolder)
			check.Must(t, counting.MkdirAll(scavenging))
			check.Must(t, vfs.WriteFileAtomic(counting, filepath.Join(scavenging, "scavenging.db"), []byte("x")))
			for _, f := range m.frames[:c.have] { // So that the facts are in the cache.
				for _, e := range f.events {
					_, err := to.Reads.StreamInfo(e.stream)
					check.Must(t, err)
				}
			}
			old := check.Value(to.view()).Must(t)
			before := old.tail
			woken := make(chan error, 2)
			last := to.mustLast(t, "a0")
			if ends > c.have {
				go func() { woken <- to.Reads.WaitLog(t.Context(), before.End) }()
				go func() { woken <- to.Reads.WaitStream(t.Context(), "a0", last) }()
			}

			check.Must(t, to.Transfer.InstallChunk(chunkFrom(t, from, to, c.first)))
			if ends > c.have {
				check.Must(t, errors.Join(<-woken, <-woken))
			}
			verify(t, to, m.frames[:ends], removed)
			// A reader that began before keeps the old files.
			cu := cursor{v: old}
			check.Must(t, cu.seekForward(0))
			items := 0
			for it, _, err := cu.next(); it != nil; it, _, err = cu.next() {
				check.Must(t, err)
				items++
			}
			check.MustEqual(t, items, 4*c.have, "the old view shows ... items")
			old.release()
			check.MustSlice(t, chunkFiles(t, counting), c.files, "files")
			if _, err := counting.Stat(scavenging); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("what was known of scavenging is left: %v", err)
			}
			check.MustEqual(t, to.syncer.chk.Writer.Value, to.Tail().End, "durable up to")
			// The log keeps working, here and after a restart.
			write(t, to, m.frames[ends:]...)
			verify(t, to, m.frames, removed)
			closeLog(t, to)
			if open := counting.OpenFiles(); len(open) > 0 {
				t.Fatalf("left open: %v", open)
			}
			if misuse := counting.UsedAfterClose(); len(misuse) > 0 {
				t.Fatalf("used after close: %v", misuse)
			}
			inspected(t, o)
			to = mustOpen(t, o)
			verify(t, to, m.frames, removed)
			closeLog(t, to)
		})
	}
}

// inspected expects that the offline inspection has nothing to say of a folder.
func inspected(t testing.TB, o Options) {
	t.Helper()
	_, err := inspect.Run(t.Context(), inspect.Options{FS: o.FS, Dir: o.Dir}, func(f inspect.Finding) { t.Errorf("found: %+v", f) })
	check.Must(t, err)
}

func (l *Log) mustLast(t testing.TB, stream string) int64 {
	info, err := l.Reads.StreamInfo(stream)
	check.NoError(t, err)
	return info.Last
}

// TestInstallReturning: what was removed here and indexed no more, but not in
// the file of the other node, is found again.
func TestInstallReturning(t *testing.T) {
	m := newModel()
	m.someFrames(17, true)
	from := rewrittenSource(t, m, 0, 2, keepAll)
	to := emptyLog(t)
	write(t, to, m.frames[:12]...)
	_, keep := scavenged(m, 3*chunkfile.ChunkSize)
	rewrite(t, to.opts.FS, "x.tmp", []string{chunkfile.FileName(0, 0)}, keep)
	check.Must(t, to.SwitchChunk("x.tmp"))
	closeLog(t, to)
	check.Must(t, to.opts.FS.RemoveAll(to.opts.IndexDir))
	to = mustOpen(t, to.opts)
	check.MustFail(t, holds(to, m.frames[:12], nil), "removed records are indexed")
	name := chunkFrom(t, from, to, 0)
	check.Must(t, to.Transfer.InstallChunk(name))
	check.Must(t, errors.Join(checkItems(to, m.frames[:15], nil), checkPages(to, m.frames[:15], nil)))
	// As durable as the file; the ids of what came back are known from the next start on.
	closeLog(t, to)
	to = mustOpen(t, to.opts)
	verify(t, to, m.frames[:15], nil)
	check.MustEqual(t, newestFile(t, to.opts.FS, 0), chunkfile.FileName(0, 2), "the file")
}

func TestInstallChunkRefuses(t *testing.T) {
	m := newModel()
	m.someFrames(17, true)
	fork := newModel() // Chunks of the same lengths.
	fork.frame(false, ev("other", "data"))
	fork.someFrames(17, true)
	edited := func(change func(b []byte) []byte) func(*testing.T, *Log) string {
		return func(t *testing.T, to *Log) string {
			name := chunkFrom(t, rewrittenSource(t, m, 0, 2, keepAll), to, 0)
			edit(t, to.opts.FS, name, change)
			return name
		}
	}
	flip := func(offset int) func(*testing.T, *Log) string {
		return edited(func(b []byte) []byte { b[(len(b)+offset)%len(b)] ^= 1; return b })
	}
	// A file with another content whose checksums are right.
	refooted := func(change func(data, places []byte, f *chunkfile.Footer) ([]byte, []byte)) func(*testing.T, *Log) string {
		return edited(func(b []byte) []byte {
			h, err := chunkfile.ParseHeader(b)
			check.Must(t, err)
			f, err := chunkfile.ParseFooter(b[len(b)-chunkfile.FooterSize:], h, int64(len(b)))
			check.Must(t, err)
			data, places := change(bytes.Clone(b[chunkfile.HeaderSize:chunkfile.HeaderSize+f.DataSize]), bytes.Clone(b[chunkfile.HeaderSize+f.DataSize:len(b)-chunkfile.FooterSize]), &f)
			f.DataSize, f.MapSize = int64(len(data)), int64(len(places))
			file := append(append(h.Bytes(), data...), places...)
			return append(file, f.Bytes(func(part []byte) [16]byte { return hash128(append(bytes.Clone(file), part...)) })...)
		})
	}
	cases := map[string]struct {
		have    int
		prepare func(*testing.T, *Log) string
		want    error // nil: damage
	}{
		"no file":                     {7, func(*testing.T, *Log) string { return "none.tmp" }, fs.ErrNotExist},
		"a name that is no temporary": {7, func(*testing.T, *Log) string { return "../x.tmp" }, errAny},
		"header damaged":              {7, flip(30), nil},
		"data damaged":                {7, flip(chunkfile.HeaderSize + 30), nil},
		"map damaged":                 {7, flip(-chunkfile.FooterSize - 3), nil},
		"footer damaged":              {7, flip(-60), nil},
		"footer missing":              {7, edited(func(b []byte) []byte { return b[:len(b)-chunkfile.FooterSize] }), nil},
		"another cluster":             {7, func(t *testing.T, to *Log) string { foreignChunk(t, to.opts.FS, event.ID{7}, 0); return "x.tmp" }, nil},
		"no frames in it":             {7, func(t *testing.T, to *Log) string { foreignChunk(t, to.opts.FS, testCluster, 0); return "x.tmp" }, nil},
		"an incomplete file": {7, func(t *testing.T, to *Log) string {
			from := emptyLog(t)
			write(t, from, m.frames[:9]...)
			return chunkFrom(t, from, to, 1)
		}, nil},
		"an entry of the map missing": {7, refooted(func(data, places []byte, _ *chunkfile.Footer) ([]byte, []byte) {
			return data, places[chunkfile.MapEntrySize:]
		}), nil},
		"an entry of the map too much": {7, refooted(func(data, places []byte, _ *chunkfile.Footer) ([]byte, []byte) {
			return data, append(places, places[:chunkfile.MapEntrySize]...)
		}), nil},
		"the map names another place": {7, refooted(func(data, places []byte, _ *chunkfile.Footer) ([]byte, []byte) { places[8]++; return data, places }), nil},
		"no last trailer": {7, refooted(func(data, places []byte, f *chunkfile.Footer) ([]byte, []byte) {
			return data[:len(data)-chunkfile.TrailerSize], places[:len(places)-chunkfile.MapEntrySize]
		}), nil},
		"wrong count":      {7, refooted(func(data, places []byte, f *chunkfile.Footer) ([]byte, []byte) { f.Records++; return data, places }), nil},
		"wrong chain":      {7, refooted(func(data, places []byte, f *chunkfile.Footer) ([]byte, []byte) { f.Chain[1]++; return data, places }), nil},
		"wrong last index": {7, refooted(func(data, places []byte, f *chunkfile.Footer) ([]byte, []byte) { f.LastIndex++; return data, places }), nil},
		"a chunk too much": {7, refooted(func(data, places []byte, f *chunkfile.Footer) ([]byte, []byte) {
			f.End -= chunkfile.ChunkSize
			return data, places
		}), nil},
		"another history": {7, func(t *testing.T, to *Log) string {
			return chunkFrom(t, rewrittenSource(t, fork, 0, 2, keepAll), to, 0)
		}, event.ErrOtherHistory},
		"another history, of older entries": {16, func(t *testing.T, to *Log) string {
			old := newModel()
			for range 4 {
				old.frame(true, ev("s", "x"))
			}
			return chunkFrom(t, rewrittenSource(t, old, 3, 3, keepAll), to, 3)
		}, event.ErrOtherHistory},
		"a gap":                {3, func(t *testing.T, to *Log) string { return chunkFrom(t, rewrittenSource(t, m, 1, 2, keepAll), to, 1) }, event.ErrDataMissing},
		"a gap, over nothing":  {0, func(t *testing.T, to *Log) string { return chunkFrom(t, rewrittenSource(t, m, 1, 2, keepAll), to, 1) }, event.ErrDataMissing},
		"it would cut the log": {7, func(t *testing.T, to *Log) string { return chunkFrom(t, rewrittenSource(t, m, 0, 0, keepAll), to, 0) }, errAny},
		"inside a file of ours, all of it": {16, func(t *testing.T, to *Log) string {
			merge(t, to, 0, 2)
			return chunkFrom(t, rewrittenSource(t, m, 1, 2, keepAll), to, 1)
		}, errAny},
		"inside a file of ours, one chunk": {16, func(t *testing.T, to *Log) string {
			merge(t, to, 0, 2)
			return chunkFrom(t, rewrittenSource(t, m, 1, 1, keepAll), to, 1)
		}, errAny},
		"inside a file of ours, another history": {11, func(t *testing.T, to *Log) string {
			merge(t, to, 0, 1)
			return chunkFrom(t, rewrittenSource(t, fork, 1, 2, keepAll), to, 1)
		}, event.ErrOtherHistory},
		"inside a file of ours, another history after it": {11, func(t *testing.T, to *Log) string {
			merge(t, to, 0, 1)
			other := newModel() // The same up to there.
			other.someFrames(10, true)
			other.frame(true, ev("other", "data"))
			return chunkFrom(t, rewrittenSource(t, other, 1, 2, keepAll), to, 1)
		}, event.ErrOtherHistory},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewCounting(vfs.NewMem())
			o := testOptions(fsys)
			o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
			to := mustOpen(t, o)
			write(t, to, m.frames[:c.have]...)
			tmp := c.prepare(t, to)
			before := filesWith(t, to, "", "")
			err := to.Transfer.InstallChunk(tmp)
			switch {
			case err == nil:
				t.Fatal("the file was taken")
			case c.want == nil && !event.IsCorruption(err), c.want != nil && c.want != errAny && !errors.Is(err, c.want):
				t.Fatalf("%v, want %v", err, c.want)
			}
			check.MustSlice(t, filesWith(t, to, "", ""), before, "files ..., before")
			verify(t, to, m.frames[:c.have], nil)
			write(t, to, m.frames[c.have:]...)
			verify(t, to, m.frames, nil)
			closeLog(t, to)
			if open := fsys.OpenFiles(); len(open) > 0 {
				t.Fatalf("left open: %v", open)
			}
		})
	}
}

var errAny = errors.New("any error")

// merge makes one file out of some of a log.
func merge(t testing.TB, l *Log, first, last int) {
	t.Helper()
	_, err := l.Chunks.Rewrite(background, Rewrite{First: first, Last: last})
	check.Must(t, err)
}

// TestTempFiles: a file that is being fetched can be left and taken up again, and is gone after a
// restart.
func TestTempFiles(t *testing.T) {
	m := newModel()
	m.someFrames(12, true)
	from := rewrittenSource(t, m, 0, 1, keepAll)
	to := emptyLog(t)
	k, err := from.Transfer.Continue(0, chunkfile.GenesisChain(testCluster))
	check.Must(t, err)
	file, name, err := to.Transfer.CreateTemp()
	check.Must(t, err)
	size := k.File().Size
	_, err = io.CopyN(io.NewOffsetWriter(file, 0), io.NewSectionReader(k, 0, size), 1000)
	check.Must(t, errors.Join(err, file.Close(), k.Close()))

	k, err = from.Transfer.Continue(0, chunkfile.GenesisChain(testCluster))
	check.Must(t, err)
	file, err = to.Transfer.OpenTemp(name)
	check.Must(t, err)
	have, err := file.Size()
	check.Must(t, err)
	_, err = io.Copy(io.NewOffsetWriter(file, have), io.NewSectionReader(k, have, size-have))
	check.Must(t, errors.Join(err, file.Close()))
	if n, err := k.ReadAt(make([]byte, 10), size-4); n != 4 || err != io.EOF {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if n, err := k.ReadAt(make([]byte, 10), size+4); n != 0 || err != io.EOF {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if _, err := k.ReadAt(make([]byte, 10), -4); err == nil || err == io.EOF {
		t.Fatal(err)
	}
	if _, err := k.Next(0); err == nil || err == io.EOF {
		t.Fatal(err)
	}
	check.Must(t, k.Close())
	check.MustBe(t, check.Err(k.ReadAt(make([]byte, 10), 0)), event.ErrClosed)
	check.Must(t, to.Transfer.InstallChunk(name))
	verify(t, to, m.frames[:10], nil)

	file, name, err = to.Transfer.CreateTemp()
	check.Must(t, errors.Join(err, file.Close()))
	check.Must(t, to.Transfer.DropTemp(name))
	check.MustBe(t, check.Err(to.Transfer.OpenTemp(name)), fs.ErrNotExist)
	for _, bad := range []string{"", "x", "../x.tmp", datadir.WriterCheckpoint, "a/b.tmp"} {
		if _, err := to.Transfer.OpenTemp(bad); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%q: %v", bad, err)
		}
		if err := to.Transfer.DropTemp(bad); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%q: %v", bad, err)
		}
	}
	file, name, err = to.Transfer.CreateTemp()
	check.Must(t, errors.Join(err, file.Close()))
	closeLog(t, to)
	mustOpen(t, to.opts)
	check.MustBe(t, check.Err(to.opts.FS.Stat(filepath.Join(testDir, name))), fs.ErrNotExist)
}

// TestCatchUpOverVoid: the chunk of which a file was fetched ends before the
// place where the next one begins, because a frame did not fit.
func TestCatchUpOverVoid(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("writes 256 MiB")
	}
	m := newModel()
	from := emptyLog(t)
	big := strings.Repeat("x", 15<<20)
	for len(m.frames) < 18 {
		write(t, from, m.frame(false, ev("s", big)))
	}
	write(t, from, m.frame(true, ev("s", "x")), m.frame(false, ev("s", "y")))
	end := m.frames[16].tail // In the void.
	removed := map[int64]bool{}
	for _, f := range m.frames[:16] {
		removed[f.First] = true
	}
	// As frames, up to the void: what is there is the same, the rest follows.
	to := emptyLog(t)
	mustCatchUp(t, from, to, 0)
	check.MustEqual(t, to.Tail(), m.tail)
	check.Must(t, to.Close())

	rewrite(t, from.opts.FS, "x.tmp", []string{chunkfile.FileName(0, 0)}, func(it chunkfile.Item) bool { return !removed[it.Position()] })
	check.Must(t, from.SwitchChunk("x.tmp"))
	to = emptyLog(t)
	write(t, to, m.frames[0])
	check.Must(t, to.Transfer.InstallChunk(chunkFrom(t, from, to, 0)))
	for range 2 {
		check.MustEqual(t, to.Tail(), end)
		if n, err := to.AppendFrames(end.End, raw17(m)); n != 0 || !errors.Is(err, event.ErrBadFrames) {
			t.Fatalf("a frame was put into the void: %d, %v", n, err)
		}
		closeLog(t, to)
		inspected(t, to.opts)
		to = mustOpen(t, to.opts)
	}
	mustCatchUp(t, from, to, 0)
	verify(t, to, m.frames, removed)
	closeLog(t, to)
	to = mustOpen(t, to.opts)
	verify(t, to, m.frames, removed)
	closeLog(t, to)

	// A file that begins after the void: the active chunk gets its footer first.
	rewrite(t, from.opts.FS, "y.tmp", []string{chunkfile.FileName(1, 0)}, keepAll)
	check.Must(t, from.SwitchChunk("y.tmp"))
	to = emptyLog(t)
	write(t, to, m.frames[:17]...)
	check.Must(t, to.Transfer.InstallChunk(chunkFrom(t, from, to, 1)))
	closeLog(t, to)
	to = mustOpen(t, to.opts)
	write(t, to, m.frames[19:]...)
	verify(t, to, m.frames, nil)
}

// raw17 is a small frame that would fit into the void after the seventeenth.
func raw17(m *model) []byte {
	other := &model{tail: m.frames[16].tail, term: 1, now: 1, last: map[string]int64{"s": 16}}
	return raw(other.frame(false, ev("s", "small")))
}
