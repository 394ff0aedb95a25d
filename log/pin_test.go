package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/inspect"
)

// pinnedBytes reads all files of a pin, each byte compared with the checksum.
func pinnedBytes(t testing.TB, p *Pin) map[string]string {
	t.Helper()
	content, err := readPinned(p, 33) // Pieces begin and end within the foot of a file.
	check.Must(t, err)
	return content
}

func readPinned(p *Pin, piece int) (map[string]string, error) {
	content := map[string]string{}
	for _, f := range p.Files() {
		r, err := p.Open(f.Name)
		if err != nil {
			return nil, err
		}
		sum := NewFileSum(f.Name, f.Size, f.Complete)
		var b strings.Builder
		n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(&b, sum)}, struct{ io.Reader }{io.NewSectionReader(r, 0, r.Size())}, make([]byte, piece))
		if err = errors.Join(err, r.Close()); err != nil || n != f.Size {
			return nil, fmt.Errorf("%s: %d of %d bytes: %w", f.Name, n, f.Size, err)
		}
		if got, err := sum.Sum(); err != nil || got != f.Checksum {
			return nil, fmt.Errorf("%s has the checksum %s (%w), named is %s", f.Name, got, err, f.Checksum)
		}
		content[f.Name] = b.String()
	}
	return content, nil
}

// folderOf makes a data folder of the files of a pin.
func folderOf(t testing.TB, files map[string]string, leaveOut ...string) *vfs.Mem {
	t.Helper()
	fsys := vfs.NewCrashMem()
	check.Must(t, writeFolder(fsys, testDir, files, leaveOut...))
	return fsys
}

func writeFolder(fsys vfs.FS, dir string, files map[string]string, leaveOut ...string) error {
	for name, content := range files {
		if slices.ContainsFunc(leaveOut, func(part string) bool { return strings.Contains(name, part) }) {
			continue
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(vfs.MkdirAllSync(fsys, filepath.Dir(path)), vfs.WriteFileAtomic(fsys, path, []byte(content))); err != nil {
			return err
		}
	}
	return nil
}

// checkFolder opens a folder made of a pin and compares the log in it with the frames.
func checkFolder(t testing.TB, fsys vfs.FS, frames []testFrame, removed map[int64]bool) {
	t.Helper()
	_, err := inspect.Run(context.Background(), inspect.Options{FS: fsys, Dir: testDir}, func(x inspect.Finding) {
		if x.Severity == inspect.Problem {
			t.Errorf("found in the copy: %+v", x)
		}
	})
	check.Must(t, err)
	o := testOptions(fsys)
	o.ClusterID = event.ID{}
	o.MaxTruncate = 1 // Nothing is to be cut.
	l := mustOpen(t, o)
	gone := maps.Clone(removed)
	for p := range gone {
		if p >= l.Tail().End {
			delete(gone, p)
		}
	}
	verify(t, l, frames, gone)
	if len(frames) > 0 && l.index.Checkpoint() > l.Tail().End {
		t.Fatal("the index is ahead of the log")
	}
	closeLog(t, l)
}

// Pins are taken at every step of a log's life and held until its end: what they
// show never changes, and is a database that ends where the pin says.
func TestPin(t *testing.T) {
	type held struct {
		step    string
		p       *Pin
		files   map[string]string
		frames  int
		removed map[int64]bool
	}
	m := newModel()
	mem := vfs.NewCrashMem()
	counting := vfs.NewCounting(mem)
	o := testOptions(counting)
	l := mustOpen(t, o)
	var pins []held
	var removed map[int64]bool
	pin := func(step string) {
		p := check.Value(l.Pin()).Must(t)
		check.MustEqual(t, p.Tail, l.Tail(), step, "pinned at")
		check.MustEqual(t, p.Cluster, testCluster, step, "pinned at")
		pins = append(pins, held{step, p, pinnedBytes(t, p), len(m.frames), maps.Clone(removed)})
	}
	pin("empty")
	write(t, l, m.someFrames(1, false)...)
	pin("one frame")
	check.Must(t, l.index.Flush())
	pin("first table")
	write(t, l, m.someFrames(5, true)...)
	pin("completed by its frame")
	write(t, l, m.someFrames(11, true)...)
	check.Must(t, l.index.Flush())
	pin("second table")
	var keep func(chunkfile.Item) bool
	removed, keep = scavenged(m, 2*chunkfile.ChunkSize)
	for p := range removed {
		if chunkfile.ChunkNumber(p) != 1 {
			delete(removed, p)
		}
	}
	rewrite(t, counting, "x.tmp", []string{chunkfile.FileName(1, 0)}, keep)
	check.Must(t, l.SwitchChunk("x.tmp"))
	pin("scavenged")
	check.Must(t, l.index.Merge(context.Background()))
	pin("index merged")
	rewrite(t, counting, "y.tmp", []string{chunkfile.FileName(0, 0), chunkfile.FileName(1, 1)}, keepAll)
	check.Must(t, l.SwitchChunk("y.tmp"))
	write(t, l, m.someFrames(7, true)...)
	pin("merged")
	// What is the active chunk for a pin is rewritten when it is complete.
	rewrite(t, counting, "z.tmp", []string{chunkfile.FileName(2, 0)}, keepAll)
	check.Must(t, l.SwitchChunk("z.tmp"))
	pin("end")
	verify(t, l, m.frames, removed)

	crashed := mem.CrashClone(vfs.CrashOptions{})
	for _, h := range pins {
		t.Run(h.step, func(t *testing.T) {
			if got := pinnedBytes(t, h.p); !maps.Equal(got, h.files) {
				t.Fatal("the pinned bytes are not those of the beginning")
			}
			checkFolder(t, folderOf(t, h.files), m.frames[:h.frames], h.removed)
			checkFolder(t, folderOf(t, h.files, "stream-existence"), m.frames[:h.frames], h.removed)
			checkFolder(t, folderOf(t, h.files, "stream-existence", "bloomfilter"), m.frames[:h.frames], h.removed)
			checkFolder(t, folderOf(t, h.files, "index/"), m.frames[:h.frames], h.removed)
		})
	}
	// With all files of all pins still there a start finds the newest.
	o.FS = crashed
	c := mustOpen(t, o)
	verify(t, c, m.frames, removed)
	closeLog(t, c)

	replaced := map[any]int64{}
	for _, h := range pins {
		h.p.Replaced(func(file any, bytes int64) { replaced[file] = max(replaced[file], bytes) })
	}
	if len(replaced) < 5 {
		t.Errorf("%d files are there for the pins alone: %v", len(replaced), replaced)
	}
	for _, h := range pins {
		check.Must(t, h.p.Close())
		check.Must(t, h.p.Close())
		if _, err := h.p.ReadAt(datadir.WriterCheckpoint, make([]byte, 8), 0); !errors.Is(err, event.ErrClosed) {
			t.Errorf("reading from a closed pin says %v", err)
		}
	}
	want := []string{chunkfile.FileName(0, 1), chunkfile.FileName(2, 1), chunkfile.FileName(3, 0), chunkfile.FileName(4, 0)}
	check.Slice(t, chunkFiles(t, counting), want, "files ... are left")
	closeLog(t, l)
	if open := counting.OpenFiles(); len(open) > 0 {
		t.Errorf("left open: %v", open)
	}
	if misuse := counting.UsedAfterClose(); len(misuse) > 0 {
		t.Errorf("used after close: %v", misuse)
	}
}

// A chunk that was completed for frames that are not committed is copied without its footer and
// without those frames: the copy does not decide where the log continues.
func TestPinBetweenAppendAndCommit(t *testing.T) {
	m := newModel()
	fsys := vfs.NewMem()
	l := mustOpen(t, testOptions(fsys))
	write(t, l, m.someFrames(9, true)...)
	committed := len(m.frames)
	for _, f := range m.someFrames(8, true) { // Completes two chunks.
		check.Must(t, l.Append(f.Frame))
	}
	rewrite(t, fsys, "x.tmp", []string{chunkfile.FileName(0, 0)}, keepAll)
	// Publishes the chunks as they are now, with the tail as it was.
	check.Must(t, l.SwitchChunk("x.tmp"))
	p := check.Value(l.Pin()).Must(t)
	files := pinnedBytes(t, p)
	check.Must(t, l.Commit())
	if got := pinnedBytes(t, p); !maps.Equal(got, files) {
		t.Fatal("the pinned bytes changed with the commit")
	}
	checkFolder(t, folderOf(t, files), m.frames[:committed], nil)
	check.Must(t, p.Close())
}

func TestPinRefusals(t *testing.T) {
	m := newModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.someFrames(3, false)...)
	p := check.Value(l.Pin()).Must(t)
	for _, name := range []string{"", datadir.LockFile, datadir.FormatFile, "chunk-000001.000000", "../db/writer.chk", "index", "index/"} {
		check.Is(t, check.Err(p.Open(name)), fs.ErrNotExist, "opening", name, "says")
	}
	r := check.Value(p.Open(chunkfile.FileName(0, 0))).Must(t)
	b := make([]byte, 16)
	for offset, want := range map[int64]string{-1: "0 read", r.Size(): "0 EOF", r.Size() - 10: "10 EOF", r.Size() - 16: "16 "} {
		n, err := r.ReadAt(b, offset)
		if got := fmt.Sprint(n, " ", errText(err)); !strings.HasPrefix(got, want) {
			t.Errorf("reading 16 bytes at %d of %d says %s", offset, r.Size(), got)
		}
	}
	check.Must(t, p.Close())
	check.Is(t, check.Err(r.ReadAt(b, 0)), event.ErrClosed, "reading on says")
	check.Must(t, r.Close())
	closeLog(t, l)
	check.Is(t, check.Err(l.Pin()), event.ErrClosed, "pinning a closed log says")
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Every byte counts, also the bytes after a checksum that the file carries.
func TestFileSumFindsDamage(t *testing.T) {
	m := newModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.someFrames(7, true)...)
	check.Must(t, l.index.Flush())
	p := check.Value(l.Pin()).Must(t)
	defer func() { check.Must(t, p.Close()) }()
	content := pinnedBytes(t, p)
	for _, f := range p.Files() {
		damaged := []byte(content[f.Name])
		for i := range damaged {
			damaged[i] ^= 0x10
			sum := NewFileSum(f.Name, f.Size, f.Complete)
			check.Must(t, check.Err(sum.Write(damaged)))
			if got, err := sum.Sum(); err == nil && got == f.Checksum {
				t.Fatalf("a damaged byte %d of %d of %s is not found", i, f.Size, f.Name)
			}
			damaged[i] ^= 0x10
			if len(damaged) > 8192 && i == 4096 {
				break // Of the filters.
			}
		}
		short := NewFileSum(f.Name, f.Size, f.Complete)
		_, _ = short.Write(damaged[1:]) // Less than all is reported at the end.
		if _, err := short.Sum(); err == nil {
			t.Errorf("a byte of %s is missing and no error says so", f.Name)
		}
		check.Fails(t, check.Err(short.Write(damaged)), f.Name, "is too long and no error says so")
	}
}

// What cannot be read while a pin is made leaves no file open, and the log as it was. (A sync that
// fails is final, as ever.)
func TestPinFails(t *testing.T) {
	m := newModel()
	counting := vfs.NewCounting(vfs.NewMem())
	var pinning atomic.Bool
	var left atomic.Int64
	o := testOptions(vfs.NewFaulty(counting, func(op vfs.Op) error {
		if !pinning.Load() || op.Kind.Mutates() || op.Kind == vfs.OpClose || left.Add(-1) != 0 {
			return nil
		}
		return errors.New("disk broken")
	}))
	l := mustOpen(t, o)
	write(t, l, m.someFrames(7, true)...)
	check.Must(t, l.index.Flush())
	// Nothing in the background opens files from here on.
	allPosted(t, l)
	check.Must(t, l.postings.Flush(-1))
	before := len(counting.OpenFiles())
	for at := int64(1); ; at++ {
		left.Store(at)
		pinning.Store(true)
		p, err := l.Pin()
		pinning.Store(false)
		if err == nil {
			check.Must(t, p.Close())
			if at < 10 {
				t.Errorf("a pin takes %d operations", at-1)
			}
			break
		}
		if open := counting.OpenFiles(); len(open) != before {
			t.Fatalf("operation %d failed and %v are open", at, open)
		}
		check.Must(t, l.Failed(), "operation", at, "failed and with it the log")
		verify(t, l, m.frames, nil)
	}
}

// The power fails at any operation of the first start on a copy, and the next start finds the same
// log.
func TestPinRestoredThroughPowerCuts(t *testing.T) {
	m := newModel()
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.someFrames(8, true)...)
	check.Must(t, l.index.Flush())
	write(t, l, m.someFrames(5, true)...)
	p := check.Value(l.Pin()).Must(t)
	files := pinnedBytes(t, p)
	check.Must(t, p.Close())
	pinned := m.frames
	write(t, l, m.someFrames(4, false)...) // Not in the copy; written to it in the end.
	step, from := testkit.Sample(t, everyCut)
	for stop, done := int64(from), false; !done; stop += int64(step) {
		folder := folderOf(t, files)
		var left atomic.Int64
		left.Store(stop)
		o := testOptions(vfs.NewFaulty(folder, func(op vfs.Op) error {
			if op.Kind.Mutates() && left.Add(-1) < 0 {
				return errors.New("power cut")
			}
			return nil
		}))
		c, err := Open(o)
		if done = err == nil; done {
			left.Store(1 << 40)
			verify(t, c, pinned, nil)
			closeLog(t, c)
		}
		o.FS = folder.CrashClone(vfs.CrashOptions{})
		if c, err = Open(o); err != nil {
			t.Fatalf("stopped at operation %d: %v", stop, err)
		}
		check.Must(t, holds(c, pinned, nil), "stopped at operation", stop)
		write(t, c, m.frames[len(pinned):]...)
		verify(t, c, m.frames, nil)
		closeLog(t, c)
	}
}
