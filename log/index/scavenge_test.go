package index_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/stats"
)

// keeping makes a function that cannot fail one for Scavenge.
func keeping(keep func(index.Entry) bool) func(index.Entry) (bool, error) {
	return func(e index.Entry) (bool, error) { return keep(e), nil }
}

// drop takes the entries that are not kept out of the model, as far as they lie below a position.
func (m *model) drop(below int64, keep func(index.Entry) bool) {
	m.log = slices.DeleteFunc(m.log, func(e index.Entry) bool { return e.Position < below && !keep(e) })
}

// layers makes an index with tables of three levels and a few entries in memory.
func layers(t *testing.T, opt index.Options) (*index.Index, *model) {
	t.Helper()
	opt.MaxAutoMergeLevel = -1
	x := open(t, opt)
	m := &model{packed: opt.Packed}
	for range 2 {
		fill(t, x, m, 60, 7)
		check.Must(t, x.Flush())
		fill(t, x, m, 50, 7)
		check.Must(t, x.Flush())
		check.Must(t, x.Merge(t.Context()))
	}
	for range 3 {
		fill(t, x, m, 40, 9)
		check.Must(t, x.Flush())
	}
	fill(t, x, m, 30, 9)
	return x, m
}

func TestScavengeReportsEachTable(t *testing.T) { onShapes(t, testScavengeReportsEachTable) }

func testScavengeReportsEachTable(t *testing.T, packed bool) {
	fsys := vfs.NewMem()
	r := new(stats.Registry)
	x, m := layers(t, index.Options{Packed: packed, FS: fsys, Stats: r})
	check.Must(t, x.Flush())
	before := x.Tables()
	slices.Reverse(before)
	// The newest table keeps all, the next one nothing, of the others every third entry goes.
	cuts := []int64{m.end - 30*100, m.end - 70*100}
	keep := func(e index.Entry) bool {
		return e.Position >= cuts[0] || e.Position < cuts[1] && e.Position%300 != 0
	}
	var done []index.ScavengedTable
	check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{
		Keep: keeping(keep),
		Done: func(s index.ScavengedTable) {
			if !x.Scavenging() || x.Merging() {
				t.Error("a scavenge is running and no merge")
			}
			done = append(done, s)
		},
	}))
	if x.Scavenging() {
		t.Error("no scavenge is running")
	}
	var kept, dropped int64
	places := []int{0, 3, 2, 1, 0} // Of each among those that are there.
	for i, s := range done {
		b := before[i]
		if s.Level != b.Level || s.Index != places[i] || s.Kept+s.Dropped != b.Entries || s.Before <= b.Bytes || s.Took <= 0 {
			t.Errorf("table %d: %+v, was %+v", i, s, b)
		}
		kept, dropped = kept+s.Kept, dropped+s.Dropped
		last := len(before) - 1
		switch {
		case i == last && (s.Rewritten || s.File != b.File || s.After != s.Before || s.Dropped != 0),
			i == last-1 && (!s.Rewritten || s.File != "" || s.After != 0 || s.Kept != 0),
			i < last-1 && (!s.Rewritten || s.File == b.File || s.After >= s.Before || s.Kept == 0 || s.Dropped == 0):
			t.Errorf("table %d: %+v", i, s)
		}
	}
	if len(done) != len(before) || len(x.Tables()) != len(before)-1 {
		t.Fatalf("%d tables scavenged, %d are left of %d", len(done), len(x.Tables()), len(before))
	}
	got := samples(r)
	for key, want := range map[string]int64{
		"annals_index_scavenge_seconds":               int64(len(before)),
		"annals_index_scavenge_read_entries_total":    kept + dropped,
		"annals_index_scavenge_dropped_entries_total": dropped,
		"annals_index_scavenges_under_way":            0,
		"annals_index_table_entries":                  kept,
		"annals_queue_length queue=Index Committer":   0,
		"eventstore_queue_processing_duration_seconds message_type=ScavengeTable queue=Index Committer": int64(len(before)),
	} {
		if have, ok := got[key]; !ok || have != float64(want) {
			t.Errorf("%s is %v (%t), expected %d", key, have, ok, want)
		}
	}
	m.drop(m.end, keep)
	for h := range uint64(9) {
		m.check(t, x, spread(h))
	}
	check.Must(t, x.Close())
	m.verifyFiles(t, fsys, "db/index")
	// The bytes told are those of the files.
	var told, real int64
	for _, s := range done {
		told += s.After
	}
	names := check.Value(fsys.List("db/index")).Must(t)
	for _, name := range names {
		if strings.Contains(name, "-") && name != "stream-existence" {
			info := check.Value(fsys.Stat(filepath.Join("db/index", name))).Must(t)
			real += info.Size()
		}
	}
	check.Equal(t, told, real, "bytes told, the files have")
}

// The position up to which the index is complete outlives its last table.
func TestScavengeOfEverything(t *testing.T) { onShapes(t, testScavengeOfEverything) }

func testScavengeOfEverything(t *testing.T, packed bool) {
	fsys := vfs.NewMem()
	x, m := layers(t, index.Options{Packed: packed, FS: fsys})
	check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{Keep: keeping(func(index.Entry) bool { return false })}))
	if len(x.Tables()) != 0 || x.Checkpoint() != m.end {
		t.Fatalf("tables %v, checkpoint %d, expected %d", x.Tables(), x.Checkpoint(), m.end)
	}
	check.Must(t, x.Close())
	x = open(t, index.Options{Packed: packed, FS: fsys})
	if x.Checkpoint() != m.end || len(x.Tables()) != 0 {
		t.Fatalf("tables %v, checkpoint %d after reopening, expected %d", x.Tables(), x.Checkpoint(), m.end)
	}
	m.log = nil
	fill(t, x, m, 20, 3)
	check.Must(t, x.Flush())
	m.check(t, x, spread(1))
	check.Must(t, x.Close())
	m.verifyFiles(t, fsys, "db/index")
	names := check.Value(fsys.List("db/index")).Must(t)
	if len(names) != 4 { // indexmap, a table, its filter, stream-existence
		t.Errorf("files %v", names)
	}
}

// Keep sees each entry once and in order, wherever the first and the last dropped entry of a table
// lie.
func TestScavengeAsksOnceInOrder(t *testing.T) { onShapes(t, testScavengeAsksOnceInOrder) }

func testScavengeAsksOnceInOrder(t *testing.T, packed bool) {
	const n = 45_000 // More than one piece of reading.
	piece := 1 << 20 / 24
	if packed {
		piece -= piece % 1024
	}
	for _, c := range []struct {
		name     string
		from, to int
	}{
		{"none", n, n}, {"first", 0, 1}, {"last", n - 1, n}, {"second half", n / 2, n}, {"first half", 0, n / 2},
		{"end of a piece", piece - 1, piece + 1}, {"start of a piece", piece, piece + 2}, {"all but the first", 1, n}, {"all but the last", 0, n - 1}, {"all", 0, n},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := vfs.NewMem()
			x := open(t, index.Options{Packed: packed, FS: fsys, MaxAutoMergeLevel: -1})
			m := &model{packed: packed}
			fill(t, x, m, n, 1000)
			check.Must(t, x.Flush())
			var asked []index.Entry
			var paced int64
			var done index.ScavengedTable
			gone := make(map[int64]bool)
			check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{
				Keep: func(e index.Entry) (bool, error) {
					i := len(asked)
					asked = append(asked, e)
					drop := c.from <= i && i < c.to
					if drop {
						gone[e.Position] = true
					}
					return !drop, nil
				},
				Pace: func(_ context.Context, entries int64) error {
					paced += entries
					if ahead := paced - int64(len(asked)); entries > 4096 || ahead != 0 && ahead != 1 {
						t.Errorf("told of %d entries, %d in all, after %d", entries, paced, len(asked))
					}
					return nil
				},
				Done: func(s index.ScavengedTable) { done = s },
			}))
			if len(asked) != n || !slices.IsSortedFunc(asked, less) || paced != n {
				t.Fatalf("asked about %d entries, paced for %d, of %d", len(asked), paced, n)
			}
			if done.Dropped != int64(c.to-c.from) || done.Kept != int64(n-c.to+c.from) || done.Rewritten != (c.to > c.from) {
				t.Errorf("%+v", done)
			}
			m.drop(m.end, func(e index.Entry) bool { return !gone[e.Position] })
			check.Must(t, x.Close())
			m.verifyFiles(t, fsys, "db/index")
		})
	}
}

// A table that cannot be written ends the scavenge and not the index. Damage
// and a set of tables that cannot be replaced end both.
func TestScavengeWriteErrors(t *testing.T) { onShapes(t, testScavengeWriteErrors) }

func testScavengeWriteErrors(t *testing.T, packed bool) {
	errDisk := errors.New("disk full")
	for fail := 0; ; fail += testkit.Fewer(5, 1) {
		mem := vfs.NewMem()
		var mu sync.Mutex
		count, armed := 0, false
		var hit string
		fsys := vfs.NewFaulty(mem, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if !armed || !op.Kind.Mutates() {
				return nil
			}
			if count++; count == fail+1 {
				hit = string(op.Kind) + " " + op.Name
				return errDisk
			}
			return nil
		})
		var fatal []error
		x, m := layers(t, index.Options{Packed: packed, FS: fsys, OnFatal: func(err error) { fatal = append(fatal, err) }})
		check.Must(t, x.Flush())
		mu.Lock()
		armed = true
		mu.Unlock()
		var done []index.ScavengedTable
		err := x.Scavenge(t.Context(), index.ScavengeOptions{
			Keep: keeping(even), Done: func(s index.ScavengedTable) { done = append(done, s) },
		})
		mu.Lock()
		armed = false
		at := hit
		mu.Unlock()
		if at == "" {
			check.Must(t, errors.Join(err, x.Close()))
			if fail < 30 {
				t.Fatalf("only %d operations were seen", fail)
			}
			return
		}
		// The folder is synced for the files of a table, and once more for indexmap.
		ofMap := strings.Contains(at, "indexmap") || len(fatal) > 0 && strings.HasPrefix(at, "sync")
		switch {
		case strings.HasPrefix(at, "remove"):
			// Files of a table that was replaced: left to the next start.
			check.Must(t, err)
		case !errors.Is(err, errDisk) || ofMap != (len(fatal) == 1):
			t.Fatalf("%s: %v, fatal %v", at, err, fatal)
		}
		if !ofMap {
			// The index keeps working, and the next try succeeds.
			fill(t, x, m, 30, 9)
			check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{Keep: keeping(even)}))
			m.drop(m.end, even)
			for h := range uint64(9) {
				m.check(t, x, spread(h))
			}
			if len(fatal) > 0 {
				t.Fatalf("%s: fatal %v", at, fatal)
			}
			check.Must(t, x.Close())
			m.verifyFiles(t, mem, "db/index")
			names := check.Value(mem.List("db/index")).Must(t)
			if want := 2 + 2*len(lines(t, mem)); len(names) != want && !strings.HasPrefix(at, "remove") {
				t.Fatalf("%s: files %v, expected %d", at, names, want)
			}
			continue
		}
		check.MustBe(t, x.Flush(), errDisk, at, "flush gives")
		check.Must(t, x.Close())
		x = open(t, index.Options{Packed: packed, FS: mem})
		for _, tab := range x.Tables() {
			if tab.Entries == 0 {
				t.Error("an empty table")
			}
		}
		check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{Keep: keeping(even)}))
		m.drop(m.end, even)
		m.replay(t, x)
		m.check(t, x, spread(1))
		check.Must(t, x.Close())
	}
}

// lines are the tables that indexmap names.
func lines(t *testing.T, fsys vfs.FS) []index.TableInfo {
	t.Helper()
	x := check.Value(index.OpenReadOnly(fsys, "db/index")).Must(t)
	defer func() { check.Must(t, x.Close()) }()
	return x.Tables()
}

func TestScavengeErrorsOfCallers(t *testing.T) { onShapes(t, testScavengeErrorsOfCallers) }

func testScavengeErrorsOfCallers(t *testing.T, packed bool) {
	errMine := errors.New("mine")
	for name, c := range map[string]func(n *int, cancel func()) index.ScavengeOptions{
		"keep": func(n *int, _ func()) index.ScavengeOptions {
			return index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) {
				if *n++; *n == 230 {
					return false, errMine
				}
				return *n%2 == 0, nil
			}}
		},
		"pace": func(n *int, _ func()) index.ScavengeOptions {
			return index.ScavengeOptions{
				Keep: func(e index.Entry) (bool, error) { *n++; return *n%2 == 0, nil },
				Pace: func(context.Context, int64) error {
					if *n > 230 {
						return errMine
					}
					return nil
				},
			}
		},
		"context": func(n *int, cancel func()) index.ScavengeOptions {
			return index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) {
				if *n++; *n == 230 {
					cancel()
				}
				return *n%2 == 0, nil
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			x, _ := layers(t, index.Options{Packed: packed, FS: fsys})
			check.Must(t, x.Flush())
			ctx, cancel := context.WithCancelCause(t.Context())
			n := 0
			o := c(&n, func() { cancel(errMine) })
			var done int
			o.Done = func(index.ScavengedTable) { done++ }
			before := x.Tables()
			check.MustEqual(t, x.Scavenge(ctx, o), errMine, "error")
			after := x.Tables()
			if len(after) != len(before) || done == 0 || done == len(before) {
				t.Fatalf("%d of %d tables done, %d are there", done, len(before), len(after))
			}
			for i := range after {
				if (after[i].File != before[i].File) != (i >= len(after)-done) {
					t.Errorf("table %d: %+v, was %+v, %d are done", i, after[i], before[i], done)
				}
			}
			names := check.Value(fsys.List("db/index")).Must(t)
			check.Equal(t, len(names), 2+2*len(after), "files", names)
			check.Must(t, x.Merge(t.Context()))
			check.Must(t, x.Close())
			check.Is(t, x.Scavenge(t.Context(), o), event.ErrClosed, "scavenge of a closed index")
		})
	}
}

// TestScavengeStopsSoon counts the entries looked at after the context has ended.
func TestScavengeStopsSoon(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	x := open(t, index.Options{FS: vfs.NewMem(), MaxAutoMergeLevel: -1})
	m := &model{}
	const n = 10_000
	for range 3 {
		fill(t, x, m, n, 1000)
		check.Must(t, x.Flush())
	}
	for range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		all := 0
		for _, tab := range x.Tables() {
			all += int(tab.Entries)
		}
		stopAt, asked, late := 1+rnd.IntN(all), 0, 0
		err := x.Scavenge(ctx, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) {
			if asked++; asked == stopAt {
				cancel()
			}
			if asked > stopAt {
				late++
			}
			// Drops now and then, so that tables are written as well.
			return asked%50 != 0 || asked > stopAt/2, nil
		}})
		cancel()
		if !errors.Is(err, context.Canceled) || late > 1024 {
			t.Fatalf("stopped at %d of %d with %v, %d entries late", stopAt, all, err, late)
		}
	}
	check.Must(t, x.Close())
}

// TestScavengeWhoseKeepPanics: a fault of mapped memory that Keep reads is a panic that its caller
// recovers from. The index keeps working.
func TestScavengeWhoseKeepPanics(t *testing.T) {
	x, m := layers(t, index.Options{FS: vfs.NewMem()})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		t.Error(x.Scavenge(t.Context(), index.ScavengeOptions{Keep: func(index.Entry) (bool, error) { panic("fault") }}))
	}()
	keep := func(e index.Entry) bool { return e.Number%2 == 0 }
	check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{Keep: keeping(keep)}))
	m.drop(1<<62, keep)
	check.Must(t, x.Merge(t.Context()))
	for h := range uint64(9) {
		m.check(t, x, spread(h))
	}
	check.Must(t, x.Close())
}
