package names_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/names"
)

const dir = "/names"

func options(fsys vfs.FS) names.Options {
	return names.Options{FS: fsys, Dir: dir, MaxFresh: 7, BeforeFlush: func() error { return nil },
		Belongs: func(position int64, chain event.Chain) (bool, error) {
			return int64(chain[0])+int64(chain[1])<<8 == position, nil
		}}
}

func markAt(position int64) names.Mark {
	return names.Mark{Position: position, Fence: position, Chain: event.Chain{byte(position), byte(position >> 8)}}
}

func open(t *testing.T, o names.Options) *names.List {
	t.Helper()
	l := check.Value(names.Open(o)).Must(t)
	return l
}

// all reads a list page by page.
func all(read func(prefix, after string, f func([]byte) bool), prefix string, size int) (found []string) {
	for after := ""; ; {
		n := 0
		read(prefix, after, func(name []byte) bool {
			found = append(found, string(name))
			after = string(name)
			n++
			return n < size
		})
		if n < size {
			return found
		}
	}
}

// TestModel adds names at random, and stops, loses power, or continues. The list is always that of
// its mark, in both orders.
func TestModel(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	fsys := vfs.NewCrashMem()
	l := open(t, options(fsys))
	var log []string // The name at a position is that of a new stream.
	for range 150 {
		switch random.IntN(10) {
		case 0:
			check.Must(t, l.Close())
			l = open(t, options(fsys))
		case 1:
			crashed := fsys.CrashClone(vfs.CrashOptions{Rand: random})
			check.Must(t, l.Close())
			fsys = crashed
			l = open(t, options(fsys))
		case 2:
			if random.IntN(10) == 0 {
				check.Must(t, l.Clear())
			}
		}
		for range random.IntN(30) {
			log = append(log, fmt.Sprintf("%s-%d", []string{"a", "orders", "ordersx", "$$orders", "\xff"}[random.IntN(5)], len(log)))
		}
		for at := l.Mark().Position; at < int64(len(log)); at++ {
			if l.Has(log[at]) {
				t.Fatalf("%q is there twice", log[at])
			}
			check.Must(t, l.Add(log[at], at))
		}
		check.Must(t, l.Advance(markAt(int64(len(log)))))
		for _, prefix := range []string{"", "orders", "orders-", "\xff", "none"} {
			var want []string
			for _, name := range log {
				if strings.HasPrefix(name, prefix) {
					want = append(want, name)
				}
			}
			size := 1 + random.IntN(50)
			slices.Reverse(want)
			check.MustSlice(t, all(l.ByCreation, prefix, size), want, "by creation, prefix", prefix)
			slices.Sort(want)
			check.MustSlice(t, all(l.ByName, prefix, size), want, "by name, prefix", prefix)
		}
		if len(log) > 0 && !l.Has(log[random.IntN(len(log))]) || l.Has("none") {
			t.Fatal("it does not know its names")
		}
	}
	check.Must(t, l.Close())
	files := check.Value(fsys.List(dir)).Must(t)
	if len(files) > 20 {
		t.Errorf("%d names are in %d files", len(log), len(files))
	}
}

// TestUseless: a list that cannot be used is rebuilt.
func TestUseless(t *testing.T) {
	flip := func(suffix string, at int64) func(t *testing.T, fsys vfs.FS) {
		return func(t *testing.T, fsys vfs.FS) {
			files := check.Value(fsys.List(dir)).Must(t)
			for _, name := range files {
				if (name == "segments") != (suffix == "segments") {
					continue
				}
				f, err := fsys.OpenReadWrite(dir + "/" + name)
				check.Must(t, err)
				var b [1]byte
				_, err = f.ReadAt(b[:], at)
				check.Must(t, err)
				b[0] ^= 0x55
				_, err = f.WriteAt(b[:], at)
				check.Must(t, err)
				check.Must(t, f.Close())
			}
		}
	}
	for name, change := range map[string]func(t *testing.T, fsys vfs.FS){
		"damaged segment":     flip("", 20),
		"no segment":          flip("", 0),
		"damaged list":        flip("segments", 0),
		"of another log":      flip("segments", int64(len(`{"version":1,"position":20,"fence":20,"chain":"1`))),
		"of another version":  flip("segments", int64(len(`{"version":`))),
		"a segment is absent": func(t *testing.T, fsys vfs.FS) { removeSegments(t, fsys) },
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			l := open(t, options(fsys))
			for i := range int64(20) {
				check.Must(t, l.Add(fmt.Sprint("s", i), i))
			}
			check.Must(t, l.Advance(markAt(20)))
			far := markAt(20)
			far.Position += 1 << 28
			check.Must(t, l.Advance(far)) // Far enough to be written.
			check.Must(t, l.Close())
			change(t, fsys)
			l = open(t, options(fsys))
			if got := all(l.ByName, "", 10); len(got) > 0 || l.Mark() != (names.Mark{}) {
				t.Errorf("it has %q and says %v", got, l.Mark())
			}
			check.Must(t, l.Add("s1", 1))
			check.Must(t, l.Advance(markAt(2)))
			check.Slice(t, all(l.ByName, "", 10), []string{"s1"}, "it has")
			check.Must(t, l.Close())
			files := check.Value(fsys.List(dir)).Must(t)
			check.Equal(t, len(files), 1, "files were left", files)
		})
	}
}

func removeSegments(t *testing.T, fsys vfs.FS) {
	files := check.Value(fsys.List(dir)).Must(t)
	for _, name := range files {
		if name != "segments" {
			check.Must(t, fsys.Remove(dir+"/"+name))
		}
	}
}

func BenchmarkByName(b *testing.B) {
	l, err := names.Open(names.Options{FS: vfs.OS, Dir: b.TempDir(), BeforeFlush: func() error { return nil }, Belongs: func(int64, event.Chain) (bool, error) { return true, nil }})
	check.Must(b, err)
	const count = 1_000_000
	for i := range int64(count) {
		check.Must(b, l.Add(fmt.Sprintf("orders-%016x", rand.Uint64()), i))
	}
	check.Must(b, l.Advance(names.Mark{Position: count}))
	for b.Loop() {
		n := 0
		l.ByName(fmt.Sprintf("orders-%04x", rand.Uint32N(1<<16)), "", func([]byte) bool { n++; return n < 100 })
	}
	check.Must(b, l.Close())
}
