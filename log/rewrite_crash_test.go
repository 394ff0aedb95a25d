package eventlog

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// rewriteRun is a life of a log in which chunks are rewritten and merged.
type rewriteRun struct {
	m       *model
	removed map[int64]bool // by all rewrites
	steps   []Rewrite
	o       Options
	done    atomic.Int32 // rewrites that have returned
	fatal   atomic.Int32
}

func newRewriteRun(fsys vfs.FS) *rewriteRun {
	r := &rewriteRun{m: newModel(), o: testOptions(fsys)}
	r.m.someFrames(23, true)
	r.removed, _ = scavenged(r.m, 3*chunkfile.ChunkSize)
	r.steps = []Rewrite{
		// There is room for one file.
		{First: 1, Last: 2, Keep: keepNot(r.removed), IDsFrom: 0, MaxData: 1},
		{First: 0, Last: 1, Keep: keepNot(r.removed), IDsFrom: chunkfile.ChunkSize},
		{First: 2, Last: 3, Keep: keepNot(r.removed), IDsFrom: chunkfile.ChunkSize},
		{First: 0, Last: 3, IDsFrom: chunkfile.ChunkSize},
	}
	r.o.OnFatal = func(error) { r.fatal.Add(1) }
	return r
}

// after is what is removed when n of the rewrites were made.
func (r *rewriteRun) after(n int) map[int64]bool {
	removed := map[int64]bool{}
	for _, s := range r.steps[:n] {
		last := s.Last
		if s.MaxData == 1 {
			last = s.First
		}
		maps.Copy(removed, within(r.removed, s.First, last))
	}
	return removed
}

func (r *rewriteRun) play(began func()) (err error) {
	l, err := Open(r.o)
	if err != nil {
		return err
	}
	<-l.Reads.ids.loaded
	defer func() { err = errors.Join(err, l.Close()) }()
	for _, f := range r.m.frames {
		if err := errors.Join(l.Append(f.Frame), l.Commit()); err != nil {
			return err
		}
	}
	if err := l.syncer.Sync(); err != nil {
		return err
	}
	began()
	for _, s := range r.steps {
		if _, err := l.Chunks.Rewrite(background, s); err != nil {
			return err
		}
		r.done.Add(1)
	}
	return nil
}

// survived opens what is left and expects the files of either n rewrites or of one more.
func (r *rewriteRun) survived(fsys vfs.FS, n int) (err error) {
	o := testOptions(fsys)
	l, err := Open(o)
	if err != nil {
		return err
	}
	<-l.Reads.ids.loaded
	defer func() { err = errors.Join(err, l.Close()) }()
	if err := holds(l, r.m.frames, r.after(n)); err != nil {
		if n == len(r.steps) {
			return err
		}
		if next := holds(l, r.m.frames, r.after(n+1)); next != nil {
			return fmt.Errorf("neither %d rewrites: %w, nor one more: %w", n, err, next)
		}
	}
	names, err := fsys.List(testDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, vfs.TempSuffix) {
			return fmt.Errorf("%s is left", name)
		}
	}
	v, err := l.view()
	if err != nil {
		return err
	}
	defer v.release()
	for _, c := range v.set.chunks {
		if !c.Complete {
			continue
		}
		if _, err := c.CheckContent(); err != nil {
			return err
		}
		if err := c.Verify(func(int64) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// TestRewritePowerCut cuts the power before many a file operation of rewrites and merges.
func TestRewritePowerCut(t *testing.T) {
	var r *rewriteRun
	step, first := testkit.Sample(t, everyCut)
	d := powercut.New(powercut.Options[int]{
		Off: true, Every: step, First: first, More: 3, Seed: rand.Uint64(),
		Note: func() int { return int(r.done.Load()) },
	})
	r = newRewriteRun(d)
	check.Must(t, r.play(d.On))
	d.Off()
	d.Cut("at the end")
	for _, c := range d.Cuts() {
		check.Must(t, r.survived(c.FS, c.Note), c.What)
	}
}

// TestRewriteFaults makes single file operations of rewrites and merges fail. The log keeps
// working, unless the failure came after the rename, or in making the log durable.
func TestRewriteFaults(t *testing.T) {
	step, first := testkit.Sample(t, everyCut)
	for fail, done := int64(first)+1, false; !done; fail += int64(step) {
		mem := vfs.NewMem()
		var count atomic.Int64
		var armed, own, failedOwn atomic.Bool
		r := newRewriteRun(vfs.NewFaulty(mem, func(op vfs.Op) error {
			if !armed.Load() || count.Add(1) != fail {
				return nil
			}
			own.Store(strings.HasSuffix(op.Name, scavengeSuffix))
			failedOwn.Store(own.Load() && op.Kind != vfs.OpRemove)
			return fmt.Errorf("%s %s is broken", op.Kind, filepath.Base(op.Name))
		}))
		err := r.play(func() { armed.Store(true) })
		done = count.Load() < fail
		if done && err != nil {
			t.Fatal(err)
		}
		if failedOwn.Load() {
			if err == nil || r.fatal.Load() != 0 {
				t.Fatalf("operation %d: %v, fatal %d times", fail, err, r.fatal.Load())
			}
			names := check.Value(mem.List(testDir)).Must(t)
			for _, n := range names {
				if strings.HasSuffix(n, vfs.TempSuffix) {
					t.Fatalf("operation %d (%v): %s is left", fail, err, n)
				}
			}
		}
		check.Must(t, r.survived(mem, int(r.done.Load())), "operation", fail, "failed")
	}
}

// TestRewriteDiskFull: without room for the new file everything else keeps working.
func TestRewriteDiskFull(t *testing.T) {
	m := newModel()
	var full atomic.Bool
	fsys := vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
		if full.Load() && op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, scavengeSuffix) {
			return errors.New("no space left on device")
		}
		return nil
	})
	o := testOptions(fsys)
	o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	l := mustOpen(t, o)
	write(t, l, m.someFrames(12, true)...)
	removed, _ := scavenged(m, chunkfile.ChunkSize)
	full.Store(true)
	if _, err := l.Chunks.Rewrite(background, Rewrite{Keep: keepNot(removed)}); err == nil {
		t.Fatal("written to a full disk")
	}
	noTemps(t, l)
	verify(t, l, m.frames, nil)
	write(t, l, m.someFrames(3, true)...)
	full.Store(false)
	_, err := l.Chunks.Rewrite(background, Rewrite{Keep: keepNot(removed)})
	check.Must(t, err)
	verify(t, l, m.frames, removed)
}

// TestRewrittenDamage: each byte of a rewritten file counts.
func TestRewrittenDamage(t *testing.T) {
	m := newModel()
	fsys := vfs.NewMem()
	l := mustOpen(t, testOptions(fsys))
	write(t, l, m.someFrames(7, true)...)
	removed, _ := scavenged(m, chunkfile.ChunkSize)
	_, err := l.Chunks.Rewrite(background, Rewrite{Keep: keepNot(removed)})
	check.Must(t, err)
	path := filepath.Join(testDir, chunkfile.FileName(0, 1))
	whole, err := vfs.ReadFile(fsys, path)
	check.Must(t, err)
	for at := range whole {
		damaged := append([]byte{}, whole...)
		damaged[at] ^= 4
		other := vfs.NewMem()
		check.Must(t, other.MkdirAll(testDir))
		check.Must(t, vfs.WriteFileAtomic(other, path, damaged))
		c, err := chunkfile.Open(other, path, 1)
		if err != nil {
			continue
		}
		if c.Complete && c.Verify(func(int64) error { return nil }) == nil {
			t.Fatalf("byte %d may be damaged", at)
		}
		check.Must(t, c.Close())
	}
}

// TestRewriteSyncFails: also where the sync runs at the same time as the writing.
func TestRewriteSyncFails(t *testing.T) {
	m := newModel()
	var syncs, fail atomic.Int64
	counting := vfs.NewCounting(vfs.NewMem())
	o := testOptions(vfs.NewFaulty(counting, func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, scavengeSuffix) && syncs.Add(1) == fail.Load() {
			return errors.New("sync is broken")
		}
		return nil
	}))
	o.OnFatal = func(err error) { t.Errorf("fatal: %v", err) }
	l := mustOpen(t, o)
	for i := range 6 {
		write(t, l, m.frame(i == 5, ev("s", strings.Repeat("x", chunkfile.RewriteSyncAlone/2))))
	}
	for n := int64(1); ; n++ {
		syncs.Store(0)
		fail.Store(n)
		_, err := l.Chunks.Rewrite(background, Rewrite{})
		noTemps(t, l)
		if syncs.Load() < n {
			check.Must(t, err)
			if n < 4 {
				t.Fatalf("%d syncs", n-1)
			}
			break
		}
		check.MustSay(t, err, "sync is broken", "sync", n)
		verify(t, l, m.frames, nil)
	}
	verify(t, l, m.frames, nil)
	checkFiles(t, l)
	closeLog(t, l)
	if open := counting.OpenFiles(); len(open) > 0 {
		t.Fatalf("left open: %v", open)
	}
}

// TestRewriteSyncsInParts: in small ones while the log is used, in large ones while it is not.
func TestRewriteSyncsInParts(t *testing.T) {
	m := newModel()
	syncs := 0
	o := testOptions(vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
		if op.Kind == vfs.OpSync && strings.HasSuffix(op.Name, scavengeSuffix) {
			syncs++
		}
		return nil
	}))
	l := mustOpen(t, o)
	const events = 3 * chunkfile.RewriteSyncAlone / chunkfile.RewriteBuffer
	for i := range events {
		write(t, l, m.frame(i == events-1, ev("s", strings.Repeat("x", chunkfile.RewriteBuffer))))
	}
	_, err := l.Chunks.Rewrite(background, Rewrite{})
	check.Must(t, err)
	if syncs < 3 || syncs > 5 {
		t.Errorf("%d syncs while the log is unused", syncs)
	}
	syncs = 0
	_, err = l.Chunks.Rewrite(background, Rewrite{Keep: func(*Stored) bool {
		write(t, l, m.frame(false, ev("other", "y")))
		return true
	}})
	check.Must(t, err)
	if least := events * chunkfile.RewriteBuffer / chunkfile.RewriteSyncEvery; syncs < least {
		t.Errorf("%d syncs while it is appended to, want %d", syncs, least)
	}
	verify(t, l, m.frames, nil)
	closeLog(t, l)
}

func TestYielder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		l := mustOpen(t, testOptions(vfs.NewMem()))
		write(t, l, m.frame(false, ev("s", "x")))
		y := l.Chunks.Yielder()
		expect := func(what string, want bool) {
			t.Helper()
			check.Equal(t, y.InUse(), want, what, "in use")
		}
		expect("at first", false)
		write(t, l, m.frame(false, ev("s", "x")))
		expect("right after an append", true)
		expect("asked again", true)
		<-time.After(2 * usedLately)
		expect("later", false)
		_, err := l.Reads.ReadStream(event.StreamRead{Stream: "s", Count: 1})
		check.Must(t, err)
		expect("right after a read", true)
		<-time.After(2 * usedLately)
		expect("later", false)
		closeLog(t, l)
	})
}
