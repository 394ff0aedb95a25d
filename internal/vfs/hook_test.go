package vfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/internal/vfs"
)

func TestFaultyFailsEveryKind(t *testing.T) {
	boom := errors.New("boom")
	calls := []struct {
		kind vfs.Kind
		name string
		do   func(fsys vfs.FS, f vfs.File) error
	}{
		{vfs.OpCreate, "a", func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Create("a"); return err }},
		{vfs.OpOpen, "f", func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Open("f"); return err }},
		{vfs.OpOpenReadWrite, "f", func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.OpenReadWrite("f"); return err }},
		{vfs.OpRemove, "f", func(fsys vfs.FS, _ vfs.File) error { return fsys.Remove("f") }},
		{vfs.OpRemoveAll, "f", func(fsys vfs.FS, _ vfs.File) error { return fsys.RemoveAll("f") }},
		{vfs.OpRename, "f", func(fsys vfs.FS, _ vfs.File) error { return fsys.Rename("f", "g") }},
		{vfs.OpMkdirAll, "d", func(fsys vfs.FS, _ vfs.File) error { return fsys.MkdirAll("d") }},
		{vfs.OpList, "/", func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.List("/"); return err }},
		{vfs.OpStat, "f", func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Stat("f"); return err }},
		{vfs.OpSyncDir, "/", func(fsys vfs.FS, _ vfs.File) error { return fsys.SyncDir("/") }},
		{vfs.OpLock, "l", func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Lock("l"); return err }},
		{vfs.OpFree, "/", func(fsys vfs.FS, _ vfs.File) error { _, err := fsys.Free("/"); return err }},
		{vfs.OpRead, "f", func(_ vfs.FS, f vfs.File) error { _, err := f.ReadAt(make([]byte, 1), 0); return err }},
		{vfs.OpWrite, "f", func(_ vfs.FS, f vfs.File) error { _, err := f.WriteAt([]byte("x"), 0); return err }},
		{vfs.OpSize, "f", func(_ vfs.FS, f vfs.File) error { _, err := f.Size(); return err }},
		{vfs.OpTruncate, "f", func(_ vfs.FS, f vfs.File) error { return f.Truncate(0) }},
		{vfs.OpSync, "f", func(_ vfs.FS, f vfs.File) error { return f.Sync() }},
		{vfs.OpMap, "f", func(_ vfs.FS, f vfs.File) error { _, err := f.Map(1); return err }},
		{vfs.OpClose, "f", func(_ vfs.FS, f vfs.File) error { return f.Close() }},
	}
	for _, c := range calls {
		t.Run(string(c.kind), func(t *testing.T) {
			m := vfs.NewMem()
			put(t, m, "f", "data")
			armed := false
			fsys := vfs.NewFaulty(m, func(op vfs.Op) error {
				if armed && op.Kind == c.kind && op.Name == c.name {
					return boom
				}
				return nil
			})
			f, err := fsys.OpenReadWrite("f")
			ok(t, err)
			armed = true
			err = c.do(fsys, f)
			wantIs(t, err, boom)
			pathErr, isPath := errors.AsType[*fs.PathError](err)
			if !isPath || pathErr.Op != string(c.kind) || pathErr.Path != c.name {
				t.Errorf("got %#v", err)
			}
			wantList(t, m, "/", "f")
			wantContent(t, m, "f", "data")
		})
	}
}

func TestFaultyShortWrite(t *testing.T) {
	m := vfs.NewMem()
	fsys := vfs.NewFaulty(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite {
			return &vfs.ShortWrite{N: 3, Err: syscall.ENOSPC}
		}
		return nil
	})
	f, err := fsys.Create("f")
	ok(t, err)
	n, err := f.WriteAt([]byte("12345"), 0)
	check.Equal(t, n, 3, "wrote ... bytes")
	wantIs(t, err, syscall.ENOSPC)
	ok(t, f.Close())
	wantContent(t, m, "f", "123")
}

func TestFaultyReleasesEvenWhenFailing(t *testing.T) {
	counting := vfs.NewCounting(vfs.OS)
	boom := errors.New("boom")
	fsys := vfs.NewFaulty(counting, func(op vfs.Op) error {
		switch op.Kind {
		case vfs.OpClose, vfs.OpUnlock, vfs.OpUnmap:
			return boom
		}
		return nil
	})
	f, err := fsys.Create(filepath.Join(t.TempDir(), "f"))
	ok(t, err)
	write(t, f, "x", 0)
	m, err := f.Map(1)
	ok(t, err)
	l, err := fsys.Lock(f.Name() + "lock")
	ok(t, err)
	for _, c := range []interface{ Close() error }{m, l, f} {
		wantIs(t, c.Close(), boom)
	}
	if open := counting.OpenFiles(); len(open) != 0 {
		t.Errorf("left open: %q", open)
	}
}

// TestFaultyHooksCrash clones after every operation of an atomic replacement.
func TestFaultyHooksCrash(t *testing.T) {
	m := vfs.NewCrashMem()
	ok(t, vfs.WriteFileAtomic(m, "/f", []byte("old")))
	var seen []string
	fsys := vfs.NewFaulty(m, func(vfs.Op) error {
		data, err := vfs.ReadFile(m.CrashClone(vfs.CrashOptions{}), "/f")
		seen = append(seen, string(data))
		return err
	})
	ok(t, vfs.WriteFileAtomic(fsys, "/f", []byte("new")))
	check.Slice(t, seen, []string{"old", "old", "old", "old", "old", "old"}, "seen")
	wantContent(t, m.CrashClone(vfs.CrashOptions{}), "/f", "new")
}

func TestCounting(t *testing.T) {
	fsys := vfs.NewCounting(vfs.OS)
	dir := t.TempDir()
	a, l := filepath.Join(dir, "a"), filepath.Join(dir, "l")
	wantOpen := func(want ...string) {
		t.Helper()
		check.Slice(t, fsys.OpenFiles(), want, "open")
	}
	wantOpen()
	f, err := fsys.Create(a)
	ok(t, err)
	write(t, f, "x", 0)
	g, err := fsys.Open(a)
	ok(t, err)
	lock, err := fsys.Lock(l)
	ok(t, err)
	_, err = fsys.Lock(l)
	wantIs(t, err, vfs.ErrLocked)
	_, err = fsys.Open(l + "none")
	wantIs(t, err, fs.ErrNotExist)
	m, err := g.Map(1)
	ok(t, err)
	wantOpen(a, a, "lock of "+l, "mapping of "+a)
	ok(t, f.Close())
	wantIs(t, f.Close(), fs.ErrClosed)
	ok(t, lock.Close())
	ok(t, g.Close())
	wantOpen("mapping of " + a)
	ok(t, m.Close())
	wantOpen()
	if got := fsys.UsedAfterClose(); len(got) != 0 {
		t.Errorf("used after close: %q", got)
	}
	wantIs(t, g.Sync(), fs.ErrClosed)
	if m.Bytes() != nil {
		t.Error("an unmapped mapping has bytes")
	}
	if got, want := fsys.UsedAfterClose(), []string{"sync " + a, "mapbytes " + a}; !slices.Equal(got, want) {
		t.Errorf("used after close: %q, want %q", got, want)
	}
}

// TestWatched: each operation that changes something is noted while it runs, and not after it.
func TestWatched(t *testing.T) {
	var watch hang.Watch
	var seen []string
	inner := vfs.NewFaulty(vfs.NewMem(), func(op vfs.Op) error {
		if one, _ := watch.Overdue(0); one != nil {
			seen = append(seen, fmt.Sprintf("%s %s during %s", one.Doing, one.File, op.Kind))
		}
		return nil
	})
	fsys := vfs.NewWatched(inner, &watch)
	f := check.Value(fsys.Create("a")).Must(t)
	_, writeErr := f.WriteAt([]byte("abc"), 0)
	for _, err := range []error{writeErr, f.Truncate(1), f.Sync(), f.Close(), fsys.Rename("a", "b"), fsys.SyncDir("."), fsys.Remove("b")} {
		check.Must(t, err)
	}
	check.Is(t, check.Err(fsys.OpenReadWrite("missing")), fs.ErrNotExist)
	want := []string{
		"create a during create", "write a during write", "write a during truncate", "sync a during sync",
		"rename a during rename", "sync . during syncdir", "remove b during remove", "open missing during openreadwrite",
	}
	check.Slice(t, seen, want, "seen")
	if op, _ := watch.Overdue(0); op != nil {
		t.Errorf("%+v is still running", op)
	}
}
