package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// fillTries bounds how often what is free is measured again because programs
// write while their disk is being filled.
const fillTries = 64

// disk is what a host's folder lies on, once it is limited.
type disk struct {
	mu      sync.Mutex // makes each operation one step; system calls are made under it
	mounted bool
}

// LimitDisk makes the host's folder a disk of its own, which is full at a number of
// bytes. It is kept in memory, so syncing to it takes no time. The first call must come before the
// first file and the first start; later ones change the size at any time, but
// not to less than is used.
func (h *Host) LimitDisk(bytes int64) error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if err := h.limitDisk(bytes); err != nil {
		return fmt.Errorf("limit the disk of %s to %d bytes: %w", h, bytes, err)
	}
	return nil
}

func (h *Host) limitDisk(bytes int64) error {
	if bytes <= 0 {
		return errors.New("a disk has a size")
	}
	size := fmt.Sprintf("size=%d", bytes)
	if h.disk.mounted {
		return unix.Mount(h.lab.name, h.diskDir(), "tmpfs", unix.MS_REMOUNT, size)
	}
	if len(h.Processes()) > 0 {
		return errors.New("a process is running on it")
	}
	// The new disk covers the old folder: what is in there must not vanish.
	if err := os.Remove(h.Dir()); err != nil {
		return err
	}
	if err := unix.Mount(h.lab.name, h.diskDir(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, size+",mode=0755"); err != nil {
		return errors.Join(err, os.Mkdir(h.Dir(), 0o755))
	}
	h.disk.mounted = true
	return os.Mkdir(h.Dir(), 0o755)
}

// filler is the file that takes the space.
func (h *Host) filler() string { return filepath.Join(h.diskDir(), "filler") }

// FillDisk fills a limited disk until a number of bytes, rounded up to whole pages, is left. It may
// be called again.
func (h *Host) FillDisk(left int64) error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if err := h.fillDisk(left); err != nil {
		return fmt.Errorf("fill the disk of %s: %w", h, err)
	}
	return nil
}

func (h *Host) fillDisk(left int64) (err error) {
	if !h.disk.mounted {
		return ErrNoDiskLimit
	}
	file, err := os.OpenFile(h.filler(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for range fillTries {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		grow, err := h.excess(left)
		if err != nil || grow <= 0 {
			return err
		}
		// All or nothing; nothing if a program was faster.
		err = unix.Fallocate(int(file.Fd()), 0, info.Size(), grow)
		if err != nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EINTR) {
			return err
		}
	}
	return errors.New("programs write and remove files faster than it can be measured what is free")
}

// excess is by how many bytes of whole pages more is free than is to be left.
func (h *Host) excess(left int64) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(h.diskDir(), &s); err != nil {
		return 0, fmt.Errorf("measure what is free: %w", err)
	}
	page := int64(s.Bsize)
	keep := (left + page - 1) / page
	return (int64(s.Bavail) - keep) * page, nil
}

// FreeDisk takes away what FillDisk has put on the disk.
func (h *Host) FreeDisk() error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if !h.disk.mounted {
		return fmt.Errorf("free the disk of %s: %w", h, ErrNoDiskLimit)
	}
	if err := os.Remove(h.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("free the disk of %s: %w", h, err)
	}
	return nil
}

// unmount takes a limited disk away.
func (h *Host) unmount() error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if !h.disk.mounted {
		return nil
	}
	h.disk.mounted = false
	return unmount(h.diskDir())
}

// unmount takes a mount out of the tree of folders. It ends when its last open file is closed.
func unmount(folder string) error {
	if err := unix.Unmount(folder, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", folder, err)
	}
	return nil
}
