package index_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// TestReadersDuringScavenge removes from the front of streams while others add to them, flush,
// merge and read: a reader never misses an entry that stays.
func TestReadersDuringScavenge(t *testing.T) {
	const (
		streams = 30
		rounds  = 300
	)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	round := func(e index.Entry) int64 { return e.Position / 100 / streams }
	for name, c := range map[string]struct {
		inner  vfs.FS
		packed bool
	}{"memory": {vfs.NewMem(), false}, "mapped": {vfs.OS, false}, "packed": {vfs.OS, true}} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewCounting(c.inner)
			x := open(t, index.Options{Packed: c.packed, FS: fsys, Dir: filepath.Join(t.TempDir(), "index"), MaxMemTable: 500})
			// rounds that every stream has; number below which entries may go
			var written, discard atomic.Int64
			var scavenges, dropped atomic.Int64
			stop := make(chan struct{})
			over := func() bool {
				select {
				case <-stop:
					return true
				default:
					return false
				}
			}
			var wg sync.WaitGroup
			for r := range uint64(2) {
				wg.Go(func() {
					var buf []index.Entry
					for i := r; !over(); i += 7 {
						hash := spread(i % streams)
						low := written.Load()
						buf = found(x.Ascend(buf[:0], hash, 0, 1<<62, 1<<20))
						high := discard.Load() // Nothing at or above it had gone by then.
						next := int64(0)
						for n, e := range buf {
							if e.Hash != hash || n > 0 && round(e) != next || n == 0 && round(e) > high {
								t.Errorf("entry %+v after number %d, numbers below %d may have gone", e, next-1, high)
								return
							}
							next = round(e) + 1
						}
						if last, ok := last(x, hash); next < low || low > 0 && (!ok || round(last) < low-1) {
							t.Errorf("last is %+v, %v, and %d from the front, after %d rounds", last, ok, next-1, low)
							return
						}
					}
				})
			}
			// closed when a scavenge has ended and entries have gone, or none will
			dropping := make(chan struct{})
			wg.Go(func() {
				tell := sync.OnceFunc(func() { close(dropping) })
				defer tell()
				rnd := rand.New(rand.NewPCG(seed, 2))
				for !over() {
					ctx, cancel := context.WithCancel(t.Context())
					point := written.Load()
					if point > 0 {
						point-- // The last one stays.
					}
					discard.Store(max(discard.Load(), point))
					left := rnd.IntN(20_000)
					err := x.Scavenge(ctx, index.ScavengeOptions{
						Keep: func(e index.Entry) (bool, error) {
							if left--; left == 0 {
								cancel()
							}
							return round(e) >= point, nil
						},
						Done: func(s index.ScavengedTable) { dropped.Add(s.Dropped) },
					})
					cancel()
					if err == nil {
						if scavenges.Add(1); dropped.Load() > 0 {
							tell()
						}
					} else if !errors.Is(err, context.Canceled) {
						t.Error(err)
						return
					}
				}
			})
			wg.Go(func() {
				for !over() {
					if err := errors.Join(x.Flush(), x.Merge(t.Context())); err != nil {
						t.Error(err)
						return
					}
				}
			})
			m := &model{packed: c.packed}
			for i := range rounds {
				fill(t, x, m, streams, streams)
				written.Store(int64(i + 1))
			}
			<-dropping
			close(stop)
			wg.Wait()
			point := int64(rounds - 1)
			check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return round(e) >= point, nil }}))
			m.drop(m.end, func(e index.Entry) bool { return round(e) >= point })
			for h := range uint64(streams) {
				m.check(t, x, spread(h))
			}
			if scavenges.Load() == 0 || dropped.Load() == 0 {
				t.Errorf("%d scavenges, %d entries dropped", scavenges.Load(), dropped.Load())
			}
			check.Must(t, x.Close())
			if left := append(fsys.OpenFiles(), fsys.UsedAfterClose()...); len(left) > 0 {
				t.Errorf("files left open or used after close: %v", left)
			}
		})
	}
}

// Between two tables merges have their turn. What they make of tables not looked
// at is looked at, what they make of others is not.
func TestMergesBetweenScavengedTables(t *testing.T) {
	for _, c := range []struct {
		name  string
		after int // tables after which all are merged
		again bool
	}{{"first", 1, true}, {"last", 5, false}} {
		t.Run(c.name, func(t *testing.T) {
			x, m := layers(t, index.Options{FS: vfs.NewMem()})
			all := len(m.log)
			asked, tables := 0, 0
			want := all
			check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{
				Keep: func(e index.Entry) (bool, error) {
					asked++
					if e.Position >= int64(all)*100 {
						t.Errorf("asked about entry %+v, which was added later", e)
					}
					return e.Number%2 == 0, nil
				},
				Done: func(s index.ScavengedTable) {
					if tables++; tables != c.after {
						return
					}
					check.Must(t, x.Merge(t.Context()))
					if c.again {
						want = asked
						for _, tab := range x.Tables() {
							want += int(tab.Entries)
						}
					} else {
						// A merge with what came since changes nothing in that.
						fill(t, x, m, 20, 9)
						check.Must(t, x.Flush())
						check.Must(t, x.Merge(t.Context()))
					}
				},
			}))
			if asked != want || len(x.Tables()) != 1 {
				t.Errorf("asked about %d entries, expected %d, tables %+v", asked, want, x.Tables())
			}
			m.drop(int64(all)*100, func(e index.Entry) bool { return e.Number%2 == 0 })
			for h := range uint64(9) {
				m.check(t, x, spread(h))
			}
			check.Must(t, x.Close())
		})
	}
}

// A merge waits for the table under work, a second scavenge for the first one;
// both can be called off while they wait.
func TestMergeAndScavengeExcludeEachOther(t *testing.T) {
	x, _ := layers(t, index.Options{FS: vfs.NewMem()})
	inside, proceed := make(chan struct{}), make(chan struct{})
	scavenged := make(chan error)
	var once sync.Once
	go func() {
		scavenged <- x.Scavenge(t.Context(), index.ScavengeOptions{Keep: func(index.Entry) (bool, error) {
			once.Do(func() { close(inside); <-proceed })
			return true, nil
		}})
	}()
	<-inside
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	all := keeping(func(index.Entry) bool { return true })
	for name, err := range map[string]error{
		"merge": x.Merge(ended), "scavenge": x.Scavenge(ended, index.ScavengeOptions{Keep: all}),
	} {
		check.Is(t, err, context.Canceled, name)
	}
	if !x.Scavenging() {
		t.Error("no scavenge is running")
	}
	done := make(chan error, 2)
	go func() { done <- x.Merge(t.Context()) }()
	go func() { done <- x.Scavenge(t.Context(), index.ScavengeOptions{Keep: all}) }()
	close(proceed)
	check.Must(t, errors.Join(<-scavenged, <-done, <-done))
	if len(x.Tables()) != 1 {
		t.Errorf("tables %+v", x.Tables())
	}
	check.Must(t, x.Close())
}

func TestCloseCancelsScavenge(t *testing.T) {
	fsys := vfs.NewMem()
	x, m := layers(t, index.Options{FS: fsys})
	inside, closing := make(chan struct{}), make(chan struct{})
	scavenged := make(chan error)
	go func() {
		scavenged <- x.Scavenge(context.Background(), index.ScavengeOptions{
			Keep: keeping(func(e index.Entry) bool { return e.Number%2 == 0 }),
			Pace: func(ctx context.Context, _ int64) error {
				close(inside)
				<-closing
				<-ctx.Done()
				return context.Cause(ctx)
			},
		})
	}()
	<-inside
	go close(closing)
	check.Must(t, x.Close())
	check.Is(t, <-scavenged, event.ErrClosed, "scavenge")
	m.verifyFiles(t, fsys, "db/index")
	names := check.Value(fsys.List("db/index")).Must(t)
	check.Equal(t, len(names), 2+2*len(lines(t, fsys)), "files", names)
}

// TestPowerCutDuringScavenge cuts the power before every changing operation: each
// table is there as it was or without what had to go, and a second try finishes.
func TestPowerCutDuringScavenge(t *testing.T) { onShapes(t, testPowerCutDuringScavenge) }

func testPowerCutDuringScavenge(t *testing.T, packed bool) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	d := powercut.New(powercut.Options[int]{Off: true, More: 1, Seed: seed})
	x, m := layers(t, index.Options{Packed: packed, FS: d})
	check.Must(t, x.Flush())
	// All goes from the newest table and from the oldest ones half.
	keep := func(e index.Entry) bool {
		return e.Position < m.end-30*100 && (even(e) || e.Position >= 18_000)
	}
	d.On()
	check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{Keep: keeping(keep)}))
	d.Off()
	check.Must(t, x.Close())
	left := &model{packed: packed, log: append([]index.Entry(nil), m.log...), end: m.end}
	left.drop(m.end, keep)
	crashes := d.Cuts()
	for _, c := range crashes {
		t.Run(c.What, func(t *testing.T) {
			x := open(t, index.Options{Packed: packed, FS: c.FS, MaxAutoMergeLevel: -1})
			check.MustEqual(t, x.Checkpoint(), m.end, "checkpoint")
			for h := range uint64(9) {
				for _, e := range left.of(spread(h)) {
					if got := found(x.Get(nil, e.Hash, e.Number)); !slices.Contains(got, e) {
						t.Fatalf("%+v is missing: %v", e, got)
					}
				}
			}
			check.Must(t, x.Scavenge(t.Context(), index.ScavengeOptions{Keep: keeping(keep)}))
			left.check(t, x, spread(3)) // Of the others the files tell.
			check.Must(t, x.Close())
			left.verifyFiles(t, c.FS, "db/index")
			names := check.Value(c.FS.List("db/index")).Must(t)
			check.Equal(t, len(names), 2+2*len(lines(t, c.FS)), "files", names)
		})
	}
	if len(crashes) < 50 {
		t.Errorf("only %d crashes", len(crashes))
	}
}
