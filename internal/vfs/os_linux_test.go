package vfs_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/annalsdb/annals/internal/vfs"
)

// What is on disk of a file is in memory until it is let go of, and can be read afterwards.
func TestUncache(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var of unix.Statfs_t
	if ok(t, unix.Statfs(filepath.Dir(path), &of)); of.Type == unix.TMPFS_MAGIC {
		t.Skip("the files of this file system are in memory only")
	}
	f, err := vfs.OS.Create(path)
	ok(t, err)
	defer f.Close()
	data := bytes.Repeat([]byte("annals"), 100_000)
	_, err = f.WriteAt(data, 0)
	ok(t, errors.Join(err, f.Sync()))
	if !cached(t, path) {
		t.Skip("this file system keeps nothing in memory")
	}
	f.Uncache()
	if cached(t, path) {
		t.Error("the file still takes memory")
	}
	if got, err := vfs.ReadFile(vfs.OS, path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes are read, %v", len(got), err)
	}
}

// What is written past the memory of the system takes none, and a write that is not aligned is made all the same.
func TestDirect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := vfs.OS.Create(path)
	ok(t, err)
	defer f.Close()
	f.Direct()
	room := make([]byte, 3*vfs.DirectAlign)
	at := -int(uintptr(unsafe.Pointer(unsafe.SliceData(room)))) & (vfs.DirectAlign - 1)
	data := room[at : at+vfs.DirectAlign]
	copy(data, bytes.Repeat([]byte("annals"), 1000))
	_, err = f.WriteAt(data, 0)
	ok(t, errors.Join(err, f.Sync()))
	var of unix.Statfs_t
	if ok(t, unix.Statfs(filepath.Dir(path), &of)); of.Type == unix.EXT4_SUPER_MAGIC && cached(t, path) {
		t.Error("the file takes memory")
	}
	_, err = f.WriteAt([]byte("odd"), vfs.DirectAlign)
	ok(t, errors.Join(err, f.Sync()))
	want := append(bytes.Clone(data), "odd"...)
	if got, err := vfs.ReadFile(vfs.OS, path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes are read, %v", len(got), err)
	}
}

// cached reports whether the beginning of a file can be read without waiting for the disk.
func cached(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	ok(t, err)
	defer f.Close()
	n, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 100)}, 0, unix.RWF_NOWAIT)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		t.Skip("the system does not tell: ", err)
	}
	return n > 0
}
