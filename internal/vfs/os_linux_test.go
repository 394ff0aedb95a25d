package vfs_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/annalsdb/annals/internal/check"
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

// What is written past the memory of the system takes none, and a write that is not aligned is made
// all the same.
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

// cached reports whether the beginning of a file is in memory. It asks mincore(2). A read with
// RWF_NOWAIT would start reading ahead, and then find what came in the meantime.
func cached(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	ok(t, err)
	defer f.Close()
	page, err := unix.Mmap(int(f.Fd()), 0, 100, unix.PROT_READ, unix.MAP_SHARED)
	ok(t, err)
	defer func() { ok(t, unix.Munmap(page)) }()
	var in [1]byte
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(page))), uintptr(len(page)), uintptr(unsafe.Pointer(&in[0])))
	check.MustEqual(t, errno, 0, "mincore")
	return in[0]&1 != 0
}
