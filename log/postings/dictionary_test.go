package postings_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/postings"
)

const folder = "/index"

// chainAt is the chain of the log at a position.
func chainAt(position int64) event.Chain { return event.Chain{byte(position), byte(position >> 8)} }

func openDictionary(t *testing.T, fsys vfs.FS) *postings.Dictionary {
	t.Helper()
	o := postings.DictionaryOptions{FS: fsys, Dir: folder, MaxFresh: 5, Belongs: func(position int64, chain event.Chain) (bool, error) {
		return chain == chainAt(position), nil
	}}
	if fsys != nil {
		check.Must(t, vfs.MkdirAllSync(fsys, folder))
	}
	return check.Value(postings.OpenDictionary(o)).Must(t)
}

// posted are the postings of events by their names: the one at a position has one of each kind.
func posted(names []string, from int64) (batch []postings.Posting) {
	for i, name := range names {
		for _, kind := range []label.Kind{label.Type, label.Category, label.Tag} {
			batch = append(batch, postings.Posting{Label: label.Label{Kind: kind, Key: name + map[label.Kind]string{label.Type: "T"}[kind]}, Position: from + int64(i)})
		}
	}
	return batch
}

// listed reads all names of a kind page by page.
func listed(t *testing.T, d *postings.Dictionary, kind label.Kind, prefix string, size int) (all []postings.Name) {
	t.Helper()
	for after := ""; ; {
		page := check.Value(d.List(kind, prefix, after, size)).Must(t)
		all = append(all, page...)
		if len(page) < size {
			return all
		}
		after = page[size-1].Name
	}
}

// TestDictionaryModel adds, removes and saves at random, and stops, or loses power. What is listed
// is always what the log has.
func TestDictionaryModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	fsys := vfs.NewCrashMem()
	d := openDictionary(t, fsys)
	var log []string // the name of the event at each position; "": it was removed
	write := func() {
		from := int64(len(log))
		for range random.IntN(40) {
			log = append(log, []string{"a", "order", "orders", "é", "\xff"}[random.IntN(5)]+fmt.Sprint(random.IntN(9)))
		}
		if full := d.Add(posted(log[from:], from), int64(len(log)), chainAt(int64(len(log)))); full && random.IntN(2) == 0 {
			check.Must(t, d.Save())
		}
	}
	for range 200 {
		reopened := true
		switch random.IntN(8) {
		case 0:
			check.Must(t, d.Close())
		case 1:
			crashed := fsys.CrashClone(vfs.CrashOptions{Rand: random})
			check.Must(t, d.Close())
			fsys = crashed
		case 2:
			check.Must(t, d.BeginRemoval())
			var gone []postings.Posting
			name := "order" + fmt.Sprint(random.IntN(9))
			for at := range log {
				if log[at] == name {
					gone, log[at] = append(gone, posted(log[at:at+1], int64(at))...), ""
				}
			}
			d.Remove(gone)
			if random.IntN(2) == 0 {
				crashed := fsys.CrashClone(vfs.CrashOptions{Rand: random})
				check.Must(t, d.Close())
				fsys = crashed
				break
			}
			check.Must(t, d.EndRemoval())
			if b := check.Value(vfs.ReadFile(fsys, folder+"/names")).Must(t); strings.Contains(string(b), name+"T") {
				t.Fatalf("the file has %s", name)
			}
			fallthrough
		default:
			write()
			reopened = false
		}
		if reopened {
			d = openDictionary(t, fsys)
			// More than what is missing is added again.
			from := max(0, d.Position()-int64(random.IntN(5)))
			var batch []postings.Posting
			for at := from; at < int64(len(log)); at++ {
				if log[at] != "" {
					batch = append(batch, posted(log[at:at+1], at)...)
				}
			}
			d.Add(batch, int64(len(log)), chainAt(int64(len(log))))
		}
		for _, prefix := range []string{"", "order", "orders", "\xff", "none"} {
			for _, kind := range []label.Kind{label.Category, label.Type} {
				counts := map[string]int64{}
				for _, name := range log {
					if name != "" && strings.HasPrefix(name, prefix) {
						counts[name+map[label.Kind]string{label.Type: "T"}[kind]]++
					}
				}
				var want []postings.Name
				for name, n := range counts {
					want = append(want, postings.Name{Name: name, Events: n})
				}
				slices.SortFunc(want, func(a, b postings.Name) int { return strings.Compare(a.Name, b.Name) })
				check.MustSlice(t, listed(t, d, kind, prefix, 1+random.IntN(20)), want, kind, prefix)
			}
		}
	}
	check.Must(t, d.Close())
}

// TestUselessDictionary: what cannot be used is counted again.
func TestUselessDictionary(t *testing.T) {
	size := int64(0)
	flip := func(at int64) func(b []byte) []byte {
		return func(b []byte) []byte { b[(at+size)%size] ^= 0x55; return b }
	}
	for name, change := range map[string]func(b []byte) []byte{
		"magic": flip(0), "count": flip(8), "offset": flip(-50), "position": flip(-48), "kinds": flip(-20), "sum": flip(-1),
		"short": func(b []byte) []byte { return b[:20] }, "cut": func(b []byte) []byte { return b[:len(b)-9] }, "empty": func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			d := openDictionary(t, fsys)
			d.Add(posted([]string{"a", "b"}, 0), 2, chainAt(2))
			check.Must(t, d.Save())
			check.Must(t, d.Close())
			b := check.Value(vfs.ReadFile(fsys, folder+"/names")).Must(t)
			size = int64(len(b))
			check.Must(t, vfs.WriteFileAtomic(fsys, folder+"/names", change(b)))
			d = openDictionary(t, fsys)
			check.Equal(t, d.Position(), 0)
			check.Equal(t, len(listed(t, d, label.Type, "", 9)), 0)
			check.Must(t, d.Close())
		})
	}
	t.Run("another log", func(t *testing.T) {
		fsys := vfs.NewMem()
		d := openDictionary(t, fsys)
		d.Add(posted([]string{"a"}, 0), 1, chainAt(7))
		check.Must(t, d.Save())
		check.Must(t, d.Close())
		d = openDictionary(t, fsys)
		check.Equal(t, d.Position(), 0)
		check.Must(t, d.Close())
	})
}

// What could not be saved is still there, and is saved the next time.
func TestDictionaryNotSaved(t *testing.T) {
	broken := errors.New("disk")
	var fails bool
	mem := vfs.NewMem()
	d := openDictionary(t, vfs.NewFaulty(mem, func(op vfs.Op) error {
		if fails && op.Kind == vfs.OpRename {
			return broken
		}
		return nil
	}))
	d.Add(posted([]string{"a", "a"}, 0), 2, chainAt(2))
	check.Must(t, d.Save())
	d.Add(posted([]string{"a", "b"}, 2), 4, chainAt(4))
	fails = true
	check.Is(t, d.Save(), broken)
	want := []postings.Name{{Name: "a", Events: 3}, {Name: "b", Events: 1}}
	check.Slice(t, listed(t, d, label.Category, "", 9), want)
	fails = false
	check.Must(t, d.Save())
	check.Must(t, d.Close())
	d = openDictionary(t, mem)
	check.Equal(t, d.Position(), 4)
	check.Slice(t, listed(t, d, label.Category, "", 9), want)
	check.Must(t, d.Close())
}

func TestDictionaryInMemory(t *testing.T) {
	d := openDictionary(t, nil)
	if d.Add(posted(strings.Split("abcdefghij", ""), 0), 10, chainAt(10)) {
		t.Error("it is full")
	}
	check.Must(t, d.BeginRemoval())
	d.Remove(posted([]string{"a"}, 0))
	check.Must(t, d.EndRemoval())
	check.Must(t, d.Save())
	check.Equal(t, len(listed(t, d, label.Type, "", 4)), 9)
	check.Must(t, d.Close())
}

// BenchmarkDictionary counts events of 100 categories and types.
func BenchmarkDictionary(b *testing.B) {
	d, err := postings.OpenDictionary(postings.DictionaryOptions{})
	check.Must(b, err)
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprint("category", i)
	}
	end := int64(0)
	batch := posted(names, 0)
	b.ReportAllocs()
	for b.Loop() {
		for i := range batch {
			batch[i].Position = end
		}
		end++
		d.Add(batch, end, event.Chain{})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/event")
}
