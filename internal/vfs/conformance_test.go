package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/internal/vfs"
)

// systems are all file systems, each with a folder to work in.
func systems(t *testing.T) map[string]func(t *testing.T) (vfs.FS, string) {
	t.Helper()
	within := func(fsys vfs.FS) (vfs.FS, string) {
		check.Must(t, vfs.MkdirAllSync(fsys, "/data/node"))
		return fsys, "/data/node"
	}
	return map[string]func(t *testing.T) (vfs.FS, string){
		"os":       func(t *testing.T) (vfs.FS, string) { return vfs.OS, t.TempDir() },
		"mem":      func(*testing.T) (vfs.FS, string) { return within(vfs.NewMem()) },
		"crashmem": func(*testing.T) (vfs.FS, string) { return within(vfs.NewCrashMem()) },
		"mapped": func(*testing.T) (vfs.FS, string) {
			m := vfs.NewCrashMem()
			m.SetMappable()
			return within(m)
		},
		"faulty": func(*testing.T) (vfs.FS, string) {
			return within(vfs.NewFaulty(vfs.NewMem(), func(vfs.Op) error { return nil }))
		},
		"watched": func(t *testing.T) (vfs.FS, string) { return vfs.NewWatched(vfs.OS, new(hang.Watch)), t.TempDir() },
		"patient": func(t *testing.T) (vfs.FS, string) {
			return vfs.NewPatient(vfs.OS, vfs.Patience{Context: t.Context()}), t.TempDir()
		},
		"counting": func(t *testing.T) (vfs.FS, string) {
			c := vfs.NewCounting(vfs.OS)
			t.Cleanup(func() {
				if open := c.OpenFiles(); len(open) > 0 {
					t.Errorf("left open: %q", open)
				}
			})
			return c, t.TempDir()
		},
	}
}

func TestConformance(t *testing.T) {
	cases := map[string]func(t *testing.T, fsys vfs.FS, dir string){
		"read and write":    testReadWrite,
		"holes and ends":    testHoles,
		"truncate":          testTruncate,
		"create truncates":  testCreateTruncates,
		"missing":           testMissing,
		"names":             testNames,
		"rename":            testRename,
		"rename of folders": testRenameFolder,
		"remove":            testRemove,
		"removed but open":  testRemovedButOpen,
		"lock":              testLock,
		"closed":            testClosed,
		"read only":         testReadOnly,
		"map":               testMap,
		"stat":              testStat,
		"private":           testPrivate,
		"concurrent ranges": testConcurrent,
	}
	for system, open := range systems(t) {
		for name, test := range cases {
			t.Run(system+"/"+name, func(t *testing.T) {
				fsys, dir := open(t)
				test(t, fsys, dir)
			})
		}
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	check.Must(t, err)
}

func wantIs(t *testing.T, err, target error) {
	t.Helper()
	check.MustBe(t, err, target, "got error ..., want one that is")
}

// put writes a whole file without making anything durable.
func put(t *testing.T, fsys vfs.FS, name, data string) {
	t.Helper()
	f, err := fsys.Create(name)
	ok(t, err)
	write(t, f, data, 0)
	ok(t, f.Close())
}

func write(t *testing.T, f vfs.File, data string, off int64) {
	t.Helper()
	n, err := f.WriteAt([]byte(data), off)
	ok(t, err)
	check.MustEqual(t, n, len(data), "wrote ... bytes")
}

func wantContent(t *testing.T, fsys vfs.FS, name, want string) {
	t.Helper()
	got, err := vfs.ReadFile(fsys, name)
	ok(t, err)
	if string(got) != want {
		t.Fatalf("%s holds %q, want %q", name, clip(got), clip([]byte(want)))
	}
}

func clip(p []byte) []byte { return p[:min(len(p), 80)] }

func wantList(t *testing.T, fsys vfs.FS, dir string, want ...string) {
	t.Helper()
	got, err := fsys.List(dir)
	ok(t, err)
	check.MustSlice(t, got, want, dir, "lists")
}

func testReadWrite(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "f")
	f, err := fsys.Create(name)
	ok(t, err)
	check.Equal(t, f.Name(), name, "name")
	want := bytes.Repeat([]byte("0123456789abcdef-"), 20_000) // several blocks, no multiple of them
	for off := 0; off < len(want); off += 7_777 {
		_, err := f.WriteAt(want[off:min(len(want), off+7_777)], int64(off))
		ok(t, err)
	}
	copy(want[65_530:], "over the border")
	write(t, f, "over the border", 65_530)
	ok(t, f.Sync())
	ok(t, f.Close())
	wantContent(t, fsys, name, string(want))

	f, err = fsys.OpenReadWrite(name)
	ok(t, err)
	write(t, f, "again", 3)
	part := make([]byte, 10)
	_, err = f.ReadAt(part, 0)
	ok(t, err)
	check.Equal(t, string(part), "012again89", "read")
	ok(t, f.Close())
}

func testHoles(t *testing.T, fsys vfs.FS, dir string) {
	f, err := fsys.Create(filepath.Join(dir, "f"))
	ok(t, err)
	defer func() { ok(t, f.Close()) }()
	write(t, f, "end", 200_000)
	got := bytes.Repeat([]byte{1}, 300_000)
	n, err := f.ReadAt(got, 0)
	if n != 200_003 || err != io.EOF {
		t.Fatalf("read %d, %v", n, err)
	}
	want := append(make([]byte, 200_000), "end"...)
	check.Slice(t, got[:n], want, "a hole does not read as zeros")
	if n, err := f.ReadAt(got, 200_003); n != 0 || err != io.EOF {
		t.Errorf("at the end: read %d, %v", n, err)
	}
	if n, err := f.ReadAt(nil, 200_003); n != 0 || err != nil {
		t.Errorf("nothing at the end: read %d, %v", n, err)
	}
	if n, err := f.ReadAt(got[:3], 200_000); n != 3 || err != nil && err != io.EOF {
		t.Errorf("up to the end: read %d, %v", n, err)
	}
	if _, err := f.ReadAt(got, -1); err == nil || err == io.EOF {
		t.Errorf("before the start: %v", err)
	}
	check.Fails(t, check.Err(f.WriteAt(got, -1)), "a write before the start was taken")
}

func testTruncate(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "f")
	put(t, fsys, name, string(bytes.Repeat([]byte{'x'}, 150_000)))
	f, err := fsys.OpenReadWrite(name)
	ok(t, err)
	ok(t, f.Truncate(70_000))
	ok(t, f.Truncate(70_010))
	write(t, f, "y", 70_020)
	want := append(bytes.Repeat([]byte{'x'}, 70_000), make([]byte, 21)...)
	want[70_020] = 'y'
	wantContent(t, fsys, name, string(want))
	ok(t, f.Truncate(0))
	ok(t, f.Truncate(3))
	wantContent(t, fsys, name, "\x00\x00\x00")
	check.Fails(t, f.Truncate(-1), "a negative size was taken")
	size, err := f.Size()
	ok(t, err)
	check.Equal(t, size, 3, "size ...")
	ok(t, f.Close())
}

func testCreateTruncates(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "f")
	put(t, fsys, name, "long content")
	put(t, fsys, name, "short")
	wantContent(t, fsys, name, "short")
	ok(t, fsys.MkdirAll(filepath.Join(dir, "d")))
	if _, err := fsys.Create(filepath.Join(dir, "d")); err == nil {
		t.Error("a folder was created as a file")
	}
}

func testMissing(t *testing.T, fsys vfs.FS, dir string) {
	name, inside := filepath.Join(dir, "none"), filepath.Join(dir, "none", "f")
	calls := map[string]func() error{
		"open":          func() error { _, err := fsys.Open(name); return err },
		"openreadwrite": func() error { _, err := fsys.OpenReadWrite(name); return err },
		"create":        func() error { _, err := fsys.Create(inside); return err },
		"lock":          func() error { _, err := fsys.Lock(inside); return err },
		"remove":        func() error { return fsys.Remove(name) },
		"rename":        func() error { return fsys.Rename(name, name+"2") },
		"list":          func() error { _, err := fsys.List(name); return err },
		"stat":          func() error { _, err := fsys.Stat(name); return err },
		"syncdir":       func() error { return fsys.SyncDir(name) },
	}
	for what, call := range calls {
		check.Is(t, call(), fs.ErrNotExist, what)
	}
	ok(t, fsys.RemoveAll(name))
	ok(t, fsys.RemoveAll(inside))
}

func testNames(t *testing.T, fsys vfs.FS, dir string) {
	wantList(t, fsys, dir)
	ok(t, fsys.MkdirAll(filepath.Join(dir, "d", "e")))
	ok(t, fsys.MkdirAll(filepath.Join(dir, "d", "e")))
	put(t, fsys, filepath.Join(dir, "b"), "")
	put(t, fsys, filepath.Join(dir, "a"), "")
	put(t, fsys, filepath.Join(dir, "d", "e", "..", "c"), "c")
	wantList(t, fsys, dir, "a", "b", "d")
	wantList(t, fsys, filepath.Join(dir, "d"), "c", "e")
	wantContent(t, fsys, filepath.Join(dir, "d", "c"), "c")
	check.Fails(t, fsys.MkdirAll(filepath.Join(dir, "a", "x")), "a folder was made in a file")
	check.Fails(t, check.Err(fsys.List(filepath.Join(dir, "a"))), "a file was listed")
	check.Fails(t, fsys.SyncDir(filepath.Join(dir, "a")), "a file was synced as a folder")
	ok(t, fsys.SyncDir(dir))
}

func testRename(t *testing.T, fsys vfs.FS, dir string) {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	put(t, fsys, a, "A")
	put(t, fsys, b, "B")
	replaced, err := fsys.Open(b)
	ok(t, err)
	ok(t, fsys.Rename(a, b))
	ok(t, fsys.Rename(b, b))
	wantList(t, fsys, dir, "b")
	wantContent(t, fsys, b, "A")
	old := make([]byte, 1)
	if _, err := replaced.ReadAt(old, 0); err != nil || old[0] != 'B' {
		t.Errorf("the replaced file reads %q, %v", old, err)
	}
	ok(t, replaced.Close())
	ok(t, fsys.MkdirAll(filepath.Join(dir, "d")))
	ok(t, fsys.Rename(b, filepath.Join(dir, "d", "c")))
	wantContent(t, fsys, filepath.Join(dir, "d", "c"), "A")
}

func testRenameFolder(t *testing.T, fsys vfs.FS, dir string) {
	d, e, f := filepath.Join(dir, "d"), filepath.Join(dir, "e"), filepath.Join(dir, "f")
	ok(t, fsys.MkdirAll(d))
	put(t, fsys, filepath.Join(d, "x"), "X")
	put(t, fsys, f, "F")
	check.Fails(t, fsys.Rename(d, filepath.Join(d, "y")), "a folder was moved into itself")
	check.Fails(t, fsys.Rename(d, f), "a folder replaced a file")
	check.Fails(t, fsys.Rename(f, d), "a file replaced a folder")
	ok(t, fsys.Rename(d, e))
	wantContent(t, fsys, filepath.Join(e, "x"), "X")
	wantList(t, fsys, dir, "e", "f")
}

func testRemove(t *testing.T, fsys vfs.FS, dir string) {
	d, x := filepath.Join(dir, "d"), filepath.Join(dir, "d", "x")
	ok(t, fsys.MkdirAll(filepath.Join(d, "sub")))
	put(t, fsys, x, "X")
	put(t, fsys, filepath.Join(d, "sub", "y"), "Y")
	check.Fails(t, fsys.Remove(d), "a folder was removed with what it held")
	ok(t, fsys.Remove(x))
	wantList(t, fsys, d, "sub")
	ok(t, fsys.RemoveAll(d))
	wantList(t, fsys, dir)
	ok(t, fsys.MkdirAll(d))
	ok(t, fsys.Remove(d))
	wantList(t, fsys, dir)
}

func testRemovedButOpen(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "f")
	f, err := fsys.Create(name)
	ok(t, err)
	ok(t, fsys.Remove(name))
	write(t, f, "still here", 0)
	got := make([]byte, 10)
	_, err = f.ReadAt(got, 0)
	ok(t, err)
	check.Equal(t, string(got), "still here", "read")
	ok(t, f.Sync())
	ok(t, f.Close())
}

func testLock(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "lock")
	l, err := fsys.Lock(name)
	ok(t, err)
	_, err = fsys.Lock(name)
	wantIs(t, err, vfs.ErrLocked)
	ok(t, l.Close())
	wantList(t, fsys, dir, "lock")
	l, err = fsys.Lock(name)
	ok(t, err)
	ok(t, l.Close())
	check.Fails(t, l.Close(), "a lock was released twice")
}

func testClosed(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "f")
	f, err := fsys.Create(name)
	ok(t, err)
	ok(t, f.Close())
	calls := map[string]func() error{
		"read":     func() error { _, err := f.ReadAt(make([]byte, 1), 0); return err },
		"write":    func() error { _, err := f.WriteAt(make([]byte, 1), 0); return err },
		"size":     func() error { _, err := f.Size(); return err },
		"truncate": func() error { return f.Truncate(0) },
		"sync":     f.Sync,
		"map":      func() error { _, err := f.Map(1); return err },
		"close":    f.Close,
	}
	for what, call := range calls {
		err := call()
		pathErr, isPath := errors.AsType[*fs.PathError](err)
		if !errors.Is(err, fs.ErrClosed) || !isPath || pathErr.Path != name {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func testReadOnly(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "f")
	put(t, fsys, name, "data")
	f, err := fsys.Open(name)
	ok(t, err)
	check.Fails(t, check.Err(f.WriteAt([]byte("x"), 0)), "a write was taken")
	check.Fails(t, f.Truncate(0), "a truncation was taken")
	ok(t, f.Sync())
	ok(t, f.Close())
	wantContent(t, fsys, name, "data")
}

func testMap(t *testing.T, fsys vfs.FS, dir string) {
	f, err := fsys.Create(filepath.Join(dir, "f"))
	ok(t, err)
	defer func() { ok(t, f.Close()) }()
	write(t, f, "first", 0)
	check.Fails(t, check.Err(f.Map(-1)), "a negative size was mapped")
	m, err := f.Map(1 << 20)
	if errors.Is(err, vfs.ErrNotMappable) {
		return
	}
	ok(t, err)
	check.Equal(t, string(m.Bytes()[:5]), "first", "mapped")
	write(t, f, "later", 100_000)
	check.Equal(t, string(m.Bytes()[100_000:100_005]), "later", "mapped")
	ok(t, f.Truncate(100_002))
	ok(t, f.Truncate(100_005))
	check.Equal(t, string(m.Bytes()[100_000:100_005]), "la\x00\x00\x00", "mapped")
	ok(t, m.Close())
	wantIs(t, m.Close(), fs.ErrClosed)
	m, err = f.Map(0)
	ok(t, err)
	check.Equal(t, len(m.Bytes()), 0, "an empty mapping has bytes")
	ok(t, m.Close())
}

func testStat(t *testing.T, fsys vfs.FS, dir string) {
	put(t, fsys, filepath.Join(dir, "f"), "12345")
	info, err := fsys.Stat(filepath.Join(dir, "f"))
	ok(t, err)
	if info.Name() != "f" || info.Size() != 5 || info.IsDir() || !info.Mode().IsRegular() {
		t.Errorf("file: %s %d %v", info.Name(), info.Size(), info.Mode())
	}
	info, err = fsys.Stat(dir)
	ok(t, err)
	if info.Name() != filepath.Base(dir) || !info.IsDir() || !info.Mode().IsDir() {
		t.Errorf("folder: %s %v", info.Name(), info.Mode())
	}
	free, err := fsys.Free(dir)
	ok(t, err)
	if free <= 0 {
		t.Errorf("%d bytes free", free)
	}
}

// testConcurrent appends with several goroutines at interleaved ranges, while others read what is
// there, and one opens and closes a handle.
func testConcurrent(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "f")
	f, err := fsys.Create(name)
	ok(t, err)
	const writers, rounds, piece = 4, 40, 5_000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			p := bytes.Repeat([]byte{byte('a' + w)}, piece)
			for r := range rounds {
				check.NoError(t, check.Err(f.WriteAt(p, int64(r*writers+w)*piece)))
			}
		})
		wg.Go(func() {
			p := make([]byte, piece)
			for r := range rounds {
				n, err := f.ReadAt(p, int64(r*writers+w)*piece)
				if err != nil && err != io.EOF {
					t.Error(err)
				}
				for _, b := range p[:n] {
					if b != 0 && b != byte('a'+w) {
						t.Errorf("read %q", b)
						return
					}
				}
			}
		})
		wg.Go(func() {
			own := filepath.Join(dir, fmt.Sprint("g", w))
			for range rounds {
				g, err := fsys.Create(own)
				if err != nil {
					t.Error(err)
					return
				}
				check.NoError(t, errors.Join(g.Sync(), g.Close(), fsys.Rename(own, own+"x"), fsys.SyncDir(dir)))
			}
		})
	}
	wg.Wait()
	ok(t, f.Close())
	var want []byte
	for range rounds {
		for w := range writers {
			want = append(want, bytes.Repeat([]byte{byte('a' + w)}, piece)...)
		}
	}
	wantContent(t, fsys, name, string(want))
}

func testPrivate(t *testing.T, fsys vfs.FS, dir string) {
	private, shared := filepath.Join(dir, "private"), filepath.Join(dir, "shared")
	f, err := fsys.CreatePrivate(private)
	ok(t, err)
	write(t, f, "secret", 0)
	ok(t, f.Sync())
	ok(t, f.Close())
	wantIs(t, check.Err(fsys.CreatePrivate(private)), fs.ErrExist)
	check.Equal(t, check.Value(fsys.Stat(private)).Must(t).Mode().Perm(), 0o600, "permissions")
	f, err = fsys.OpenPrivate(private)
	ok(t, err)
	data := make([]byte, 6)
	ok(t, vfs.ReadFull(f, data, 0))
	check.Equal(t, string(data), "secret")
	check.Fails(t, check.Err(f.WriteAt(data, 0)), "written by a handle for reading")
	ok(t, f.Close())
	put(t, fsys, shared, "")
	wantIs(t, check.Err(fsys.OpenPrivate(shared)), vfs.ErrShared)
	wantIs(t, check.Err(fsys.OpenPrivate(filepath.Join(dir, "missing"))), fs.ErrNotExist)
	check.Fails(t, check.Err(fsys.OpenPrivate(dir)), "opened a folder")
	ok(t, fsys.Rename(private, shared)) // It stays private.
	f, err = fsys.OpenPrivate(shared)
	ok(t, err)
	ok(t, f.Close())
}

func TestIsOS(t *testing.T) {
	for name, c := range map[string]struct {
		fsys vfs.FS
		want bool
	}{
		"os":            {vfs.OS, true},
		"memory":        {vfs.NewMem(), false},
		"wrapped os":    {vfs.NewWatched(vfs.NewPatient(vfs.NewCounting(vfs.OS), vfs.Patience{}), new(hang.Watch)), true},
		"wrapped again": {vfs.NewPatient(vfs.NewCrashMem(), vfs.Patience{}), false},
	} {
		check.Equal(t, vfs.IsOS(c.fsys), c.want, name)
	}
}
