package vfs_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// opening is everything that opens a file, a folder or a lock.
var opening = map[vfs.Kind]func(vfs.FS) error{
	vfs.OpCreate:        func(f vfs.FS) error { return closed(f.Create("d/new")) },
	vfs.OpOpen:          func(f vfs.FS) error { return closed(f.Open("d/old")) },
	vfs.OpOpenReadWrite: func(f vfs.FS) error { return closed(f.OpenReadWrite("d/old")) },
	vfs.OpLock:          func(f vfs.FS) error { return closed(f.Lock("d/lock")) },
	vfs.OpList:          func(f vfs.FS) error { _, err := f.List("d"); return err },
	vfs.OpRemoveAll:     func(f vfs.FS) error { return f.RemoveAll("d/none") },
	vfs.OpSyncDir:       func(f vfs.FS) error { return f.SyncDir("d") },
}

func closed[C io.Closer](c C, err error) error {
	if err != nil {
		return err
	}
	return c.Close()
}

// folder is a file system with d/old whose operations of a kind fail as often as times says.
func folder(t *testing.T, kind vfs.Kind, fault error, times *int) vfs.FS {
	t.Helper()
	mem := vfs.NewMem()
	for _, err := range []error{mem.MkdirAll("d"), closed(mem.Create("d/old"))} {
		check.Must(t, err)
	}
	return vfs.NewFaulty(mem, func(op vfs.Op) error {
		if op.Kind != kind || *times == 0 {
			return nil
		}
		*times--
		return fault
	})
}

func TestPatient(t *testing.T) {
	for kind, open := range opening {
		for _, fault := range []error{syscall.EMFILE, syscall.ENFILE} {
			synctest.Test(t, func(t *testing.T) {
				times, told := 20, 0
				f := vfs.NewPatient(folder(t, kind, fault, &times), vfs.Patience{
					Context: t.Context(), Waiting: func(err error) {
						if errors.Is(err, fault) {
							told++
						}
					},
				})
				begun := time.Now()
				if err := open(f); err != nil || times != 0 || told != 20 {
					t.Errorf("%s: %v, told %d times, %d faults left", kind, err, told, times)
				}
				if took := time.Since(begun); took < time.Second || took > 10*time.Second {
					t.Errorf("%s: 20 tries took %v", kind, took)
				}
			})
		}
	}
}

// Whatever else fails is not tried again: above all no write and no sync of a file.
func TestPatientPassesOtherErrorsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, open := range opening {
			for _, fault := range []error{syscall.EIO, syscall.ENOSPC, fs.ErrPermission} {
				times := -1
				err := open(vfs.NewPatient(folder(t, kind, fault, &times), vfs.Patience{Context: t.Context()}))
				check.MustBe(t, err, fault, kind, "after", -1-times, "tries")
				check.Equal(t, times, -2, kind, "after", -1-times, "tries")
			}
		}
		for _, kind := range []vfs.Kind{vfs.OpSync, vfs.OpWrite, vfs.OpTruncate} {
			times := -1
			f, err := vfs.NewPatient(folder(t, kind, syscall.EMFILE, &times), vfs.Patience{Context: t.Context()}).OpenReadWrite("d/old")
			check.Must(t, err)
			_, wrote := f.WriteAt([]byte("x"), 0)
			if err := errors.Join(wrote, f.Truncate(0), f.Sync()); !errors.Is(err, syscall.EMFILE) || times != -2 {
				t.Errorf("%s: %v after %d tries", kind, err, -1-times)
			}
			check.NoError(t, f.Close())
		}
	})
}

// Its owner ends all waiting.
func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Hour, cancel)
		times := -1
		f := vfs.NewPatient(folder(t, vfs.OpOpen, syscall.EMFILE, &times), vfs.Patience{Context: ctx})
		begun := time.Now()
		err := closed(f.Open("d/old"))
		if took := time.Since(begun); took != time.Hour || !vfs.TooManyOpen(err) {
			t.Errorf("%v after %v", err, took)
		}
		if err := vfs.Patiently(f, func() error { return syscall.EMFILE }); !vfs.TooManyOpen(err) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// What opens files past the file system is as patient as that.
func TestPatiently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			fsys vfs.FS
			left int
		}{
			"patient": {vfs.NewPatient(vfs.NewMem(), vfs.Patience{Context: t.Context()}), 0},
			"another": {vfs.NewMem(), 2},
		} {
			left := 3
			err := vfs.Patiently(c.fsys, func() error {
				if left == 0 {
					return nil
				}
				left--
				return syscall.EMFILE
			})
			check.MustEqual(t, left, c.left, name, err, "faults left")
			check.Equal(t, err == nil, left == 0, name, err, "faults left")
		}
	})
}
