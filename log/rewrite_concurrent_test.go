package eventlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestRewriteAmongReaders: while chunks are rewritten and merged and frames are
// appended, readers of every kind find all that was never removed, in order, and
// nothing once it was gone.
func TestRewriteAmongReaders(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.OS} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Log("seed", seed)
			m := newModel()
			counting := vfs.NewCounting(fsys)
			o := testOptions(counting)
			o.StreamCache = 64
			o.Index.MaxMemTable = 64
			o.RecentIDs = 100
			if name == "disk" {
				o.Dir = t.TempDir()
			}
			l := mustOpen(t, o)
			stream := func(i int) string { return fmt.Sprint("stream ", i%7) }
			whole := func(i int) string { return stream(i % 3) }
			// For ever the same events. Of some streams all stay: as in a scavenge, what is newest
			// is there.
			keep := func(s *Stored) bool { return s.Number%4 == 0 || string(s.Stream) < stream(3) }
			for i := range 12 {
				write(t, l, m.frame(i%4 == 3, ev(stream(i), "x"), ev(stream(i*3), "y")))
			}
			var stop atomic.Bool
			var all sync.WaitGroup
			reader := func(n uint64, read func(rng *rand.Rand) error) {
				rng := rand.New(rand.NewPCG(seed, n))
				all.Go(func() {
					for !stop.Load() {
						if err := read(rng); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			reader(1, func(rng *rand.Rand) error { return readWhole(l, whole(rng.IntN(3))) })
			reader(2, func(rng *rand.Rand) error { return scanSome(l, rng) })
			reader(3, func(rng *rand.Rand) error {
				name := whole(rng.IntN(3))
				page, err := l.Reads.ReadStream(event.StreamRead{Stream: name, From: 0, Count: 1 << 20})
				if err != nil {
					return err
				}
				// What the facts of a stream name can be read; the other way round they may be a
				// moment late.
				n, err := l.Reads.LastBelow(name, l.Tail().End)
				if err != nil || n < page.Last {
					return fmt.Errorf("last of %s is %d, found %d: %w", name, page.Last, n, err)
				}
				page, err = l.Reads.ReadStream(event.StreamRead{Stream: stream(3 + rng.IntN(4)), From: 0, Count: 1 << 20})
				want := int64(0)
				for _, e := range page.Events {
					if e.Number > want {
						return fmt.Errorf("event %d of %s follows %d", e.Number, e.Stream, want)
					}
					if e.Number == want {
						want += 4
					}
				}
				return err
			})
			reader(4, func(rng *rand.Rand) error {
				if _, err := l.Chunks.IDsFrom(); err != nil {
					return err
				}
				tail := l.Tail()
				c, err := l.Transfer.Continue(tail.End, tail.Chain)
				if err != nil {
					return err
				}
				return c.Close()
			})
			for w := range 2 { // Rewriters.
				reader(uint64(10+w), func(rng *rand.Rand) error {
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
			for i := range 300 {
				if t.Failed() {
					break
				}
				write(t, l, m.frame(i%6 == 5, ev(stream(i), "x"), ev(stream(i*3), "y")))
			}
			stop.Store(true)
			all.Wait()
			checkFiles(t, l)
			closeLog(t, l)
			if open := counting.OpenFiles(); len(open) > 0 {
				t.Fatalf("left open: %v", open)
			}
			if misuse := counting.UsedAfterClose(); len(misuse) > 0 {
				t.Fatalf("used after close: %v", misuse)
			}
			l = mustOpen(t, o)
			check.Must(t, scanSome(l, rand.New(rand.NewPCG(seed, 9))))
		})
	}
}

// readWhole reads a stream of which nothing is removed.
func readWhole(l *Log, stream string) error {
	info, err := l.Reads.StreamInfo(stream)
	if err != nil {
		return err
	}
	rec, err := l.Reads.LastRecord(stream)
	if err != nil || rec.Number < info.Last {
		return fmt.Errorf("last record of %s is %d, its last number %d: %w", stream, rec.Number, info.Last, err)
	}
	page, err := l.Reads.ReadStream(event.StreamRead{Stream: stream, From: event.Head, Count: 30, Backward: true})
	if err != nil || int64(len(page.Events)) != min(30, page.Last+1) {
		return fmt.Errorf("page of %s has %d events after %d: %w", stream, len(page.Events), page.Last, err)
	}
	for _, e := range page.Events {
		if has, err := l.Reads.HasID(stream, e.Number, e.ID); err != nil || !has {
			return fmt.Errorf("id of event %d of %s is not known: %w", e.Number, stream, err)
		}
		if n, ok, err := l.Chunks.StreamAt(nil, e.Position); err != nil || !ok || string(n) != stream {
			return fmt.Errorf("stream at %d is %s (%v): %w", e.Position, n, ok, err)
		}
	}
	_, err = l.Reads.ReadAll(event.AllRead{From: event.End, Count: 50, Backward: true})
	return err
}

// scanSome expects rising positions, and of every stream at least each fourth event.
func scanSome(l *Log, rng *rand.Rand) error {
	end := l.Tail().End
	want := map[string]int64{}
	at := int64(-1)
	var one Stored
	err := l.Chunks.Scan(background, 0, end, func(s *Stored) error {
		name := string(s.Stream)
		if s.Position <= at || s.Position >= end || s.Number > want[name] {
			return fmt.Errorf("event %d of %s at %d after %d, want %d", s.Number, name, s.Position, at, want[name])
		}
		if at = s.Position; s.Number == want[name] {
			want[name] += 4
		}
		if rng.IntN(20) == 0 {
			one = cloneStored(s)
		}
		return nil
	})
	if err != nil || one.Position == 0 {
		return err
	}
	name, ok, err := l.Chunks.StreamAt(nil, one.Position)
	if err != nil || ok && string(name) != string(one.Stream) || !ok && one.Number%4 == 0 {
		return fmt.Errorf("stream at %d is %s (%v), want %s: %w", one.Position, name, ok, one.Stream, err)
	}
	return nil
}
