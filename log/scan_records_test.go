package eventlog

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// storedEvent is what Scan should say of an event of the model.
func storedEvent(e testEvent) Stored {
	size := chunkfile.RecordSize(e.stream, &event.Proposed{Type: e.typ, Data: []byte(e.data), Metadata: []byte(e.metadata)})
	return Stored{
		Position: e.position, Size: size, Number: e.number, Time: e.time, ID: e.id, Flags: e.flags,
		Stream: []byte(e.stream), Type: []byte(e.typ), Data: []byte(e.data), Metadata: []byte(e.metadata),
	}
}

func cloneStored(s *Stored) Stored {
	c := *s
	for _, b := range []*[]byte{&c.Stream, &c.Type, &c.Data, &c.Metadata} {
		*b = append([]byte{}, *b...)
	}
	return c
}

func TestScan(t *testing.T) {
	onBoth(t, func(t *testing.T, o Options) {
		m := newModel()
		l := mustOpen(t, o)
		write(t, l, m.someFrames(6, true)...)
		write(t, l, m.frame(false, ev("large", strings.Repeat("x", 3*chunkfile.ReadWindow)), tombstone("b1"), meta("a1", `{"$maxCount":1}`)))
		write(t, l, m.someFrames(20, true)...)
		removed, _ := scavenged(m, 3*chunkfile.ChunkSize)
		_, err := l.Chunks.Rewrite(background, Rewrite{First: 1, Last: 2, Keep: keepNot(within(removed, 1, 2)), IDsFrom: 2 * chunkfile.ChunkSize})
		check.Must(t, err)
		removed = within(removed, 1, 2)
		var all []Stored
		ends := []int64{0, 1, m.tail.End - 1, m.tail.End, m.tail.End + 1, 1 << 60, chunkfile.ChunkSize + 3, 2 * chunkfile.ChunkSize}
		froms := []int64{0, chunkfile.ChunkSize, 2 * chunkfile.ChunkSize, chunkfile.ChunkSize - 10, 2*chunkfile.ChunkSize + 7, m.tail.End, 1 << 60}
		for _, f := range m.frames {
			for _, e := range f.events {
				if !removed[e.position] {
					all = append(all, storedEvent(e))
				}
				ends, froms = append(ends, e.position, e.position+1), append(froms, e.position)
			}
			froms = append(froms, f.First+int64(len(f.Records)))
		}
		seed := rand.Uint64()
		t.Log("seed", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		for range 500 {
			from, to := froms[rng.IntN(len(froms))], ends[rng.IntN(len(ends))]
			var got, want []Stored
			for _, s := range all {
				if from <= s.Position && s.Position < to {
					want = append(want, s)
				}
			}
			check.Must(t, l.Chunks.Scan(background, from, to, func(s *Stored) error {
				got = append(got, cloneStored(s))
				return nil
			}))
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("from %d to %d: %d records, want %d", from, to, len(got), len(want))
			}
		}
		nothing := func(*Stored) error { return errors.New("called") }
		for _, bad := range []int64{-1, 1, 70, m.frames[len(m.frames)-1].First + 3} {
			if err := l.Chunks.Scan(background, bad, 1<<60, nothing); !errors.Is(err, event.ErrBadPosition) {
				t.Fatalf("from %d: %v", bad, err)
			}
		}
		stop := errors.New("stop")
		if err := l.Chunks.Scan(background, 0, 1<<60, func(*Stored) error { return stop }); err != stop {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(background)
		cancel()
		check.MustBe(t, l.Chunks.Scan(ctx, 0, 1<<60, nothing), context.Canceled)

		for _, s := range all {
			name, ok, err := l.Chunks.StreamAt([]byte("x"), s.Position)
			if err != nil || !ok || string(name) != "x"+string(s.Stream) {
				t.Fatalf("stream at %d: %s, %v, %v", s.Position, name, ok, err)
			}
		}
		none := []int64{-1, 1, 70, chunkfile.ChunkSize + 1, chunkfile.ChunkSize - 10, m.tail.End, 1 << 60}
		for p := range removed {
			none = append(none, p)
		}
		for _, f := range m.frames {
			none = append(none, f.First+int64(len(f.Records)))
		}
		for _, p := range none {
			if name, ok, err := l.Chunks.StreamAt(nil, p); err != nil || ok || len(name) > 0 {
				t.Fatalf("stream at %d: %s, %v, %v", p, name, ok, err)
			}
		}
		closeLog(t, l)
		check.MustBe(t, l.Chunks.Scan(background, 0, 10, nothing), event.ErrClosed)
		if _, _, err := l.Chunks.StreamAt(nil, 0); !errors.Is(err, event.ErrClosed) {
			t.Fatal(err)
		}
	})
}

// TestScanLooksAtContext: within 1024 records.
func TestScanLooksAtContext(t *testing.T) {
	m := newModel()
	l := emptyLog(t)
	list := make([]testEvent, 5000)
	for i := range list {
		list[i] = ev("s", "")
	}
	write(t, l, m.frame(true, list...))
	ctx, cancel := context.WithCancel(background)
	n := 0
	err := l.Chunks.Scan(ctx, 0, m.tail.End, func(*Stored) error {
		if n++; n == 10 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || n > 10+lookEvery {
		t.Fatal(n, err)
	}
	ctx, cancel = context.WithCancel(background)
	n = 0
	_, err = l.Chunks.Rewrite(ctx, Rewrite{Keep: func(*Stored) bool {
		if n++; n == 10 {
			cancel()
		}
		return true
	}})
	if !errors.Is(err, context.Canceled) || n > 10+lookEvery {
		t.Fatal(n, err)
	}
}

// TestLastBelow asks at and around the position of every event, of streams with
// tombstones, with holes, in one hash with another stream, with entries whose records are gone.
func TestLastBelow(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newModel()
	o := testOptions(vfs.NewMem())
	o.Index.MaxMemTable = 64
	l := mustOpen(t, o)
	names := []string{"c0", "c1", "c2", "meager"} // The pairs that follow share a hash.
	for i := range uint64(4) {
		a, b := colliding(1 + i)
		names = append(names, a, b)
	}
	stream := func() string { return names[rng.IntN(len(names))] }
	for i := range 300 {
		events := make([]testEvent, 1+rng.IntN(4))
		for j := range events {
			if rng.IntN(40) == 0 {
				events[j] = tombstone(stream())
			} else if rng.IntN(10) == 0 {
				events[j] = meta(stream(), `{}`)
			} else {
				events[j] = ev(stream(), "x")
			}
		}
		write(t, l, m.frame(i%40 == 39, events...))
	}
	removed := map[int64]bool{}
	ask := func() {
		t.Helper()
		names := map[string]bool{"never written": true, "$$never written": true}
		positions := []int64{-1, 0, 1, m.tail.End, 1 << 60}
		for _, f := range m.frames {
			for _, e := range f.events {
				names[e.stream] = true
				if rng.IntN(24) == 0 {
					positions = append(positions, e.position, e.position+1)
				}
			}
		}
		for name := range names {
			for _, p := range positions {
				want := int64(-1)
				for _, f := range m.frames {
					for _, e := range f.events {
						if e.stream == name && e.position < p && e.number != event.TombstoneNumber && !removed[e.position] {
							want = e.number
						}
					}
				}
				if got, err := l.Reads.LastBelow(name, p); err != nil || got != want {
					t.Fatalf("%s below %d: %d (%v), want %d", name, p, got, err, want)
				}
			}
		}
	}
	ask()
	// Records go, at random; their entries stay.
	for _, f := range m.frames {
		for _, e := range f.events {
			if e.position < 4*chunkfile.ChunkSize && (rng.IntN(3) == 0 || e.stream == names[4] && e.position < 3*chunkfile.ChunkSize) {
				removed[e.position] = true
			}
		}
	}
	_, err := l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 3, Keep: keepNot(removed), IDsFrom: 2 * chunkfile.ChunkSize})
	check.Must(t, err)
	ask()
	check.Must(t, l.index.Flush())
	check.Must(t, l.index.Scavenge(background, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return !removed[e.Position] || rng.IntN(2) == 0, nil }}))
	ask()
	check.Must(t, l.index.Scavenge(background, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return !removed[e.Position], nil }}))
	ask()
	closeLog(t, l)
	check.MustBe(t, check.Err(l.Reads.LastBelow("c0", 10)), event.ErrClosed)
}

// TestLastBelowIsASearch: it does not look at all entries of a stream.
func TestLastBelowIsASearch(t *testing.T) {
	m := newModel()
	l := emptyLog(t)
	const frames, each = 100, 500
	for range frames {
		list := make([]testEvent, each)
		for i := range list {
			list[i] = ev("s", "")
		}
		write(t, l, m.frame(false, list...))
	}
	closeLog(t, l)
	var reads atomic.Int64
	l = mustOpen(t, testOptions(vfs.NewFaulty(l.opts.FS, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead {
			reads.Add(1)
		}
		return nil
	})))
	for _, at := range []int{0, 1, frames / 3, frames - 2, frames - 1} {
		before := reads.Load()
		n, err := l.Reads.LastBelow("s", m.frames[at].First)
		if read := reads.Load() - before; err != nil || n != int64(at*each-1) || read > 100 {
			t.Fatalf("%d, %v, %d reads", n, err, read)
		}
	}
}
