package vfs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

func TestWriteFileAtomic(t *testing.T) {
	for system, open := range systems(t) {
		t.Run(system, func(t *testing.T) {
			fsys, dir := open(t)
			for _, data := range []string{"first", "", "second and longer"} {
				ok(t, vfs.WriteFileAtomic(fsys, dir+"/f", []byte(data)))
				wantContent(t, fsys, dir+"/f", data)
				wantList(t, fsys, dir, "f")
			}
		})
	}
}

// TestWriteFileAtomicFailing fails each operation in turn: no half file, nothing left over.
func TestWriteFileAtomicFailing(t *testing.T) {
	boom := errors.New("boom")
	for _, kind := range []vfs.Kind{vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpClose, vfs.OpRename, vfs.OpSyncDir} {
		t.Run(string(kind), func(t *testing.T) {
			m := vfs.NewMem()
			put(t, m, "/f", "old")
			counting := vfs.NewCounting(m)
			fsys := vfs.NewFaulty(counting, func(op vfs.Op) error {
				if op.Kind != kind {
					return nil
				}
				if kind == vfs.OpWrite {
					return &vfs.ShortWrite{N: 1, Err: boom}
				}
				return boom
			})
			wantIs(t, vfs.WriteFileAtomic(fsys, "/f", []byte("new")), boom)
			wantList(t, m, "/", "f")
			want := "old"
			if kind == vfs.OpSyncDir {
				want = "new"
			}
			wantContent(t, m, "/f", want)
			if left := counting.OpenFiles(); len(left) > 0 {
				t.Errorf("left open: %q", left)
			}
		})
	}
}

// telling is a file system that adds a line for each operation that changes something.
func telling(inner vfs.FS, lines *[]string) vfs.FS {
	return vfs.NewFaulty(inner, func(op vfs.Op) error {
		if op.Kind.Mutates() {
			*lines = append(*lines, strings.TrimSpace(fmt.Sprintf("%s %s %s", op.Kind, op.Name, op.NewName)))
		}
		return nil
	})
}

func TestWriteFileAtomicOrder(t *testing.T) {
	var lines []string
	fsys := telling(vfs.NewMem(), &lines)
	ok(t, vfs.WriteFileAtomic(fsys, "/f", []byte("data")))
	want := []string{"create /f.tmp", "write /f.tmp", "sync /f.tmp", "rename /f.tmp /f", "syncdir /"}
	check.Slice(t, lines, want)
}

// TestWriteFileAtomicCrash cuts the power before each operation, with any outcome for data that was
// not synced.
func TestWriteFileAtomicCrash(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	older, newer := strings.Repeat("old", 1_000), strings.Repeat("new", 2_000)
	m := vfs.NewCrashMem()
	ok(t, vfs.WriteFileAtomic(m, "/f", []byte(older)))
	fsys := vfs.NewFaulty(m, func(op vfs.Op) error {
		for range 50 {
			data, err := vfs.ReadFile(m.CrashClone(vfs.CrashOptions{Rand: r}), "/f")
			if err != nil || string(data) != older && string(data) != newer {
				t.Errorf("before %v: %d bytes, %v", op.Kind, len(data), err)
			}
		}
		return nil
	})
	ok(t, vfs.WriteFileAtomic(fsys, "/f", []byte(newer)))
}

func TestMkdirAllSync(t *testing.T) {
	m := vfs.NewCrashMem()
	ok(t, vfs.MkdirAllSync(m, "/a"))
	var lines []string
	fsys := telling(m, &lines)
	ok(t, vfs.MkdirAllSync(fsys, "/a/b/c"))
	ok(t, vfs.MkdirAllSync(fsys, "/a/b/c"))
	check.Slice(t, lines, []string{"syncdir /", "mkdirall /a/b", "syncdir /a", "mkdirall /a/b/c", "syncdir /a/b", "syncdir /a/b"})
	wantList(t, m.CrashClone(vfs.CrashOptions{}), "/a/b", "c")
	put(t, m, "/a/f", "")
	check.Fails(t, vfs.MkdirAllSync(m, "/a/f"), "a file passed for a folder")
}
