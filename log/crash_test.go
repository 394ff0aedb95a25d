package eventlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// run is a scripted life of a log: frames of several chunks and terms, commits of
// some frames at a time, syncs, index flushes and merges, a chunk that is
// rewritten, and restarts. It stops at the first error.
type run struct {
	m      *model
	o      Options
	synced atomic.Int64 // frames that a completed Sync, Close or Open covers
	fatal  atomic.Int64 // calls of OnFatal

	l         *Log // the last one opened
	committed int  // frames that readers see
	swallowed bool // errors on the way were none of the log's business
}

func scriptModel() *model {
	m := newModel()
	m.someFrames(8, true)
	m.term = 2
	m.someFrames(14, true)
	m.frame(false, meta("a0", `{"$tb":3}`))
	m.frame(true, tombstone("b1"))
	m.term = 4
	m.someFrames(6, true)
	return m
}

func newRun(m *model, fsys vfs.FS) *run {
	r := &run{m: m, o: testOptions(fsys)}
	r.o.Index.MaxMemTable = 8
	r.o.StreamCache = 64
	r.o.OnFatal = func(error) { r.fatal.Add(1) }
	return r
}

func (r *run) open() (err error) {
	r.l, err = Open(r.o)
	return err
}

func (r *run) play() error {
	if err := r.open(); err != nil {
		return err
	}
	for i, f := range r.m.frames {
		if err := r.l.Append(f.Frame); err != nil {
			return err
		}
		if i%3 != 1 {
			if err := r.l.Commit(); err != nil {
				return err
			}
			r.committed = i + 1
		}
		if err := r.between(i); err != nil {
			return err
		}
	}
	if err := r.l.Commit(); err != nil {
		return err
	}
	r.committed = len(r.m.frames)
	if err := r.l.Close(); err != nil {
		return err
	}
	r.synced.Store(int64(r.committed))
	return nil
}

func (r *run) between(i int) error {
	switch {
	case i%9 == 4:
		if err := r.l.syncer.Sync(); err != nil {
			return err
		}
		r.synced.Store(int64(r.committed))
	case i == 14: // Committed, but not synced, like what is replaced in part.
		names := []string{chunkfile.FileName(0, 0), chunkfile.FileName(1, 0)}
		if err := rewriteChunks(r.o.FS, testDir, "rewritten.tmp", names, keepAll); err != nil {
			r.swallowed = true
			return err
		}
		return r.l.SwitchChunk("rewritten.tmp")
	case i == 17:
		if err := r.l.Close(); err != nil {
			return err
		}
		r.synced.Store(int64(r.committed))
		return r.open()
	}
	return nil
}

// recovered opens what a crash or an error left and expects a prefix of the
// frames with all that was synced; then the rest is written again.
func recovered(m *model, fsys vfs.FS, synced int) (err error) {
	o := newRun(m, fsys).o
	o.OnFatal = func(error) {}
	l, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	n := 0
	for n < len(m.frames) && m.frames[n].Index <= l.Tail().Index {
		n++
	}
	if n < synced {
		return fmt.Errorf("%d frames were synced, %d are there", synced, n)
	}
	if err := holds(l, m.frames[:n], nil); err != nil {
		return fmt.Errorf("with %d frames left: %w", n, err)
	}
	for _, f := range m.frames[n:] {
		if err := errors.Join(l.Append(f.Frame), l.Commit()); err != nil {
			return err
		}
	}
	if err := holds(l, m.frames, nil); err != nil {
		return fmt.Errorf("with the rest written again: %w", err)
	}
	return nil
}

// everyCut is how many operations lie between two power cuts.
const everyCut = 3

// TestPowerCut cuts the power after many an operation of the script.
// ANNALS_CRASH_SEEDS sets how many random survivals are tried each time.
func TestPowerCut(t *testing.T) {
	seeds, every := 1, 2 // One at every other operation.
	if s := os.Getenv("ANNALS_CRASH_SEEDS"); s != "" {
		var err error
		seeds, err = strconv.Atoi(s)
		check.Must(t, err)
		every = 1
	}
	m := scriptModel()
	var r *run
	step, first := testkit.Sample(t, everyCut)
	d := powercut.New(powercut.Options[int]{
		Every: step, First: first, More: seeds, MoreEvery: every, Seed: rand.Uint64(),
		Note: func() int { return int(r.synced.Load()) },
	})
	r = newRun(m, d)
	check.Must(t, r.play())
	d.Cut("at the end")
	check.MustEqual(t, r.fatal.Load(), 0, "fatal ... times")
	for _, c := range d.Cuts() {
		check.Must(t, recovered(m, c.FS, c.Note), c.What)
	}
}

// TestPowerCutTwice cuts the power again while the log recovers.
func TestPowerCutTwice(t *testing.T) {
	m := scriptModel()
	mem := vfs.NewCrashMem()
	r := newRun(m, mem)
	check.Must(t, r.open())
	for i, f := range m.frames {
		check.Must(t, errors.Join(r.l.Append(f.Frame), r.l.Commit()))
		if i == 9 {
			check.Must(t, r.l.syncer.Sync())
		}
	}
	step, from := testkit.Sample(t, everyCut)
	for seed := range uint64(testkit.Fewer(4, 12)) {
		first := mem.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, 2))})
		for stop, done := int64(from), false; !done; stop += int64(step) {
			second := first.CrashClone(vfs.CrashOptions{})
			var count atomic.Int64
			o := newRun(m, vfs.NewFaulty(second, func(op vfs.Op) error {
				if op.Kind.Mutates() && count.Add(1) > stop {
					return errors.New("power cut")
				}
				return nil
			})).o
			l, err := Open(o)
			if err == nil {
				// The cut may still hit background work of Open.
				count.Store(-1 << 40)
				err = l.Close()
			}
			done = err == nil
			third := second.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, uint64(stop)))})
			check.Must(t, recovered(m, third, 10), "seed", seed, "stopped again at operation", stop)
		}
	}
	check.Must(t, r.l.Close())
}

// TestIndexNeverAheadOfLog: before the index makes entries durable their records are.
func TestIndexNeverAheadOfLog(t *testing.T) {
	m := newModel()
	mem := vfs.NewCrashMem()
	o := testOptions(mem)
	o.Index.MaxMemTable = 16
	l := mustOpen(t, o)
	write(t, l, m.someFrames(20, false)...) // Too little for the background to sync.
	check.Must(t, l.index.Flush())
	o.FS = mem.CrashClone(vfs.CrashOptions{})
	after := mustOpen(t, o)
	verify(t, after, m.frames, nil)
	if got, want := after.index.Checkpoint(), m.tail.End; got != want {
		t.Fatalf("the index is durable up to %d, the log up to %d", got, want)
	}
}

// TestPowerCutBetweenChunks: of chunks that follow each other without a sync in between, a power
// cut never leaves one and takes the one before it.
func TestPowerCutBetweenChunks(t *testing.T) {
	for seed := range uint64(100) {
		fsys, m := vfs.NewCrashMem(), newModel()
		l := mustOpen(t, testOptions(fsys))
		for range 4 {
			write(t, l, m.frame(true, ev("s", "")))
		}
		after := fsys.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, 5))})
		closeLog(t, l)
		closeLog(t, mustOpen(t, testOptions(after)))
	}
}
