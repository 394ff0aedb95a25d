package index_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// refill gives Rebuild what the log holds, in batches.
func (m *model) refill(upTo int64, add func([]index.Entry) error) error {
	for _, e := range m.log {
		if e.Position < upTo {
			if err := add([]index.Entry{e}); err != nil {
				return err
			}
		}
	}
	return nil
}

// damaged makes an index on a disk with a table whose first entry is not what was written, and
// meets it.
func damaged(t *testing.T, fsys vfs.FS, packed bool) (*index.Index, *model) {
	t.Helper()
	m := &model{packed: packed}
	o := index.Options{Packed: packed, FS: fsys, MaxMemTable: 40, MaxAutoMergeLevel: -1, ExistenceFilterMax: 4096}
	x := open(t, o)
	for range 3 {
		fill(t, x, m, 90, 11)
		check.Must(t, x.Flush())
	}
	tables := x.Tables()
	check.Must(t, x.Close())
	flip(t, fsys, filepath.Join(dir, tables[len(tables)-1].File), 33)
	told := make(chan struct{}, 2)
	o.MaxAutoMergeLevel = 1
	o.OnFatal = func(error) {} // Tests that make it so look.
	o.OnDamage = func() { told <- struct{}{} }
	x = open(t, o)
	m.replay(t, x)
	fill(t, x, m, 10, 11)
	for h := range uint64(11) {
		_, _, _ = x.Last(spread(h))
	}
	<-told
	if !event.IsCorruption(x.Damage()) || len(told) > 0 {
		t.Fatalf("damage: %v, told more than once: %v", x.Damage(), len(told) > 0)
	}
	return x, m
}

func (m *model) wholeAndClosed(t *testing.T, fsys vfs.FS, x *index.Index) {
	t.Helper()
	check.Must(t, x.Damage())
	for h := range uint64(12) {
		m.check(t, x, spread(h))
	}
	check.Must(t, x.Flush())
	check.Must(t, x.Close())
	m.verifyFiles(t, fsys, dir)
}

// TestRebuild: rebuilt tables replace a damaged one and all others, while entries are added and
// flushed.
func TestRebuild(t *testing.T) { onShapes(t, testRebuild) }

func testRebuild(t *testing.T, packed bool) {
	fsys := vfs.NewMem()
	x, m := damaged(t, fsys, packed)
	if err := x.Merge(t.Context()); !event.IsCorruption(err) {
		t.Errorf("merge: %v", err)
	}
	before := x.Checkpoint()
	check.Must(t, index.Rebuild(t.Context(), x, func(upTo int64, add func([]index.Entry) error) error {
		check.Equal(t, upTo, before, "up to")
		fill(t, x, m, 100, 11)
		check.Must(t, x.Flush())
		return m.refill(upTo, add)
	}))
	check.Must(t, x.Merge(t.Context()))
	m.wholeAndClosed(t, fsys, x)
	x = open(t, index.Options{Packed: packed, FS: fsys})
	check.Equal(t, x.Checkpoint(), m.end, "checkpoint")
	m.wholeAndClosed(t, fsys, x)
}

// TestRebuildEnds: what keeps the tables from being made changes nothing, and leaves no file.
func TestRebuildEnds(t *testing.T) { onShapes(t, testRebuildEnds) }

func testRebuildEnds(t *testing.T, packed bool) {
	fsys := vfs.NewMem()
	x, m := damaged(t, fsys, packed)
	broken := errors.New("the log cannot be read")
	files, listErr := []string(nil), error(nil)
	if err := index.Rebuild(t.Context(), x, func(int64, func([]index.Entry) error) error {
		files, listErr = fsys.List(dir) // No merge runs now.
		return broken
	}); !errors.Is(err, broken) || listErr != nil {
		t.Fatal(err, listErr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		ctx  context.Context
		fill func(upTo int64, add func([]index.Entry) error) error
		want error
	}{
		"log":    {t.Context(), func(upTo int64, add func([]index.Entry) error) error { return errors.Join(m.refill(upTo, add), broken) }, broken},
		"cancel": {ctx, func(upTo int64, add func([]index.Entry) error) error { cancel(); return m.refill(upTo, add) }, context.Canceled},
		"beyond": {t.Context(), func(upTo int64, add func([]index.Entry) error) error {
			return errors.Join(m.refill(upTo, add), add([]index.Entry{{Number: upTo, Position: upTo}}))
		}, nil},
	} {
		err := index.Rebuild(c.ctx, x, c.fill)
		left := check.Value(fsys.List(dir)).Must(t)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || x.Damage() == nil || len(left) != len(files) {
			t.Errorf("%s: %v, damage %v, %d files where %d were", name, err, x.Damage(), len(left), len(files))
		}
	}
	check.Must(t, index.Rebuild(t.Context(), x, m.refill))
	m.wholeAndClosed(t, fsys, x)
}

// TestPowerCutDuringRebuild finds the index empty or whole.
func TestPowerCutDuringRebuild(t *testing.T) { onShapes(t, testPowerCutDuringRebuild) }

func testPowerCutDuringRebuild(t *testing.T, packed bool) {
	step, first := testkit.Sample(t, 3)
	d := powercut.New(powercut.Options[int]{Off: true, Every: step, First: first, More: 1})
	x, m := damaged(t, d, packed)
	check.Must(t, x.Flush())
	d.On()
	check.Must(t, index.Rebuild(t.Context(), x, m.refill))
	d.Off()
	check.Must(t, x.Close())
	whole, crashes := 0, d.Cuts()
	for _, c := range crashes {
		y := open(t, index.Options{Packed: packed, FS: c.FS})
		switch y.Checkpoint() {
		case m.end:
			whole++
		case 0:
		default:
			t.Fatalf("%s: checkpoint %d", c.What, y.Checkpoint())
		}
		m.replay(t, y)
		m.wholeAndClosed(t, c.FS, y)
	}
	t.Logf("%d of %d crashes left the new tables", whole, len(crashes))
}

// TestRebuildOnFullDisk: an operation that fails leaves the index damaged but in use, until
// indexmap is written.
func TestRebuildOnFullDisk(t *testing.T) { onShapes(t, testRebuildOnFullDisk) }

func testRebuildOnFullDisk(t *testing.T, packed bool) {
	fatal := 0
	const step = 4 // Fewer than there are to write indexmap.
	for at := 1 + rand.Int64N(step); ; at += step {
		mem := vfs.NewMem()
		var left atomic.Int64 // operations; 0: all of them
		failed := make(chan struct{}, 1)
		full := errors.New("no space")
		fsys := vfs.NewFaulty(mem, func(op vfs.Op) error {
			if !op.Kind.Mutates() || left.Load() == 0 || left.Add(-1) > 0 {
				return nil
			}
			failed <- struct{}{}
			return full
		})
		x, m := damaged(t, fsys, packed)
		left.Store(at)
		err := index.Rebuild(t.Context(), x, m.refill)
		left.Store(0)
		switch {
		case err == nil: // Or of what was replaced not all could be removed: the next start does.
		case x.Flush() == nil:
			check.Must(t, index.Rebuild(t.Context(), x, m.refill))
		default:
			fatal++
			check.Must(t, x.Close())
			x = open(t, index.Options{Packed: packed, FS: fsys})
			m.replay(t, x)
		}
		m.wholeAndClosed(t, fsys, x)
		if len(failed) == 0 {
			break
		}
	}
	if fatal == 0 {
		t.Error("indexmap was never what could not be written")
	}
}
