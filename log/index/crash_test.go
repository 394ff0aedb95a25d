package index_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// TestPowerCut cuts the power before every changing operation of a script and
// opens what is left: the set must be whole, hold just the entries below its
// checkpoint, and answer as the log does once the rest is added again.
func TestPowerCut(t *testing.T) { onShapes(t, testPowerCut) }

func testPowerCut(t *testing.T, packed bool) {
	m := &model{packed: packed}
	var promised atomic.Int64 // the checkpoint
	step, first := testkit.Sample(t, 2)
	d := powercut.New(powercut.Options[int64]{Every: step, First: first, More: 1, Note: promised.Load})
	opt := index.Options{Packed: packed, FS: d, MaxMemTable: 30, ExistenceFilterMax: 128}
	x := open(t, opt)
	flush := func() {
		check.Must(t, x.Flush())
		promised.Store(m.end)
	}
	for range 5 {
		fill(t, x, m, 20, 7)
		flush()
	}
	fill(t, x, m, 50, 9)
	check.Must(t, x.Merge(t.Context()))
	flush()
	check.Must(t, x.Close())
	x = open(t, opt)
	m.replay(t, x)
	fill(t, x, m, 10, 9)
	flush()
	check.Must(t, x.Close())

	for _, c := range d.Cuts() {
		t.Run(c.What, func(t *testing.T) {
			x := open(t, index.Options{Packed: packed, FS: c.FS, MaxMemTable: 30, ExistenceFilterMax: 128})
			if x.Checkpoint() < c.Note {
				t.Fatalf("checkpoint %d after the crash, %d was promised", x.Checkpoint(), c.Note)
			}
			m.replay(t, x)
			for h := range uint64(9) {
				m.check(t, x, spread(h))
			}
			check.Must(t, x.Flush())
			check.Must(t, x.Close())
			m.verifyFiles(t, c.FS, "db/index")
		})
	}
}

// TestPowerCutDuringVoid finds the index as it was or empty.
func TestPowerCutDuringVoid(t *testing.T) {
	d := powercut.New(powercut.Options[int]{Off: true, More: 1})
	m := &model{}
	x := open(t, index.Options{FS: d})
	fill(t, x, m, 50, 5)
	check.Must(t, x.Flush())
	check.Must(t, x.Close())
	d.On()
	check.Must(t, index.Void(d, "db/index"))
	for _, c := range d.Cuts() {
		y := open(t, index.Options{FS: c.FS})
		if cp := y.Checkpoint(); cp != 0 && cp != m.end {
			t.Fatalf("%s: checkpoint %d", c.What, cp)
		}
		m.replay(t, y)
		m.check(t, y, spread(3))
		check.Must(t, y.Close())
	}
}

// TestWriteErrors lets each changing operation fail once: the owner hears of it
// exactly once, later calls return it, nothing is tried again, and the folder
// still opens.
func TestWriteErrors(t *testing.T) { onShapes(t, testWriteErrors) }

func testWriteErrors(t *testing.T, packed bool) {
	errDisk := errors.New("disk error")
	for fail := 0; ; fail++ {
		mem := vfs.NewMem()
		var mu sync.Mutex
		count, armed := 0, false
		var failedName string
		fsys := vfs.NewFaulty(mem, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if !armed || !op.Kind.Mutates() {
				return nil
			}
			if count++; count == fail+1 {
				failedName = string(op.Kind) + " " + op.Name
				return errDisk
			}
			return nil
		})
		var fatal []error
		x := open(t, index.Options{Packed: packed, FS: fsys, MaxAutoMergeLevel: -1, OnFatal: func(err error) { fatal = append(fatal, err) }})
		m := &model{packed: packed}
		fill(t, x, m, 20, 3)
		check.Must(t, x.Flush())
		armed = true
		fill(t, x, m, 20, 3)
		err := errors.Join(x.Flush(), x.Merge(t.Context()))
		mu.Lock()
		hit := failedName
		mu.Unlock()
		if hit == "" { // Every operation of the script had its turn.
			check.Must(t, errors.Join(err, x.Close()))
			if fail < 20 {
				t.Fatalf("only %d operations were seen", fail)
			}
			return
		}
		add := x.Add(nil, m.end, event.Chain{})
		flush := x.Flush()
		check.Must(t, x.Close())
		if hit[:6] == "remove" { // Old files of a merge: left to the next start.
			check.Must(t, err)
		} else if !errors.Is(err, errDisk) || !errors.Is(add, errDisk) || !errors.Is(flush, errDisk) || len(fatal) != 1 {
			t.Fatalf("%s: flush and merge %v, add %v, flush %v, fatal %v", hit, err, add, flush, fatal)
		}
		x = open(t, index.Options{Packed: packed, FS: mem})
		m.replay(t, x)
		m.check(t, x, spread(1))
		check.Must(t, x.Close())
		names := check.Value(mem.List("db/index")).Must(t)
		if slices.ContainsFunc(names, func(n string) bool { return len(n) > 4 && n[len(n)-4:] == vfs.TempSuffix }) {
			t.Fatalf("%s: temporary files left: %v", hit, names)
		}
	}
}

// A set of tables that could not be replaced makes the index unusable, also when the caller that
// asked for the work has called it off meanwhile.
func TestMapErrorIsFatalAfterCancel(t *testing.T) {
	errDisk := errors.New("disk error")
	work := map[string]func(context.Context, *index.Index) error{
		"merge": func(ctx context.Context, x *index.Index) error { return x.Merge(ctx) },
		"scavenge": func(ctx context.Context, x *index.Index) error {
			return x.Scavenge(ctx, index.ScavengeOptions{Keep: keeping(func(index.Entry) bool { return false })})
		},
	}
	for name, do := range work {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var armed atomic.Bool
			fsys := vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
				if armed.Load() && op.Kind == vfs.OpRename && strings.Contains(op.Name, "indexmap") {
					cancel()
					return errDisk
				}
				return nil
			})
			var fatal []error
			x, _ := layers(t, index.Options{FS: fsys, OnFatal: func(err error) { fatal = append(fatal, err) }})
			check.Must(t, x.Flush())
			armed.Store(true)
			if err := do(ctx, x); !errors.Is(err, errDisk) || len(fatal) != 1 {
				t.Errorf("error %v, fatal %v", err, fatal)
			}
			check.Is(t, x.Flush(), errDisk, "flush")
			check.Must(t, x.Close())
		})
	}
}
