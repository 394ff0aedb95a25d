package eventlog

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
)

func TestAppendReadReopen(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.OS} {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			o := testOptions(vfs.NewCounting(fsys))
			if name == "disk" {
				o.Dir = filepath.Join(t.TempDir(), "db")
			}
			counting := o.FS.(*vfs.Counting)
			l := mustOpen(t, o)
			verify(t, l, nil, nil)
			directory := l.Directory()
			write(t, l, m.someFrames(20, true)...)
			m.term = 3
			write(t, l, m.someFrames(3, false)...)
			verify(t, l, m.frames, nil)
			closeLog(t, l)
			if open := counting.OpenFiles(); len(open) > 0 {
				t.Fatalf("left open: %v", open)
			}
			l = mustOpen(t, o)
			verify(t, l, m.frames, nil)
			if l.Directory() != directory || l.Cluster() != testCluster {
				t.Fatalf("directory %s and cluster %s", l.Directory(), l.Cluster())
			}
			write(t, l, m.someFrames(4, false)...)
			verify(t, l, m.frames, nil)
			closeLog(t, l)
			if misuse := counting.UsedAfterClose(); len(misuse) > 0 {
				t.Fatalf("used after close: %v", misuse)
			}
		})
	}
}

func TestCommitOfManyFrames(t *testing.T) {
	m := newModel()
	fsys := vfs.NewCounting(vfs.NewMem())
	o := testOptions(fsys)
	l := mustOpen(t, o)
	for _, f := range m.someFrames(23, true) { // Several chunks begin and end within one commit.
		check.Must(t, l.Append(f.Frame))
	}
	if got := l.Tail(); got.End != 0 || l.Appended() != m.tail {
		t.Fatalf("published %+v before the commit, appended %+v", got, l.Appended())
	}
	check.Must(t, l.Commit())
	verify(t, l, m.frames, nil)
	closeLog(t, l)
	l = mustOpen(t, o)
	verify(t, l, m.frames, nil)
	// What was appended and not committed is let go of too.
	for _, f := range m.someFrames(7, true) {
		check.Must(t, l.Append(f.Frame))
	}
	closeLog(t, l)
	if open := fsys.OpenFiles(); len(open) > 0 {
		t.Fatalf("left open: %v", open)
	}
}

func TestAppendRefuses(t *testing.T) {
	good := newModel()
	first := good.frame(false, ev("s", "1"))
	cases := map[string]func(f *Frame){
		"position after the end":  func(f *Frame) { f.First += 64 },
		"position before the end": func(f *Frame) { f.First = 0 },
		"no records":              func(f *Frame) { f.Records = nil },
		"too many bytes":          func(f *Frame) { f.Records = make([]byte, chunkfile.MaxFrameBytes+1) },
		"same index":              func(f *Frame) { f.Index = 1 },
		"lower term":              func(f *Frame) { f.Term = 0 },
		"damaged record":          func(f *Frame) { f.Records = slices.Clone(f.Records); f.Records[60]++ },
		"cut record":              func(f *Frame) { f.Records = f.Records[:len(f.Records)-1] },
		"trailer among records": func(f *Frame) {
			f.Records = (&chunkfile.Trailer{First: f.First, Length: 0}).Append(nil)
		},
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			var told atomic.Int32
			o := testOptions(vfs.NewMem())
			o.OnFatal = func(error) { told.Add(1) }
			l := mustOpen(t, o)
			write(t, l, m.frame(false, ev("s", "1")))
			f := m.frame(false, ev("s", "2")).Frame
			bad := f
			spoil(&bad)
			err := l.Append(bad)
			check.MustFail(t, err, "the frame was taken")
			if got := l.Append(f); got == nil || got.Error() != err.Error() {
				t.Fatalf("after %v: %v", err, got)
			}
			if l.Commit() == nil || l.syncer.Sync() == nil || told.Load() != 1 {
				t.Fatalf("continues after an error; OnFatal was called %d times", told.Load())
			}
			verify(t, l, []testFrame{first}, nil)
		})
	}
}

func TestChunkFull(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("writes 256 MiB")
	}
	m := newModel()
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	l := mustOpen(t, o)
	big := strings.Repeat("x", 15<<20)
	for len(m.frames) < 18 {
		f := m.frame(false, ev("s", big))
		write(t, l, f)
		m.frames[len(m.frames)-1].Records = nil // Do not keep it all.
	}
	if m.frames[17].First != chunkfile.ChunkSize || m.frames[16].tail.End >= chunkfile.ChunkSize {
		t.Fatalf("last frame at %d after %d", m.frames[17].First, m.frames[16].tail.End)
	}
	check.MustEqual(t, l.Tail(), m.tail)
	page, err := l.Reads.ReadAll(event.AllRead{From: m.frames[16].tail.End, Count: 1})
	if err != nil || len(page.Events) != 1 || page.Events[0].Position != chunkfile.ChunkSize {
		t.Fatalf("reading over the border: %d events, %v", len(page.Events), err)
	}
	page, err = l.Reads.ReadAll(event.AllRead{From: chunkfile.ChunkSize, Count: 1, Backward: true})
	if err != nil || len(page.Events) != 1 || page.Events[0].Position != m.frames[16].First {
		t.Fatalf("reading back over the border: %d events, %v", len(page.Events), err)
	}
	closeLog(t, l)

	// The frame after the border is lost: the end is where it was, and a small frame still fits
	// there.
	last := chunkfile.FileName(1, 0)
	setCheckpoint(t, fsys, datadir.WriterCheckpoint, m.frames[16].tail.End)
	setCheckpoint(t, fsys, datadir.ChaserCheckpoint, m.frames[16].tail.End)
	edit(t, fsys, last, func(b []byte) []byte { return b[:chunkfile.HeaderSize+100] })
	l = mustOpen(t, o)
	check.MustEqual(t, l.Tail(), m.frames[16].tail)
	check.MustSlice(t, chunkFiles(t, fsys), []string{chunkfile.FileName(0, 0)}, "files")
	m.frames, m.tail = m.frames[:17], m.frames[16].tail
	m.last["s"] = 16
	write(t, l, m.frame(false, ev("s", "small")))
	closeLog(t, l)
	l = mustOpen(t, o)
	if l.Tail() != m.tail || m.tail.End >= chunkfile.ChunkSize {
		t.Fatalf("%+v, want %+v", l.Tail(), m.tail)
	}
}

func TestClosedLog(t *testing.T) {
	m := newModel()
	o := testOptions(vfs.NewMem())
	o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	l := mustOpen(t, o)
	write(t, l, m.someFrames(3, false)...)
	closeLog(t, l)
	closeLog(t, l)
	_, all := l.Reads.ReadAll(event.AllRead{Count: 1})
	_, stream := l.Reads.ReadStream(event.StreamRead{Stream: "unheard of", Count: 1})
	_, one := l.Reads.ReadEvent("unheard of", 1, event.EveryLink)
	_, content := l.Snapshot()
	for name, err := range map[string]error{
		"append": l.Append(m.frame(false, ev("s", "")).Frame), "commit": l.Commit(), "sync": l.syncer.Sync(),
		"all": all, "stream": stream, "event": one, "manifest": content, "switch": l.SwitchChunk("x"),
		"wait": l.Reads.WaitLog(t.Context(), 1<<40), "wait for stream": l.Reads.WaitStream(t.Context(), "unheard of", 0),
	} {
		check.Is(t, err, event.ErrClosed, name)
	}
}

func TestSnapshot(t *testing.T) {
	m := newModel()
	fsys := vfs.NewMem()
	l := mustOpen(t, testOptions(fsys))
	write(t, l, m.someFrames(12, true)...)
	got := check.Value(l.Snapshot()).Must(t)
	check.MustEqual(t, got.Tail, m.tail, got)
	check.MustEqual(t, len(got.Chunks), 2, got)
	for i, c := range got.Chunks {
		if c.First != i || c.Last != i || c.Version != 0 || len(c.Checksum) != 32 {
			t.Fatalf("chunk %+v", c)
		}
	}
}

func TestVerifyInBackground(t *testing.T) {
	m := newModel()
	fsys := vfs.NewMem()
	o := testOptions(fsys)
	l := mustOpen(t, o)
	write(t, l, m.someFrames(22, true)...)
	closeLog(t, l)
	edit(t, fsys, chunkfile.FileName(1, 0), func(b []byte) []byte { b[chunkfile.HeaderSize+70] ^= 1; return b })
	synctest.Test(t, func(t *testing.T) {
		var damage []error
		o.SkipVerify, o.VerifyPerSec = false, 2000
		o.RecentIDs = 3
		o.OnDamage = func(err error) { damage = append(damage, err) }
		l := check.Value(Open(o)).Must(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		var c *event.Corruption
		if len(damage) != 1 || !errors.As(damage[0], &c) || filepath.Base(c.File) != chunkfile.FileName(1, 0) {
			t.Errorf("damage %v", damage)
		}
		check.NoError(t, l.Close())
	})
}
