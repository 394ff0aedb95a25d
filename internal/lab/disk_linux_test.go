package lab_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
)

// newDisk makes a host with a limited disk, or skips the test.
func newDisk(t *testing.T, bytes int64) *lab.Host {
	t.Helper()
	h := openLab(t, lab.Options{Hosts: 1}).Host(0)
	if err := h.LimitDisk(bytes); errors.Is(err, os.ErrPermission) {
		t.Skipf("needs the right to mount: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return h
}

// write writes a new file of zeros and says whether there was room.
func write(t *testing.T, h *lab.Host, name string, size int) bool {
	t.Helper()
	err := os.WriteFile(filepath.Join(h.Dir(), name), make([]byte, size), 0o600)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return err == nil
}

func TestDiskLimit(t *testing.T) {
	h := newDisk(t, 1<<20)
	if write(t, h, "large", 2<<20) {
		t.Error("a disk of 1 MiB took 2 MiB")
	}
	check.Fails(t, h.LimitDisk(64<<10), "a full disk became smaller")
	do(t, h.LimitDisk(4<<20))
	if !write(t, h, "large", 2<<20) {
		t.Error("a disk of 4 MiB does not take 2 MiB")
	}
}

func TestFillDisk(t *testing.T) {
	const left = 100 << 10
	h := newDisk(t, 8<<20)
	for range 2 {
		do(t, h.FillDisk(left))
		if write(t, h, "much", left+64<<10) {
			t.Error("the disk is not full")
		}
		do(t, os.Remove(filepath.Join(h.Dir(), "much")))
		if !write(t, h, "little", left/2) {
			t.Error("nothing is left of the disk")
		}
		do(t, h.FillDisk(0))
		if write(t, h, "one", 1) {
			t.Error("the disk is not full")
		}
		do(t, h.FreeDisk(), h.FreeDisk())
		if !write(t, h, "much", 1<<20) {
			t.Error("the disk is still full")
		}
		do(t, os.Remove(filepath.Join(h.Dir(), "much")))
	}
	files := check.Value(os.ReadDir(h.Dir())).Must(t)
	check.Equal(t, len(files), 2, "the folder has", files)
}

func TestDiskIsLimitedInTime(t *testing.T) {
	l := openLab(t, lab.Options{Hosts: 2})
	h := l.Host(0)
	check.Is(t, h.FillDisk(0), lab.ErrNoDiskLimit, "fill the machine")
	check.Is(t, h.FreeDisk(), lab.ErrNoDiskLimit, "free the machine")
	check.Fails(t, h.LimitDisk(0), "a disk has no size")
	launch(t, h, "server", "ready")
	check.Fails(t, h.LimitDisk(1<<20), "the disk of a running process was limited")
	h = l.Host(1)
	do(t, os.WriteFile(filepath.Join(h.Dir(), "data"), nil, 0o600))
	check.Fails(t, h.LimitDisk(1<<20), "a disk covered what was there")
}

// newDevice makes a host with a disk that can hang, or skips the test.
func newDevice(t *testing.T, bytes int64) *lab.Host {
	t.Helper()
	h := openLab(t, lab.Options{Hosts: 1}).Host(0)
	if err := h.MakeDisk(bytes); errors.Is(err, lab.ErrNoDevice) {
		t.Skipf("needs a loop device: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestFrozenDiskHangsUntilItIsThawed(t *testing.T) {
	h := newDevice(t, 16<<20)
	if !write(t, h, "before", 1000) {
		t.Fatal("the disk is full at once")
	}
	do(t, h.FreezeDisk(), h.FreezeDisk())
	if _, err := os.ReadFile(filepath.Join(h.Dir(), "before")); err != nil {
		t.Errorf("a frozen disk is not read: %v", err)
	}
	written := make(chan bool, 1)
	go func() { written <- write(t, h, "meanwhile", 1000) }()
	select {
	case <-written:
		t.Error("a frozen disk was written to")
	case <-time.After(100 * time.Millisecond):
	}
	do(t, h.ThawDisk(), h.ThawDisk())
	if !<-written {
		t.Error("the write that hung found no room")
	}
}

func TestMadeDiskIsFilled(t *testing.T) {
	h := newDevice(t, 16<<20)
	do(t, h.FillDisk(64<<10))
	if write(t, h, "much", 1<<20) {
		t.Error("the disk is not full")
	}
	do(t, h.FillDisk(0), os.Truncate(filepath.Join(h.Dir(), "much"), 0), h.FreeDisk())
	if !write(t, h, "much", 1<<20) {
		t.Error("the disk is still full")
	}
}

func TestClosedLabThawsItsDisks(t *testing.T) {
	l := openLab(t, lab.Options{Hosts: 1})
	h := l.Host(0)
	if err := h.MakeDisk(16 << 20); errors.Is(err, lab.ErrNoDevice) {
		t.Skipf("needs a loop device: %v", err)
	}
	p, err := h.Start(t.Context(), lab.Command{Path: "sh", Args: []string{"-c", "while :; do echo x >>file; done"}})
	do(t, err, h.FreezeDisk(), l.Close())
	select {
	case <-p.Done():
	default:
		t.Error("the process is not gone")
	}
}

func TestMadeDiskIsNoOtherDisk(t *testing.T) {
	l := openLab(t, lab.Options{Hosts: 1})
	h := l.Host(0)
	check.Is(t, h.FreezeDisk(), lab.ErrNoDevice, "freeze the machine")
	do(t, h.ThawDisk())
	if err := h.LimitDisk(1 << 20); errors.Is(err, os.ErrPermission) {
		t.Skipf("needs the right to mount: %v", err)
	}
	check.Fails(t, h.MakeDisk(16<<20), "a second disk covered the first")
	check.Is(t, h.FreezeDisk(), lab.ErrNoDevice, "freeze a disk in memory")
}
