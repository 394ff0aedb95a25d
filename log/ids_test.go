package eventlog

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/index"
)

// answers asks about ids as decisions do, and about ids that are not there.
func answers(t testing.TB, l *Log, frames []testFrame) (all []string) {
	t.Helper()
	<-l.Reads.ids.loaded
	for _, f := range frames {
		for _, e := range f.events {
			number, ok, err := l.Reads.FindID(e.stream, e.id)
			check.Must(t, err)
			has, err := l.Reads.HasID(e.stream, e.number, e.id)
			check.Must(t, err)
			other, err := l.Reads.HasID(e.stream, e.number+1, e.id)
			check.Must(t, err)
			unknown, err := l.Reads.HasID(e.stream, e.number, event.ID{1, 2, 3})
			check.Must(t, err)
			elsewhere, err := l.Reads.HasID("elsewhere", e.number, e.id)
			check.Must(t, err)
			all = append(all, fmt.Sprintf("%s %d: %d %v %v %v %v %v", e.stream, e.number, number, ok, has, other, unknown, elsewhere))
		}
	}
	return all
}

// TestIDsOfRemovedEvents: of the newest events, as many as are remembered, the
// ids are known whether or not they were removed, on every node, at any time.
func TestIDsOfRemovedEvents(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, recent := range []int{1, 7, 20, 45, 1000} {
		t.Run(fmt.Sprint(recent), func(t *testing.T) {
			m := newModel()
			o := testOptions(vfs.NewMem())
			o.RecentIDs = recent
			l := mustOpen(t, o)
			grow := func(n int) {
				for i := range n {
					events := make([]testEvent, 1+rng.IntN(4))
					for j := range events {
						events[j] = ev(fmt.Sprint("s", rng.IntN(3)), "x")
						if rng.IntN(3) == 0 { // Written again, perhaps in the same stream.
							events[j].id = event.ID{9, byte(rng.IntN(4))}
						}
					}
					write(t, l, m.frame(i%5 == 4, events...))
				}
			}
			grow(27)
			removed := map[int64]bool{}
			// Of the others, records say what they say while they are there.
			remembered := func() []testFrame {
				left := recent
				var frames []testFrame
				for _, f := range slices.Backward(m.frames) {
					f.events = f.events[max(0, len(f.events)-left):]
					left -= len(f.events)
					frames = append(frames, f)
				}
				return frames
			}
			want := answers(t, l, remembered())
			same := func(when string, l *Log) {
				t.Helper()
				got := answers(t, l, remembered())
				for i := range got {
					check.MustEqual(t, got[i], want[i], when, "..., before")
				}
			}
			reopen := func() {
				closeLog(t, l)
				l = mustOpen(t, o)
			}
			scavenge := func(first, last int) {
				ids, err := l.Chunks.IDsFrom()
				check.Must(t, err)
				kept := 0 // events at or after it
				for _, f := range m.frames {
					for _, e := range f.events {
						if e.position >= ids {
							kept++
						}
					}
				}
				if ids > 0 && kept < recent {
					t.Fatalf("%d events at or after %d, %d are to be remembered", kept, ids, recent)
				}
				_, err = l.Chunks.Rewrite(background, Rewrite{First: first, Last: last, IDsFrom: ids, Keep: func(s *Stored) bool {
					if m.last[string(s.Stream)] == s.Number || rng.IntN(4) == 0 {
						return true
					}
					removed[s.Position] = true
					return false
				}})
				check.Must(t, err)
			}
			scavenge(4, 4)
			scavenge(2, 3)
			same("rewritten", l)
			reopen()
			same("opened again", l)
			scavenge(2, 4)
			scavenge(0, 1)
			same("merged", l)
			reopen()
			same("merged and opened again", l)
			check.Must(t, l.index.Flush())
			check.Must(t, l.index.Scavenge(background, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return !removed[e.Position], nil }}))
			same("without entries", l)
			reopen()
			same("opened again without entries", l)

			from := l
			o2 := o
			o2.FS = vfs.NewMem()
			to := mustOpen(t, o2)
			for _, n := range []int{0, 2} {
				check.Must(t, to.Transfer.InstallChunk(chunkFrom(t, from, to, n)))
			}
			c := check.Value(from.Transfer.Continue(to.Tail().End, to.Tail().Chain)).Must(t)
			for {
				b, err := c.Next(0)
				if err != nil {
					break
				}
				_, err = to.AppendFrames(b.First, b.Raw)
				check.Must(t, err)
			}
			check.Must(t, c.Close())
			same("another node", to)
			closeLog(t, to)
			to = mustOpen(t, o2)
			same("another node, opened again", to)

			// Nodes that scavenged answer like one that did not.
			o3 := o
			o3.FS = vfs.NewMem()
			plain := mustOpen(t, o3)
			write(t, plain, m.frames...)
			have := len(m.frames)
			grow(12)
			write(t, plain, m.frames[have:]...)
			write(t, to, m.frames[have:]...)
			want = answers(t, plain, remembered())
			same("later", l)
			same("later, on another node", to)
			reopen()
			same("later, opened again", l)
		})
	}
}

func TestIDsFrom(t *testing.T) {
	o := testOptions(vfs.NewMem())
	for recent, want := range map[int]int64{1: 2 * chunkfile.ChunkSize, 15: 2 * chunkfile.ChunkSize, 16: chunkfile.ChunkSize, 30: chunkfile.ChunkSize, 31: 0, 45: 0, 46: 0} {
		o.FS, o.RecentIDs = vfs.NewMem(), recent
		l := mustOpen(t, o)
		m := newModel()
		write(t, l, m.someFrames(16, true)...) // Fifteen events a chunk, three in the active one.
		ask := func() {
			t.Helper()
			if got, err := l.Chunks.IDsFrom(); err != nil || got != want {
				t.Fatalf("of %d: %d (%v), want %d", recent, got, err, want)
			}
		}
		ask()
		_, err := l.Chunks.Rewrite(background, Rewrite{First: 1, Last: 1, Keep: func(*Stored) bool { return false }})
		check.Must(t, err)
		ask()
		_, err = l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 1})
		check.Must(t, err)
		if want == chunkfile.ChunkSize {
			want = 0
		}
		ask()
	}
}

// TestHasIDIsQuick: an id that is not there costs one look at the table, and no look at what is
// remembered. The test changes each remembered id to the one that it asks for: a look would find
// it.
func TestHasIDIsQuick(t *testing.T) {
	const events = 1 << 10
	r := newRecentIDs(events)
	r.seed = 1 // Of the tags none is like another.
	r.load(nil, nil, nil)
	for i := range events {
		r.add([]recentID{{id: event.ID{byte(i), byte(i >> 8)}, stream: 1, number: int64(i)}})
	}
	for at := range r.held {
		r.entry(at).id[15] = 1
	}
	for i := range events {
		if has, err := r.has(event.ID{byte(i), byte(i >> 8), 15: 1}, 1, int64(i)); has || err != nil {
			t.Fatal(i, has, err)
		}
	}
}

// TestRebuildForgetsScavenging: the record of scavenging is dropped when the index is rebuilt,
// because removed entries come back, and when the log is cut, because it may refer to events that
// are gone then. It stays otherwise.
func TestRebuildForgetsScavenging(t *testing.T) {
	cases := map[string]struct {
		change func(t *testing.T, fsys vfs.FS, dir string)
		gone   bool
	}{
		"nothing happened": {func(*testing.T, vfs.FS, string) {}, false},
		"map lost": {func(t *testing.T, fsys vfs.FS, dir string) {
			check.Must(t, fsys.Remove(filepath.Join(dir, "indexmap")))
		}, true},
		"map damaged": {func(t *testing.T, fsys vfs.FS, dir string) {
			check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(dir, "indexmap"), []byte("x")))
		}, true},
		"ahead of the log": {func(t *testing.T, fsys vfs.FS, dir string) {
			setCheckpoint(t, fsys, datadir.TruncateCheckpoint, 100)
		}, true},
		"restored": {func(t *testing.T, fsys vfs.FS, dir string) { setCheckpoint(t, fsys, datadir.TruncateCheckpoint, 1<<30) }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newModel()
			fsys := vfs.NewMem()
			o := testOptions(fsys)
			l := mustOpen(t, o)
			write(t, l, m.someFrames(3, false)...)
			check.Must(t, l.index.Flush())
			write(t, l, m.someFrames(3, false)...)
			dir := l.opts.IndexDir
			scavenging := filepath.Join(dir, scavengeFolder)
			check.Must(t, fsys.MkdirAll(scavenging))
			check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(scavenging, "scavenging.db"), []byte("x")))
			closeLog(t, l)
			c.change(t, fsys, dir)
			mustOpen(t, o)
			_, err := fsys.Stat(scavenging)
			if gone := errors.Is(err, fs.ErrNotExist); gone != c.gone || err != nil && !gone {
				t.Fatal(err)
			}
		})
	}
}
