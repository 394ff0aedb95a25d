package eventlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/index"
)

// scavengedPostings removes the postings of records that are gone, and their names.
func scavengedPostings(t *testing.T, l *Log) {
	t.Helper()
	check.Must(t, l.postings.Scavenge(t.Context(), index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return l.Chunks.Backs(e) }}))
}

// namesOf are all names that a log lists of a kind, with their counts.
func namesOf(t *testing.T, l *Log, kind label.Kind, prefix string, size int) (all []event.IndexName) {
	t.Helper()
	for after := ""; ; {
		page, next, err := l.postings.Names(t.Context(), kind, prefix, after, size)
		check.Must(t, err)
		all = append(all, page...)
		if next == "" {
			return all
		}
		check.MustEqual(t, len(page), size, "names of a page with a next one")
		after = next
	}
}

// countNames compares names, counts and kinds with all that is in the log.
func countNames(t *testing.T, l *Log, size int) {
	t.Helper()
	var reader label.Reader
	counts := [8]map[string]int64{}
	for i := range counts {
		counts[i] = map[string]int64{}
	}
	check.Must(t, l.Chunks.Scan(t.Context(), 0, l.Tail().End, func(s *Stored) error {
		for _, l := range reader.Labels(nil, string(s.Stream), string(s.Type), s.Metadata) {
			counts[l.Kind][strings.Clone(l.Key)]++
		}
		return nil
	}))
	for _, kind := range []label.Kind{label.Category, label.Type} {
		for _, prefix := range []string{"", "c1", "none"} {
			var want []event.IndexName
			for name, n := range counts[kind] {
				if strings.HasPrefix(name, prefix) {
					want = append(want, event.IndexName{Name: name, Events: n})
				}
			}
			slices.SortFunc(want, func(a, b event.IndexName) int { return cmp.Compare(a.Name, b.Name) })
			check.MustSlice(t, namesOf(t, l, kind, prefix, size), want, kind, prefix)
		}
	}
	kinds, malformed := l.postings.Kinds()
	for i, kind := range kinds {
		sum := int64(0)
		for _, n := range counts[i+1] {
			sum += n
		}
		check.MustEqual(t, kind.Postings, sum, "postings of", kind.Name)
		if i < 2 && kind.Keys < int64(len(counts[i+1])) || i >= 2 && (kind.Keys < int64(len(counts[i+1])) || kind.Keys > sum) {
			t.Fatalf("%d keys of %s, the log has %d", kind.Keys, kind.Name, len(counts[i+1]))
		}
	}
	check.MustEqual(t, malformed, counts[label.Malformed][""], "events with malformed tags")
}

// TestNamesAgainstTheLog: names and counts are those of the log after whatever happens to it and to
// the files that have them.
func TestNamesAgainstTheLog(t *testing.T) {
	for range testkit.Fewer(1, 8) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 1))
		mem := vfs.NewCrashMem()
		o := testOptions(mem)
		l, other, m := mustOpen(t, o), emptyLog(t), newModel()
		step := func(completes bool) {
			var events []testEvent
			for range 1 + random.IntN(6) {
				e := testEvent{stream: fmt.Sprintf("c%d-%d", random.IntN(30), random.IntN(3)), typ: fmt.Sprintf("T%d", random.IntN(20))}
				e.metadata = []string{``, `{"$tags":["a","b"]}`, `{"$tags":7}`, `{"$correlationId":"x"}`}[random.IntN(4)]
				events = append(events, e)
			}
			f := m.frame(completes, events...)
			write(t, l, f)
			write(t, other, f)
		}
		reopen := func(fsys *vfs.Mem) {
			mem, o.FS = fsys, fsys
			check.Must(t, l.Close())
			l = mustOpen(t, o)
			allPosted(t, l)
		}
		crash := func() {
			check.Must(t, l.Sync())
			reopen(mem.CrashClone(vfs.CrashOptions{Rand: random}))
		}
		dir := filepath.Join(l.opts.IndexDir, postingsFolder, "names")
		for range 25 {
			for range random.IntN(8) {
				step(random.IntN(6) == 0)
			}
			switch random.IntN(8) {
			case 0:
				crash()
			case 1:
				check.Must(t, l.postings.Flush(-1))
			case 2:
				check.Must(t, l.postings.Rebuild())
			case 3: // they are lost, or damaged
				check.Must(t, l.postings.Flush(-1))
				check.Must(t, l.Sync())
				damaged := mem.CrashClone(vfs.CrashOptions{})
				for _, name := range check.Value(damaged.List(dir)).Must(t) {
					if path := filepath.Join(dir, name); random.IntN(2) == 0 {
						check.Must(t, damaged.Remove(path))
					} else if random.IntN(2) == 0 {
						check.Must(t, vfs.WriteFileAtomic(damaged, path, []byte("rot")))
					}
				}
				reopen(damaged)
			default:
				step(true)
				chunks := check.Value(l.Chunks.List()).Must(t)
				at := random.IntN(len(chunks))
				if random.IntN(2) == 0 {
					at = len(chunks) - 1
				}
				c := chunks[at]
				if !c.Complete {
					break
				}
				gone := []string{fmt.Sprintf("c%d-", random.IntN(30)), "c1"}[random.IntN(2)]
				_, err := l.Chunks.Rewrite(t.Context(), Rewrite{First: c.First, Last: c.Last, Keep: func(s *Stored) bool { return !strings.HasPrefix(string(s.Stream), gone) }})
				check.Must(t, err)
				if random.IntN(3) == 0 {
					crash()
				}
				if random.IntN(3) > 0 {
					scavengedPostings(t, l)
				}
				switch c = check.Value(l.Chunks.List()).Must(t)[at]; random.IntN(3) {
				case 0: // what was removed comes back
					d := Damage{File: c.File, First: c.First, Last: c.Last}
					check.Must(t, l.Transfer.Heal(d, []string{chunkFrom(t, other, l, c.First)}, func(f func() error) error { return f() }))
				case 1:
					if at == len(chunks)-1 {
						check.Must(t, l.Transfer.InstallChunk(chunkFrom(t, other, l, c.First)))
					}
				}
			}
			allPosted(t, l)
			scavengedPostings(t, l)
			allPosted(t, l)
			countNames(t, l, 1+random.IntN(12))
		}
		check.Must(t, errors.Join(l.Close(), other.Close()))
	}
}

// TestErasedNames: after a scavenge no file has the name of a category that is gone.
func TestErasedNames(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(mem)
	l, m := mustOpen(t, o), newModel()
	write(t, l, m.frame(true, testEvent{stream: "jane", typ: "t"}, testEvent{stream: "stays", typ: "t"}), m.frame(false, ev("late", "")))
	inFiles := func(name string) (found bool) {
		dir := filepath.Join(l.opts.IndexDir, postingsFolder, "names")
		for _, file := range check.Value(mem.List(dir)).Must(t) {
			found = found || strings.Contains(string(check.Value(vfs.ReadFile(mem, filepath.Join(dir, file))).Must(t)), name)
		}
		return found
	}
	check.Must(t, l.postings.Flush(-1))
	check.Equal(t, inFiles("jane"), true, "the name is in a file")
	_, err := l.Chunks.Rewrite(t.Context(), Rewrite{Keep: func(s *Stored) bool { return string(s.Stream) != "jane" }})
	check.Must(t, err)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	check.Is(t, l.postings.Scavenge(stopped, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return l.Chunks.Backs(e) }}), context.Canceled)
	scavengedPostings(t, l)
	check.Equal(t, inFiles("jane"), false, "the name is in a file")
	check.Slice(t, namesOf(t, l, label.Category, "", 5), []event.IndexName{{Name: "late", Events: 1}, {Name: "stays", Events: 1}})
	// What comes again is listed again.
	write(t, l, m.frame(false, ev("jane", "")))
	check.Slice(t, namesOf(t, l, label.Category, "j", 5), []event.IndexName{{Name: "jane", Events: 1}})
	check.Must(t, l.postings.Clear())
	allPosted(t, l)
	_, _, err = l.postings.Names(stopped, label.Category, "", "", 5)
	check.Is(t, err, context.Canceled)
	closeLog(t, l)
}

// TestNamesDuringScavenge: names whose events come while those without any are dropped are listed.
func TestNamesDuringScavenge(t *testing.T) {
	const categories = 3000
	l, m := mustOpen(t, testOptions(vfs.NewMem())), newModel()
	some := func(completes bool, from, to int) testFrame {
		var events []testEvent
		for i := from; i < to; i++ {
			events = append(events, ev(fmt.Sprintf("c%d-1", i), ""))
		}
		return m.frame(completes, events...)
	}
	write(t, l, some(true, 0, categories), some(false, 0, 1))
	check.Equal(t, len(namesOf(t, l, label.Category, "", 1000)), categories)
	_, err := l.Chunks.Rewrite(t.Context(), Rewrite{Keep: func(*Stored) bool { return false }})
	check.Must(t, err)
	swept := make(chan error, 1)
	go func() {
		swept <- l.postings.Scavenge(t.Context(), index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) { return l.Chunks.Backs(e) }})
	}()
	isDone := false
	for i := 1; !isDone && i < categories; i++ {
		write(t, l, some(false, i, i+1))
		if i%100 == 0 {
			_, _, err := l.postings.Names(t.Context(), label.Category, "", "", 1)
			check.NoError(t, err)
		}
		select {
		case err := <-swept:
			check.Must(t, err)
			isDone = true
		default:
		}
	}
	if !isDone {
		check.Must(t, <-swept)
	}
	allPosted(t, l)
	countNames(t, l, 1000)
	check.Must(t, l.postings.Close())
	check.Is(t, l.postings.Scavenge(t.Context(), index.ScavengeOptions{}), event.ErrClosed)
}

// TestNamesOfLargeWrites: one write may bring more names than wait for the list at other times.
func TestNamesOfLargeWrites(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(mem)
	l, m := mustOpen(t, o), newModel()
	many := func(begin string, distinct int) (events []testEvent) {
		for i := range 20_000 {
			events = append(events, testEvent{stream: "a-1", typ: fmt.Sprint(begin, i%distinct)})
		}
		return events
	}
	write(t, l, m.frame(false, ev("a-1", "")), m.frame(false, many("few", 10)...), m.frame(false, many("all", 20_000)...), m.frame(false, ev("b-1", "")))
	for range 2 {
		allPosted(t, l)
		check.Slice(t, namesOf(t, l, label.Category, "", 5), []event.IndexName{{Name: "a", Events: 40_001}, {Name: "b", Events: 1}})
		check.Equal(t, len(namesOf(t, l, label.Type, "few", 500)), 10)
		check.Equal(t, len(namesOf(t, l, label.Type, "all", 500)), 20_000)
		check.Must(t, l.postings.Rebuild())
	}
	closeLog(t, l)
}

// TestStartWithoutNames: a list of names that is damaged, or of another log, keeps no node from
// starting. A disk without room lets it be cleared; where it cannot be, names alone are missing.
func TestStartWithoutNames(t *testing.T) {
	for what, spoil := range map[string]func(t *testing.T, fsys *vfs.Mem, dir string){
		"segment": func(t *testing.T, fsys *vfs.Mem, dir string) {
			for _, name := range check.Value(fsys.List(dir)).Must(t) {
				if name != "segments" {
					check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(dir, name), []byte("rot")))
				}
			}
		},
		"map": func(t *testing.T, fsys *vfs.Mem, dir string) {
			check.Must(t, vfs.WriteFileAtomic(fsys, filepath.Join(dir, "segments"), []byte("rot")))
		},
		"other log": func(t *testing.T, fsys *vfs.Mem, dir string) {
			path := filepath.Join(dir, "segments")
			text := string(check.Value(vfs.ReadFile(fsys, path)).Must(t))
			at := strings.Index(text, `"chain":"`) + len(`"chain":"`)
			check.Must(t, vfs.WriteFileAtomic(fsys, path, []byte(text[:at]+"00000000"+text[at+8:])))
		},
	} {
		t.Run(what, func(t *testing.T) {
			mem := vfs.NewMem()
			o := testOptions(mem)
			l, m := mustOpen(t, o), newModel()
			write(t, l, m.frame(true, ev("jane", "")), m.frame(false, ev("a-1", ""), ev("b-1", "")))
			check.Must(t, l.postings.Flush(-1))
			check.Must(t, l.Sync())
			closeLog(t, l)
			want := []event.IndexName{{Name: "a", Events: 1}, {Name: "b", Events: 1}, {Name: "jane", Events: 1}}
			spoil(t, mem, filepath.Join(l.opts.IndexDir, postingsFolder, "names"))

			// The folder of the list takes no change at all.
			var told bytes.Buffer
			o.Logger = hclog.New(&hclog.LoggerOptions{Output: &told})
			o.FS = vfs.NewFaulty(mem, func(op vfs.Op) error {
				if strings.Contains(op.Name, "/names") && op.Kind.Mutates() {
					return syscall.ENOSPC
				}
				return nil
			})
			l = mustOpen(t, o)
			write(t, l, m.frame(false, ev("c-1", "")))
			for range 2 {
				_, _, err := l.postings.Names(t.Context(), label.Category, "", "", 5)
				check.Is(t, err, event.ErrNoNames)
			}
			kinds, _ := l.postings.Kinds()
			check.Deep(t, kinds[0], event.IndexKind{Name: "category", Keys: 4, Postings: 4})
			check.Must(t, l.postings.Flush(-1))
			check.Is(t, l.postings.Scavenge(t.Context(), index.ScavengeOptions{Keep: func(index.Entry) (bool, error) { return true, nil }}), syscall.ENOSPC)
			check.Equal(t, strings.Count(told.String(), "cannot be listed until the next start"), 1, told.String())
			closeLog(t, l)

			// No byte is left on the disk.
			o.FS, o.Logger = mem, nil
			mem.SetCapacity(1)
			l = mustOpen(t, o)
			_, _, err := l.postings.Names(t.Context(), label.Category, "", "", 5)
			_, isBuilding := errors.AsType[*event.IndexBuilding](err)
			check.Equal(t, isBuilding, true, err)
			mem.SetCapacity(0)
			want = append(want[:2:2], event.IndexName{Name: "c", Events: 1}, want[2])
			check.Slice(t, namesOf(t, l, label.Category, "", 5), want)
			check.Must(t, l.postings.Flush(-1))
			closeLog(t, l)
			l = mustOpen(t, o)
			check.Slice(t, namesOf(t, l, label.Category, "", 5), want)
			closeLog(t, l)
		})
	}
}

// Of two names that have the same hash both are listed.
func TestNamesOfTheSameHash(t *testing.T) {
	l, m := emptyLog(t), newModel()
	for _, name := range []string{sameA, sameB} {
		write(t, l, m.frame(false, testEvent{stream: "s", typ: name, metadata: "{}"}))
	}
	page, _, err := l.postings.Names(t.Context(), label.Type, "", "", 10)
	check.Must(t, err)
	check.Equal(t, len(page), 2, "names")
	closeLog(t, l)
}
