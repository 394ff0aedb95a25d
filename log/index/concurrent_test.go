package index_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/stats"
)

// TestReadersDuringFlushAndMerge lets readers see every stream without gaps
// while tables come and go beneath them, and checks that no file stays open.
func TestReadersDuringFlushAndMerge(t *testing.T) {
	const (
		streams = 50
		rounds  = 200
	)
	round := func(e index.Entry) int64 { return e.Position / 100 / streams }
	for name, c := range map[string]struct {
		inner  vfs.FS
		packed bool
	}{"memory": {vfs.NewMem(), false}, "mapped": {vfs.OS, false}, "packed": {vfs.OS, true}} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewCounting(c.inner)
			r := new(stats.Registry)
			x := open(t, index.Options{Packed: c.packed, FS: fsys, Dir: filepath.Join(t.TempDir(), "index"), MaxMemTable: 1000, Stats: r})
			var written atomic.Int64 // rounds that every stream has
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for r := range uint64(2) {
				wg.Go(func() {
					var buf []index.Entry
					for i := r; ; i += 7 {
						select {
						case <-stop:
							return
						default:
						}
						hash := spread(i % streams)
						low := written.Load()
						last, ok := last(x, hash)
						if low > 0 && (!ok || round(last) < low-1) {
							t.Errorf("Last = %+v, %v after %d rounds", last, ok, low)
							return
						}
						buf = found(x.Ascend(buf[:0], hash, 0, 1<<62, 1<<20))
						if int64(len(buf)) < low {
							t.Errorf("%d entries after %d rounds", len(buf), low)
							return
						}
						for n, e := range buf {
							if round(e) != int64(n) || e.Hash != hash {
								t.Errorf("entry %d of a stream is %+v", n, e)
								return
							}
						}
						if low > 0 && !x.MayExist(hash) {
							t.Error("MayExist denies a stream")
							return
						}
					}
				})
			}
			m := &model{packed: c.packed}
			for i := range rounds {
				fill(t, x, m, streams, streams)
				written.Store(int64(i + 1))
				if i%60 == 59 {
					check.Must(t, x.Merge(t.Context()))
				}
			}
			check.Must(t, x.Flush())
			check.Must(t, x.Merge(t.Context()))
			close(stop)
			wg.Wait()
			got := samples(r)
			if n := got["annals_index_merge_seconds"]; n < 3 || len(x.Tables()) != 1 || got["annals_index_merge_read_entries_total"] != got["annals_index_merge_written_entries_total"] {
				t.Errorf("%v merges, tables %+v, samples %v", n, x.Tables(), got)
			}
			check.Must(t, x.Close())
			if left := append(fsys.OpenFiles(), fsys.UsedAfterClose()...); len(left) > 0 {
				t.Errorf("files left open or used after close: %v", left)
			}
		})
	}
}

// TestAddWaits fills the index while the disk stands still: memory stays bounded.
func TestAddWaits(t *testing.T) {
	gate := make(chan struct{})
	var flushes atomic.Int64
	x := open(t, index.Options{
		FS: vfs.NewMem(), MaxMemTable: 10,
		BeforeFlush: func() { flushes.Add(1); <-gate },
	})
	m := &model{}
	fill(t, x, m, 10, 2) // One frozen table may wait.
	done := make(chan struct{})
	go func() {
		defer close(done)
		var batch []index.Entry
		for i := range int64(10) {
			batch = append(batch, m.add(spread(9), i))
		}
		check.NoError(t, x.Add(batch, m.end, event.Chain{}))
	}()
	gate <- struct{}{} // The second continues when the first is written.
	<-done
	m.check(t, x, spread(9))
	close(gate)
	check.Must(t, x.Flush())
	check.Must(t, x.Close())
}

// atMerge calls do when the third table is begun, which is made of the first two.
func atMerge(fsys vfs.FS, do func()) vfs.FS {
	var tables atomic.Int64
	return vfs.NewFaulty(fsys, func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && uuid.Validate(strings.TrimSuffix(filepath.Base(op.Name), vfs.TempSuffix)) == nil && tables.Add(1) == 3 {
			do()
		}
		return nil
	})
}

// TestCloseCancelsMerge closes the index in the middle of a merge.
func TestCloseCancelsMerge(t *testing.T) {
	fsys := vfs.NewMem()
	merging := make(chan struct{})
	proceed := make(chan struct{})
	x := open(t, index.Options{FS: atMerge(fsys, func() { close(merging); <-proceed })})
	m := &model{}
	for range 2 {
		fill(t, x, m, 100, 5)
		check.Must(t, x.Flush())
	}
	before := x.Tables()
	merged := make(chan error)
	go func() { merged <- x.Merge(context.Background()) }()
	<-merging
	closed := make(chan error)
	go func() { closed <- x.Close() }()
	// Whatever is asked of it from here on is refused, at the latest when it is closed.
	close(proceed)
	err := <-merged
	check.Must(t, <-closed)
	check.Must(t, x.Close())
	if err != nil && !errors.Is(err, event.ErrClosed) {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"add": x.Add(nil, m.end, event.Chain{}), "flush": x.Flush(), "merge": x.Merge(t.Context()),
	} {
		check.Is(t, err, event.ErrClosed, name, "of a closed index")
	}
	_, ok, lastErr := x.Last(spread(1))
	_, ascendErr := x.Ascend(nil, spread(1), 0, 9, 9)
	if ok || !errors.Is(lastErr, event.ErrClosed) || !errors.Is(ascendErr, event.ErrClosed) || x.Tables() != nil {
		t.Error("a closed index answers")
	}
	y := open(t, index.Options{FS: fsys})
	defer func() { check.Must(t, y.Close()) }()
	if err != nil && len(y.Tables()) != len(before) {
		t.Errorf("tables %+v, want %+v", y.Tables(), before)
	}
	m.check(t, y, spread(3))
}

func TestMergeHonoursItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	x := open(t, index.Options{FS: atMerge(vfs.NewMem(), cancel)})
	defer func() { check.Must(t, x.Close()) }()
	m := &model{}
	for range 2 {
		fill(t, x, m, 100, 5)
		check.Must(t, x.Flush())
	}
	before := x.Tables()
	check.MustBe(t, x.Merge(ctx), context.Canceled)
	if after := x.Tables(); len(after) != len(before) {
		t.Fatalf("tables %+v, want %+v", after, before)
	}
	check.Must(t, x.Merge(context.Background()))
	m.check(t, x, spread(3))
}

// TestLevels lets tables climb the levels on their own, as far as they may.
func TestLevels(t *testing.T) {
	cases := []struct {
		name   string
		max    int
		levels []int
	}{
		{"no limit", 0, []int{2}},
		{"one level", 1, []int{1, 1, 1, 1}},
		{"never", -1, make([]int, 16)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			x := open(t, index.Options{FS: vfs.NewMem(), MaxAutoMergeLevel: c.max})
			defer func() { check.Must(t, x.Close()) }()
			m := &model{}
			for range 16 {
				fill(t, x, m, 30, 5)
				check.Must(t, x.Flush())
				x.WaitMerges()
			}
			var levels []int
			for _, i := range x.Tables() {
				levels = append(levels, i.Level)
			}
			if len(levels) != len(c.levels) || levels[0] != c.levels[0] {
				t.Fatalf("levels %v, want %v", levels, c.levels)
			}
			m.check(t, x, spread(3))
		})
	}
}

func TestReadOnlyRefusesChanges(t *testing.T) {
	fsys, m, tables := build(t, false)
	x := check.Value(index.OpenReadOnly(fsys, dir)).Must(t)
	defer func() { check.Must(t, x.Close()) }()
	for name, err := range map[string]error{
		"add": x.Add(nil, m.end, event.Chain{}), "flush": x.Flush(), "merge": x.Merge(t.Context()),
	} {
		check.Is(t, err, index.ErrReadOnly, name)
	}
	if got := x.Tables(); len(got) != len(tables) || x.Checkpoint() != m.end {
		t.Errorf("tables %v, checkpoint %d", got, x.Checkpoint())
	}
	m.check(t, x, spread(3))
}

func TestAddRefusesEntriesAboveTheirEnd(t *testing.T) {
	x := open(t, index.Options{FS: vfs.NewMem()})
	defer func() { check.Must(t, x.Close()) }()
	check.MustFail(t, x.Add([]index.Entry{{Hash: 1, Position: 5}}, 5, event.Chain{}), "accepted")
}
