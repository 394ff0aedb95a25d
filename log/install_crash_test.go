package eventlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
)

// installRuns are installs of a file over a log with some frames: what the file covers, and what of
// it was there.
var installRuns = map[string]installRun{
	"over nothing":          {0, 0, 0, 1, 0},
	"over the active one":   {3, 2, 0, 0, 0},
	"over whole chunks":     {12, 11, 0, 2, 0},
	"after a chunk":         {5, 5, 1, 2, 0},
	"over the last two":     {9, 7, 0, 1, 0},
	"into a merged one":     {12, 11, 1, 2, 2},
	"into the last, merged": {10, 10, 1, 2, 2},
}

type installRun struct {
	have, synced, first, last int
	merged                    int // chunks that are one file of the log before
}

// installing opens a log, writes what there is, and installs a file that lies there. began is
// called before the install.
func installing(m *model, fsys vfs.FS, c installRun, file []byte, began func()) (err error) {
	o := testOptions(fsys)
	o.Index.MaxMemTable = 4 // Entries become durable all the time.
	l, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for i, f := range m.frames[:c.have] {
		if err := errors.Join(l.Append(f.Frame), l.Commit()); err != nil {
			return err
		}
		if i+1 == c.synced {
			if err := l.syncer.Sync(); err != nil {
				return err
			}
		}
	}
	if c.merged > 0 {
		if _, err := l.Chunks.Rewrite(background, Rewrite{First: 0, Last: c.merged - 1}); err != nil {
			return err
		}
	}
	began()
	tmp, name, err := l.Transfer.CreateTemp()
	if err != nil {
		return err
	}
	if _, err := tmp.WriteAt(file, 0); err != nil {
		return errors.Join(err, tmp.Close())
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	err = l.Transfer.InstallChunk(name)
	if err == nil || l.Failed() != nil || strings.Contains(err.Error(), "remove ") {
		return err
	}
	names, lerr := fsys.List(testDir)
	for _, n := range names {
		if strings.HasSuffix(n, vfs.TempSuffix) && n != name {
			lerr = errors.Join(lerr, fmt.Errorf("%s: %s is left", notTidy, n))
		}
	}
	return errors.Join(err, lerr)
}

// notTidy begins the error of a refusal that left files.
const notTidy = "not tidy"

// installed opens what is left and expects the log as it was before or with the file.
func installed(m *model, fsys vfs.FS, have, ends int, committed bool) (err error) {
	o := testOptions(fsys)
	l, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	n := 0
	for n < len(m.frames) && m.frames[n].Index <= l.Tail().Index {
		n++
	}
	if n != ends && (n > have || committed && n < have) {
		return fmt.Errorf("%d frames are there, %d were, the file ends with %d", n, have, ends)
	}
	if err := holds(l, m.frames[:n], nil); err != nil {
		return fmt.Errorf("with %d frames left: %w", n, err)
	}
	for _, f := range m.frames[n:] {
		if err := errors.Join(l.Append(f.Frame), l.Commit()); err != nil {
			return err
		}
	}
	return holds(l, m.frames, nil)
}

func installModel() *model {
	m := newModel()
	m.someFrames(10, true)
	m.term = 3
	m.someFrames(7, true)
	return m
}

// TestInstallPowerCut cuts the power before many an operation of an install.
func TestInstallPowerCut(t *testing.T) {
	for name, c := range installRuns {
		t.Run(name, func(t *testing.T) {
			m := installModel()
			from := rewrittenSource(t, m, c.first, c.last, keepAll)
			file, err := vfs.ReadFile(from.opts.FS, filepath.Join(testDir, newestFile(t, from.opts.FS, c.first)))
			check.Must(t, err)
			ends := 5 * (c.last + 1)
			step, first := testkit.Sample(t, everyCut)
			var durable atomic.Bool
			d := powercut.New(powercut.Options[bool]{
				Off: true, Every: step, First: first, More: 3, Seed: rand.Uint64(), Note: durable.Load,
				See: func(op vfs.Op) {
					if op.Kind == vfs.OpRename && filepath.Dir(op.Name) == testDir {
						durable.Store(true) // By then all that was there is.
					}
				},
			})
			check.Must(t, installing(m, d, c, file, d.On))
			d.Cut("at the end")
			all := d.Cuts()
			for _, l := range all {
				check.Must(t, installed(m, l.FS, c.have, ends, l.Note), l.What)
			}
			last := all[len(all)-4].FS // Nothing survives but what was synced.
			l := mustOpen(t, testOptions(last))
			check.MustEqual(t, l.Tail(), m.tail)
		})
	}
}

// TestInstallFaults lets many an operation of an install fail once: the log is as
// it was, or has the file, or is at its end and recovers.
func TestInstallFaults(t *testing.T) {
	for name, c := range installRuns {
		t.Run(name, func(t *testing.T) {
			m := installModel()
			from := rewrittenSource(t, m, c.first, c.last, keepAll)
			file, err := vfs.ReadFile(from.opts.FS, filepath.Join(testDir, newestFile(t, from.opts.FS, c.first)))
			check.Must(t, err)
			step, first := testkit.Sample(t, everyCut)
			for fail, done := int64(first)+1, false; !done; fail += int64(step) {
				mem := vfs.NewMem()
				var count atomic.Int64
				var armed atomic.Bool
				fsys := vfs.NewFaulty(mem, func(op vfs.Op) error {
					if armed.Load() && count.Add(1) == fail {
						return errors.New("broken")
					}
					return nil
				})
				err := installing(m, fsys, c, file, func() { armed.Store(true) })
				done = count.Load() < fail
				if done && err != nil || err != nil && strings.Contains(err.Error(), notTidy) {
					t.Fatal(err)
				}
				if err := installed(m, mem, c.have, 5*(c.last+1), true); err != nil {
					t.Fatalf("operation %d failed: %v", fail, err)
				}
			}
		})
	}
}
