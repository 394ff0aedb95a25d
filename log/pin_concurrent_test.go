package eventlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/inspect"
)

// TestPinsAmongWriters: pins are taken and held while events are appended, chunks completed,
// rewritten and merged, and tables of the index written and merged. What a pin shows never changes,
// and is a whole database.
func TestPinsAmongWriters(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.OS} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Log("seed", seed)
			m := newModel()
			counting := vfs.NewCounting(fsys)
			o := testOptions(counting)
			o.Index.MaxMemTable = 32
			o.RecentIDs = 100
			if name == "disk" {
				o.Dir = t.TempDir()
			}
			l := mustOpen(t, o)
			stream := func(i int) string { return fmt.Sprint("stream ", i%7) }
			keep := func(s *Stored) bool {
				info, err := l.Reads.StreamInfo(string(s.Stream))
				return s.Number%4 == 0 || string(s.Stream) < stream(3) || err != nil || s.Number == info.Last
			}
			for i := range 12 {
				write(t, l, m.frame(i%4 == 3, ev(stream(i), "x"), ev(stream(i*3), "y")))
			}
			running, stop := context.WithCancel(background)
			defer stop()
			var all sync.WaitGroup
			again := func(n uint64, work func(rng *rand.Rand) error) {
				rng := rand.New(rand.NewPCG(seed, n))
				all.Go(func() {
					for running.Err() == nil {
						if err := work(rng); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			for w := range 2 {
				again(uint64(w), func(rng *rand.Rand) error {
					chunks, err := l.Chunks.List()
					if err != nil {
						return err
					}
					chunks = slices.DeleteFunc(chunks, func(c ChunkInfo) bool { return !c.Complete })
					first := rng.IntN(len(chunks))
					last := min(len(chunks)-1, first+rng.IntN(3))
					ids, err := l.Chunks.IDsFrom()
					if err != nil {
						return err
					}
					_, err = l.Chunks.Rewrite(background, Rewrite{First: chunks[first].First, Last: chunks[last].Last, IDsFrom: ids, Keep: keep})
					if errors.Is(err, event.ErrChunkReplaced) {
						return nil
					}
					return err
				})
			}
			again(7, func(rng *rand.Rand) error {
				if rng.IntN(2) == 0 {
					return l.index.Merge(background)
				}
				return l.index.Scavenge(background, index.ScavengeOptions{Keep: func(index.Entry) (bool, error) { return true, nil }})
			})
			var taken atomic.Int64
			for w := range 3 { // One of them holds its pins long.
				again(uint64(20+w), func(rng *rand.Rand) error {
					before := l.Tail().End
					p, err := l.Pin()
					if err != nil {
						return err
					}
					taken.Add(1)
					if p.Tail.End < before {
						err = fmt.Errorf("a pin ends at %d, the log before at %d", p.Tail.End, before)
					}
					first, e := readPinned(p, 1<<14)
					err = errors.Join(err, e)
					if until := l.Tail().End + int64(w*w)*chunkfile.ChunkSize; err == nil && w > 0 {
						if err = l.Reads.WaitLog(running, until); errors.Is(err, context.Canceled) {
							err = nil
						}
					}
					second, e := readPinned(p, 1<<14)
					err = errors.Join(err, e)
					if err == nil && !maps.Equal(first, second) {
						err = errors.New("the bytes of a pin changed")
					}
					if err == nil {
						err = checkPinned(p, second)
					}
					return errors.Join(err, p.Close())
				})
			}
			for i := range testkit.Fewer(120, 200) {
				if t.Failed() {
					break
				}
				write(t, l, m.frame(i%6 == 5, ev(stream(i), "x"), ev(stream(i*3), "y")))
			}
			stop()
			all.Wait()
			t.Log(taken.Load(), "pins")
			checkFiles(t, l)
			closeLog(t, l)
			if open := counting.OpenFiles(); len(open) > 0 {
				t.Fatalf("left open: %v", open)
			}
			if misuse := counting.UsedAfterClose(); len(misuse) > 0 {
				t.Fatalf("used after close: %v", misuse)
			}
		})
	}
}

// checkPinned opens what a pin shows and looks for the events that are never removed.
func checkPinned(p *Pin, files map[string]string) (err error) {
	fsys := vfs.NewMem()
	if err := writeFolder(fsys, testDir, files); err != nil {
		return err
	}
	var found error
	_, err = inspect.Run(background, inspect.Options{FS: fsys, Dir: testDir}, func(x inspect.Finding) {
		if x.Severity == inspect.Problem {
			found = errors.Join(found, fmt.Errorf("found in the copy: %+v", x))
		}
	})
	if err = errors.Join(err, found); err != nil {
		return err
	}
	o := testOptions(fsys)
	o.RecentIDs, o.MaxTruncate = 100, 1
	l, err := Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	<-l.Reads.ids.loaded
	if l.Tail() != p.Tail {
		return fmt.Errorf("the copy ends at %+v, the pin at %+v", l.Tail(), p.Tail)
	}
	for i := range 3 {
		if err := readWhole(l, fmt.Sprint("stream ", i)); err != nil {
			return err
		}
	}
	return scanSome(l, rand.New(rand.NewPCG(1, 2)))
}
