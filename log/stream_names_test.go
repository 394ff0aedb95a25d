package eventlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/names"
)

// allNames reads all pages.
func allNames(t *testing.T, l *Log, r event.NamesRead) (all []event.NamedStream) {
	t.Helper()
	for {
		page, err := l.Names.Page(background, r)
		if _, ok := errors.AsType[*event.NamesNotListed](err); ok {
			continue // It has waited a while for them.
		}
		check.Must(t, err)
		all = append(all, page.Streams...)
		if r.After = page.Next; r.After == "" {
			return all
		}
	}
}

func checkNames(t *testing.T, l *Log, r event.NamesRead, want ...string) {
	t.Helper()
	var got []string
	for _, s := range allNames(t, l, r) {
		text := fmt.Sprint(s.Name, " ", s.Last)
		if s.HardDeleted {
			text += " hard"
		}
		if s.SoftDeleted {
			text += " soft"
		}
		got = append(got, text)
	}
	check.Slice(t, got, want, r)
}

func TestNames(t *testing.T) {
	onBoth(t, func(t *testing.T, o Options) {
		o.EnsureDefaults()
		l := mustOpen(t, o)
		m := newModel()
		write(t, l, m.frame(false, ev("b-1", ""), ev("a", ""), ev("b-1", "")), m.frame(false, ev("b-2", ""), meta("b-1", `{"$maxCount":1}`)))
		if there, err := names.Exists(o.FS, l.Names.dir()); err != nil || there {
			t.Errorf("a list is there without a request, %v", err)
		}
		checkNames(t, l, event.NamesRead{Count: 2}, "a 0", "b-1 1", "b-2 0")
		checkNames(t, l, event.NamesRead{Count: 2, Created: true}, "b-2 0", "a 0", "b-1 1")
		// What is written is there at once.
		write(t, l, m.frame(true, ev("c", ""), meta("a", `{"$tb":9223372036854775807}`), ev("$sys", "")), m.frame(false, tombstone("b-2"), ev("b-3", "")))
		checkNames(t, l, event.NamesRead{Count: 10}, "$sys 0", "a 0 soft", "b-1 1", "b-2 0 hard", "b-3 0", "c 0")
		checkNames(t, l, event.NamesRead{Count: 1, Prefix: "b-"}, "b-1 1", "b-2 0 hard", "b-3 0")
		checkNames(t, l, event.NamesRead{Count: 1, Prefix: "b-", Created: true}, "b-3 0", "b-2 0 hard", "b-1 1")
		checkNames(t, l, event.NamesRead{Count: 1, Prefix: "$$"}, "$$a 0", "$$b-1 0")
		checkNames(t, l, event.NamesRead{Count: 5, Prefix: "x"})
		closeLog(t, l)
		if _, err := l.Names.Page(background, event.NamesRead{Count: 1}); !errors.Is(err, event.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		// It continues after a restart.
		l = mustOpen(t, o)
		write(t, l, m.frame(false, ev("d", "")))
		checkNames(t, l, event.NamesRead{Count: 3, Created: true}, "d 0", "b-3 0", "$sys 0", "c 0", "b-2 0 hard", "a 0 soft", "b-1 1")
		// A log that was cut has a list that knows less.
		closeLog(t, l)
		check.Must(t, vfs.WriteFileAtomic(o.FS, filepath.Join(o.Dir, datadir.TruncateCheckpoint), chunkfile.Order.AppendUint64(nil, uint64(m.frames[1].tail.End))))
		l = mustOpen(t, o)
		checkNames(t, l, event.NamesRead{Count: 3}, "a 0", "b-1 1", "b-2 0")
	})
}

// TestNamesScavenged removes events and entries at random. Afterwards each stream that has an event
// is listed once, also one that gets its next event long after all were removed, and no other.
func TestNamesScavenged(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	onBoth(t, func(t *testing.T, o Options) {
		l := mustOpen(t, o)
		m := newModel()
		stream := func() string { return fmt.Sprint("s", random.IntN(40)) }
		for range 5 {
			for range 6 {
				write(t, l, m.frame(false, ev(stream(), ""), ev(stream(), ""), ev(stream(), "")))
			}
			write(t, l, m.frame(true, ev(stream(), "")))
		}
		allNames(t, l, event.NamesRead{Count: 7})
		removed := map[int64]bool{}
		for _, f := range m.frames {
			for _, e := range f.events {
				// Of a stream the first events go, as a scavenge has it.
				removed[e.position] = e.number < m.last[e.stream]-int64(e.stream[1]%3) || e.stream[1] == '3'
			}
		}
		for n := range 5 {
			if random.IntN(3) > 0 {
				_, err := l.Chunks.Rewrite(background, Rewrite{First: n, Last: n, Keep: keepNot(removed)})
				check.Must(t, err)
			}
		}
		check.Must(t, l.index.Scavenge(background, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return !removed[e.Position], nil }}))
		check.Must(t, l.Names.Renew(background))
		check := func(cached bool) {
			t.Helper()
			want := map[string]bool{}
			for _, f := range m.frames {
				for _, e := range f.events {
					if !removed[e.position] {
						want[e.stream] = true
					}
				}
			}
			for _, created := range []bool{false, true} {
				got := allNames(t, l, event.NamesRead{Count: 1 + random.IntN(10), Created: created})
				seen := map[string]bool{}
				for _, s := range got {
					// The facts of a stream that is gone are known until the next start.
					if !want[s.Name] && !cached || s.Last != m.last[s.Name] || seen[s.Name] {
						t.Errorf("%+v is not expected, %v, %v, %d", s, want[s.Name], seen[s.Name], m.last[s.Name])
					}
					seen[s.Name] = true
				}
				for name := range want {
					if !seen[name] {
						t.Errorf("%s is not there", name)
					}
				}
			}
		}
		check(true)
		for range 10 {
			write(t, l, m.frame(false, ev(stream(), "")))
			check(true)
		}
		closeLog(t, l)
		l = mustOpen(t, o)
		check(false)
	})
}

// TestNamesErased: when a scavenge has removed a stream, no file of the list has its name.
func TestNamesErased(t *testing.T) {
	o := testOptions(vfs.OS)
	o.Dir = t.TempDir()
	o.EnsureDefaults()
	l := mustOpen(t, o)
	m := newModel()
	write(t, l, m.frame(true, ev("jane-doe", ""), ev("other", "")))
	allNames(t, l, event.NamesRead{Count: 7})
	_, err := l.Chunks.Rewrite(background, Rewrite{First: 0, Last: 0, Keep: func(s *Stored) bool { return chunkfile.String(s.Stream) != "jane-doe" }})
	check.Must(t, err)
	check.Must(t, l.index.Scavenge(background, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return e.Hash != chunkfile.HashStream("jane-doe"), nil }}))
	check.Must(t, l.Names.Renew(background))
	checkNames(t, l, event.NamesRead{Count: 2}, "other 0")
	files, err := o.FS.List(l.Names.dir())
	check.Must(t, err)
	for _, name := range files {
		if b := mustRead(t, o.FS, l.Names.dir()+"/"+name); strings.Contains(string(b), "jane") {
			t.Errorf("%s has the name", name)
		}
	}
}

func mustRead(t *testing.T, fsys vfs.FS, name string) []byte {
	t.Helper()
	b := check.Value(vfs.ReadFile(fsys, name)).Must(t)
	return b
}
