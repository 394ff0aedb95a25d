package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// content lists all files at the root of a file system as name=data, folders as name/.
func content(t *testing.T, fsys vfs.FS) string {
	t.Helper()
	names, err := fsys.List("/")
	ok(t, err)
	var all []string
	for _, name := range names {
		info, err := fsys.Stat(name)
		ok(t, err)
		if info.IsDir() {
			inside, err := fsys.List(name)
			ok(t, err)
			all = append(all, name+"/"+strings.Join(inside, ","))
			continue
		}
		data, err := vfs.ReadFile(fsys, name)
		ok(t, err)
		all = append(all, name+"="+string(data))
	}
	return strings.Join(all, " ")
}

func putSync(t *testing.T, fsys vfs.FS, name, data string) {
	t.Helper()
	put(t, fsys, name, data)
	f, err := fsys.Open(name)
	ok(t, err)
	ok(t, f.Sync())
	ok(t, f.Close())
}

func edit(t *testing.T, fsys vfs.FS, name string, do func(f vfs.File)) {
	t.Helper()
	f, err := fsys.OpenReadWrite(name)
	ok(t, err)
	do(f)
	ok(t, f.Close())
}

// TestCrashOutcomes names all that a power cut may leave, the first outcome
// being the one without anything unsynced, and expects to see each of them.
func TestCrashOutcomes(t *testing.T) {
	// Every case begins with the durable files a=A and b=B and the durable empty folders d and e.
	cases := []struct {
		name string
		do   func(t *testing.T, m *vfs.Mem)
		want []string
	}{
		{"nothing happened", func(*testing.T, *vfs.Mem) {}, []string{"a=A b=B d/ e/"}},
		{"synced file without a name", func(t *testing.T, m *vfs.Mem) {
			putSync(t, m, "c", "C")
		}, []string{"a=A b=B d/ e/", "a=A b=B c=C d/ e/"}},
		{"name without its content", func(t *testing.T, m *vfs.Mem) {
			put(t, m, "c", "C")
			ok(t, m.SyncDir("/"))
		}, []string{"a=A b=B c= d/ e/", "a=A b=B c=\x00 d/ e/", "a=A b=B c=C d/ e/"}},
		{"both synced", func(t *testing.T, m *vfs.Mem) {
			putSync(t, m, "c", "C")
			ok(t, m.SyncDir("/"))
		}, []string{"a=A b=B c=C d/ e/"}},
		{"overwritten", func(t *testing.T, m *vfs.Mem) {
			edit(t, m, "a", func(f vfs.File) { write(t, f, "X", 0) })
		}, []string{"a=A b=B d/ e/", "a=X b=B d/ e/"}},
		{"two writes to one sector keep their order", func(t *testing.T, m *vfs.Mem) {
			edit(t, m, "a", func(f vfs.File) { write(t, f, "X", 0); write(t, f, "Y", 0) })
		}, []string{"a=A b=B d/ e/", "a=X b=B d/ e/", "a=Y b=B d/ e/"}},
		{"truncated", func(t *testing.T, m *vfs.Mem) {
			edit(t, m, "a", func(f vfs.File) { ok(t, f.Truncate(0)) })
		}, []string{"a=A b=B d/ e/", "a= b=B d/ e/"}},
		{"grown", func(t *testing.T, m *vfs.Mem) {
			edit(t, m, "a", func(f vfs.File) { ok(t, f.Truncate(2)) })
		}, []string{"a=A b=B d/ e/", "a=A\x00 b=B d/ e/"}},
		{"created again", func(t *testing.T, m *vfs.Mem) {
			put(t, m, "a", "X")
		}, []string{"a=A b=B d/ e/", "a= b=B d/ e/", "a=\x00 b=B d/ e/", "a=X b=B d/ e/"}},
		{"synced by another handle", func(t *testing.T, m *vfs.Mem) {
			edit(t, m, "a", func(f vfs.File) {
				write(t, f, "X", 0)
				edit(t, m, "a", func(g vfs.File) { ok(t, g.Sync()) })
			})
		}, []string{"a=X b=B d/ e/"}},
		{"removed", func(t *testing.T, m *vfs.Mem) {
			ok(t, m.Remove("a"))
		}, []string{"a=A b=B d/ e/", "b=B d/ e/"}},
		{"removed for good", func(t *testing.T, m *vfs.Mem) {
			ok(t, m.Remove("a"))
			ok(t, m.SyncDir("/"))
		}, []string{"b=B d/ e/"}},
		{"renamed over another", func(t *testing.T, m *vfs.Mem) {
			ok(t, m.Rename("a", "b"))
		}, []string{"a=A b=B d/ e/", "b=A d/ e/"}},
		{"rotation never loses the old file", func(t *testing.T, m *vfs.Mem) {
			ok(t, m.Rename("a", "old"))
			putSync(t, m, "a", "X")
		}, []string{"a=A b=B d/ e/", "b=B d/ e/ old=A", "a=X b=B d/ e/ old=A"}},
		{"rename of an unsynced file", func(t *testing.T, m *vfs.Mem) {
			put(t, m, "c", "C")
			ok(t, m.Rename("c", "a"))
			ok(t, m.SyncDir("/"))
		}, []string{"a= b=B d/ e/", "a=\x00 b=B d/ e/", "a=C b=B d/ e/"}},
		{"between folders, target synced", func(t *testing.T, m *vfs.Mem) {
			ok(t, m.Rename("a", "d/a"))
			ok(t, m.SyncDir("d"))
		}, []string{"a=A b=B d/ e/", "b=B d/a e/"}},
		{"between folders, both synced", func(t *testing.T, m *vfs.Mem) {
			ok(t, m.Rename("a", "d/a"))
			ok(t, m.SyncDir("d"))
			ok(t, m.SyncDir("/"))
		}, []string{"b=B d/a e/"}},
		{"durable operation built on a rename", func(t *testing.T, m *vfs.Mem) {
			ok(t, m.Rename("a", "d/a"))
			ok(t, m.Rename("d/a", "d/z"))
			ok(t, m.SyncDir("d"))
		}, []string{"b=B d/z e/"}},
		{"file in a folder without a name", func(t *testing.T, m *vfs.Mem) {
			ok(t, m.MkdirAll("n"))
			putSync(t, m, "n/f", "F")
			ok(t, m.SyncDir("n"))
		}, []string{"a=A b=B d/ e/", "a=A b=B d/ e/ n/f"}},
		{"folder emptied and removed", func(t *testing.T, m *vfs.Mem) {
			putSync(t, m, "d/x", "X")
			ok(t, m.SyncDir("d"))
			ok(t, m.Rename("d/x", "e/x"))
			ok(t, m.Remove("d"))
		}, []string{"a=A b=B d/x e/", "a=A b=B d/ e/x", "a=A b=B e/x"}},
		{"independent names", func(t *testing.T, m *vfs.Mem) {
			ok(t, m.Remove("a"))
			ok(t, m.Remove("b"))
		}, []string{"a=A b=B d/ e/", "a=A d/ e/", "b=B d/ e/", "d/ e/"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := vfs.NewCrashMem()
			putSync(t, m, "a", "A")
			putSync(t, m, "b", "B")
			ok(t, m.MkdirAll("d"))
			ok(t, m.MkdirAll("e"))
			ok(t, m.SyncDir("/"))
			c.do(t, m)
			before := content(t, m)
			if got := content(t, m.CrashClone(vfs.CrashOptions{})); got != c.want[0] {
				t.Errorf("without the unsynced: %q, want %q", got, c.want[0])
			}
			missing := make(map[string]bool)
			for _, w := range c.want {
				missing[w] = true
			}
			for seed := range uint64(300) {
				clone := m.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, 0))})
				got := content(t, clone)
				if _, allowed := missing[got]; !allowed {
					t.Fatalf("seed %d: %q, want one of %q", seed, got, c.want)
				}
				missing[got] = false
				if again := content(t, clone.CrashClone(vfs.CrashOptions{})); again != got {
					t.Fatalf("seed %d: what survived was not durable: %q, then %q", seed, got, again)
				}
			}
			for w, never := range missing {
				if never {
					t.Errorf("never seen: %q", w)
				}
			}
			check.Equal(t, content(t, m), before, "the original changed ..., then")
		})
	}
}

func TestCrashTearsAtSectors(t *testing.T) {
	m := vfs.NewCrashMem()
	putSync(t, m, "f", strings.Repeat("o", 4_000))
	ok(t, m.SyncDir("/"))
	edit(t, m, "f", func(f vfs.File) { write(t, f, strings.Repeat("n", 3_000), 700) })
	torn := 0
	for seed := range uint64(200) {
		got, err := vfs.ReadFile(m.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, 1))}), "f")
		ok(t, err)
		check.MustEqual(t, len(got), 4_000, "seed", seed, "bytes")
		kinds := make(map[byte]bool)
		for from := 700; from < 3_700; {
			to := min((from/512+1)*512, 3_700)
			if piece := got[from:to]; !bytes.Equal(piece, bytes.Repeat(piece[:1], len(piece))) {
				t.Fatalf("seed %d: torn within the sector at %d", seed, from)
			}
			kinds[got[from]] = true
			from = to
		}
		if len(kinds) == 2 {
			torn++
		}
		if bytes.Contains(got[:700], []byte("n")) || bytes.Contains(got[3_700:], []byte("n")) {
			t.Fatalf("seed %d: bytes changed that were not written", seed)
		}
	}
	if torn < 20 {
		t.Errorf("torn in %d of 200 power cuts", torn)
	}
}

func TestCrashCloneIsRepeatable(t *testing.T) {
	m := vfs.NewCrashMem()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		put(t, m, name, strings.Repeat(name, 5_000))
	}
	for seed := range uint64(20) {
		one := content(t, m.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, 2))}))
		two := content(t, m.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, 2))}))
		check.MustEqual(t, one, two, "seed", seed, "gave two outcomes")
	}
}

// TestCrashCloneIsOneMoment clones while files are written one after the other: no clone
// knows the later one to be ahead of the earlier one.
func TestCrashCloneIsOneMoment(t *testing.T) {
	m := vfs.NewCrashMem()
	for i := range 100 { // What is copied between the two.
		put(t, m, fmt.Sprint("between", i), strings.Repeat("x", 20_000))
	}
	putSync(t, m, "a", "\x00")
	putSync(t, m, "z", "\x00")
	ok(t, m.SyncDir("/"))
	a, err := m.OpenReadWrite("a")
	ok(t, err)
	z, err := m.OpenReadWrite("z")
	ok(t, err)
	begun, stop, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		close(begun)
		for n := byte(1); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			for _, f := range []vfs.File{a, z} {
				check.NoError(t, check.Err(f.WriteAt([]byte{n}, 0)))
				check.NoError(t, f.Sync())
			}
		}
	}()
	<-begun
	for i := range 20 {
		clone := m.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(uint64(i), 1))})
		first, err := vfs.ReadFile(clone, "a")
		ok(t, err)
		second, err := vfs.ReadFile(clone, "z")
		ok(t, err)
		if ahead := first[0] - second[0]; ahead > 1 {
			t.Errorf("clone %d: a holds %d, z, which is written after it, %d", i, first[0], second[0])
		}
	}
	close(stop)
	<-done
	ok(t, a.Close())
	ok(t, z.Close())
}

func TestCrashCloneStandsAlone(t *testing.T) {
	m := vfs.NewCrashMem()
	m.SetCapacity(10_000)
	putSync(t, m, "f", "durable")
	ok(t, m.SyncDir("/"))
	lock, err := m.Lock("lock")
	ok(t, err)
	clone := m.CrashClone(vfs.CrashOptions{})
	edit(t, clone, "f", func(f vfs.File) { write(t, f, "CLONE", 0) })
	edit(t, m, "f", func(f vfs.File) { write(t, f, "original", 0); ok(t, f.Truncate(4)) })
	wantContent(t, clone, "f", "CLONEle")
	wantContent(t, m, "f", "orig")
	wantContent(t, m.CrashClone(vfs.CrashOptions{}), "f", "durable")
	other, err := clone.Lock("lock")
	ok(t, err)
	ok(t, other.Close())
	ok(t, lock.Close())
	if free, err := clone.Free("/"); err != nil || free != 10_000-7 {
		t.Errorf("the clone has %d bytes free, %v", free, err)
	}
}

func TestCrashCloneOfPlainMemPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	vfs.NewMem().CrashClone(vfs.CrashOptions{})
}

// TestForget: a page that was there when a sync failed is seen, and no later sync makes it durable
// before it changes again.
func TestForget(t *testing.T) {
	m := vfs.NewCrashMem()
	f := check.Value(m.Create("/a")).Must(t)
	write(t, f, "durable", 0)
	check.Must(t, f.Sync())
	write(t, f, "FORGOTTEN", 0)
	write(t, f, "behind", 100_000)
	check.Must(t, m.SyncDir("/"))
	check.Must(t, m.Forget("/a"))
	after := func(want string, size int64, what string) {
		t.Helper()
		check.Must(t, f.Sync())
		for _, files := range []*vfs.Mem{m, m.Fork()} {
			check.Equal(t, string(check.Value(vfs.ReadFile(files, "/a")).Must(t)[:9]), "FORGOTTEN", "seen")
			got := check.Value(vfs.ReadFile(files.CrashClone(vfs.CrashOptions{}), "/a")).Must(t)
			if int64(len(got)) != size || string(got[:len(want)]) != want {
				t.Errorf("%s: %q of %d bytes is durable, want %q of %d", what, got[:min(len(got), len(want))], len(got), want, size)
			}
		}
	}
	after("durable", 7, "nothing changed")
	write(t, f, "x", 5000)
	after("durable", 100_006, "another page changed")
	write(t, f, "!", 4000)
	after("FORGOTTEN", 100_006, "the page changed")
	check.Must(t, f.Close())
}

// TestFork: the end of a process alone loses nothing, and makes nothing durable. Later writes are
// not in the fork.
func TestFork(t *testing.T) {
	m := vfs.NewCrashMem()
	check.Must(t, vfs.MkdirAllSync(m, "/d"))
	f := check.Value(m.Create("/d/a")).Must(t)
	check.Must(t, check.Err(f.WriteAt([]byte("synced"), 0)))
	check.Must(t, f.Sync())
	check.Must(t, check.Err(f.WriteAt([]byte("not yet"), 0)))
	gone := check.Value(m.Create("/d/gone")).Must(t)
	check.Must(t, check.Err(gone.WriteAt(make([]byte, 1000), 0)))
	check.Must(t, m.SyncDir("/d"))
	check.Must(t, m.Remove("/d/gone")) // It is open.
	m.SetCapacity(1000 + 100)
	fork := m.Fork()
	check.Must(t, check.Err(f.WriteAt([]byte("later"), 0)))
	check.Equal(t, string(check.Value(vfs.ReadFile(fork, "/d/a")).Must(t)), "not yet")
	check.Equal(t, check.Value(fork.Free("/")).Must(t), 1000+100-7, "free bytes")
	check.MustBe(t, check.Err(fork.Stat("/d/gone")), fs.ErrNotExist, "removed")
	cut := fork.CrashClone(vfs.CrashOptions{})
	check.Equal(t, string(check.Value(vfs.ReadFile(cut, "/d/a")).Must(t)), "synced")
	check.Must(t, check.Err(cut.Stat("/d/gone")), "removed, and that is not durable")
	check.Must(t, fork.SyncDir("/d"))
	lock := check.Value(fork.OpenReadWrite("/d/a")).Must(t)
	check.Must(t, errors.Join(lock.Sync(), lock.Close()))
	cut = fork.CrashClone(vfs.CrashOptions{})
	check.Equal(t, string(check.Value(vfs.ReadFile(cut, "/d/a")).Must(t)), "not yet")
	check.MustBe(t, check.Err(cut.Stat("/d/gone")), fs.ErrNotExist, "removed for good")
}

// TestFolderThatAnotherProcessMade: what is synced in a folder is there after a power cut, also if
// the process that made the folder was killed before it could sync the name.
func TestFolderThatAnotherProcessMade(t *testing.T) {
	m := vfs.NewCrashMem()
	check.Must(t, vfs.MkdirAllSync(m, "/a"))
	check.Must(t, m.MkdirAll("/a/b"))
	m = m.Fork()
	check.Must(t, vfs.MkdirAllSync(m, "/a/b"))
	check.Must(t, vfs.WriteFileAtomic(m, "/a/b/c", []byte("kept")))
	cut := m.CrashClone(vfs.CrashOptions{})
	check.Equal(t, string(check.Value(vfs.ReadFile(cut, "/a/b/c")).Must(t)), "kept")
}
