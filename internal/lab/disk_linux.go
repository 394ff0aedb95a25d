package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	image   bool // it is a file system of its own in a file, and not in memory
	frozen  bool
}

// change does one thing with the disk, and says what it was if it failed.
func (h *Host) change(what string, do func() error) error {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if err := do(); err != nil {
		return fmt.Errorf("%s the disk of %s: %w", what, h, err)
	}
	return nil
}

// LimitDisk makes the host's folder a disk of its own, which is full at a number of
// bytes. It is kept in memory, so syncing to it takes no time. The first call must come before the
// first file and the first start; later ones change the size at any time, but
// not to less than is used.
func (h *Host) LimitDisk(bytes int64) error {
	return h.change(fmt.Sprintf("limit to %d bytes", bytes), func() error {
		size := fmt.Sprintf("size=%d", bytes)
		switch {
		case bytes <= 0:
			return errors.New("a disk has a size")
		case h.disk.mounted && !h.disk.image:
			return unix.Mount(h.lab.name, h.diskDir(), "tmpfs", unix.MS_REMOUNT, size)
		}
		return h.mountDisk(func() error {
			return unix.Mount(h.lab.name, h.diskDir(), "tmpfs", mountFlags, size+",mode=0755")
		})
	})
}

const mountFlags = unix.MS_NOSUID | unix.MS_NODEV

// mountDisk covers the host's folder by a new disk. disk.mu is held.
func (h *Host) mountDisk(mount func() error) error {
	if h.disk.mounted {
		return errors.New("it has a disk of its own")
	}
	if len(h.Processes()) > 0 {
		return errors.New("a process is running on it")
	}
	// The new disk covers the old folder: what is in there must not vanish.
	if err := os.Remove(h.Dir()); err != nil {
		return err
	}
	if err := mount(); err != nil {
		return errors.Join(err, os.Mkdir(h.Dir(), 0o755))
	}
	h.disk.mounted = true
	return os.Mkdir(h.Dir(), 0o755)
}

// MakeDisk makes the host's folder a file system of its own, of a number of bytes, that can also
// hang: see FreezeDisk. It is ext4 in a file next to the folder, on a loop device, so a sync takes
// twice as long as on the disk below. The file stays with Options.Keep. It needs mkfs.ext4 and the
// right to mount, else the error is [ErrNoDevice]. It must come before the first file and the first
// start.
func (h *Host) MakeDisk(bytes int64) error {
	return h.change(fmt.Sprintf("make with %d bytes", bytes), func() error {
		if err := h.mountDisk(func() error { return h.mountImage(bytes) }); err != nil {
			return err
		}
		h.disk.image = true
		return nil
	})
}

// image is the file that holds a disk made by MakeDisk.
func (h *Host) image() string { return filepath.Join(h.folder, "disk.ext4") }

func (h *Host) mountImage(bytes int64) (err error) {
	file, err := os.OpenFile(h.image(), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(bytes); err != nil {
		return err
	}
	// No blocks are reserved for root, which we are.
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", h.image()).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: mkfs.ext4: %w: %s", ErrNoDevice, err, out)
	}
	device, err := attachLoop(file, h.lab.name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	// The device goes with the mount, or at once if there is none.
	defer func() { err = errors.Join(err, device.Close()) }()
	if err := unix.Mount(device.Name(), h.diskDir(), "ext4", mountFlags, ""); err != nil {
		return fmt.Errorf("%w: mount %s: %w", ErrNoDevice, device.Name(), err)
	}
	return nil
}

const (
	loopPrefix = "/dev/loop"
	// loopTries bounds how often another program may take the device that was free.
	loopTries = 32
)

// attachLoop makes a file a block device, which vanishes when it is not used any more. The name
// tells whose it is.
func attachLoop(file *os.File, name string) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = control.Close() }() // nothing was written
	for range loopTries {
		number, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("find a loop device: %w", err)
		}
		device, err := os.OpenFile(loopPrefix+strconv.Itoa(number), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(file.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		copy(config.Info.File_name[:len(config.Info.File_name)-1], name)
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		if err = errors.Join(err, device.Close()); !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("set up %s: %w", device.Name(), err)
		}
	}
	return nil, errors.New("other programs take every free loop device")
}

// Requests of the kernel to freeze and thaw a file system, from linux/fs.h.
const (
	freezeRequest = 0xc0045877 // FIFREEZE
	thawRequest   = 0xc0045878 // FITHAW
)

// FreezeDisk makes every write to a disk made by MakeDisk hang in the kernel, syncs included, until
// ThawDisk. Reads keep working. A process that hangs cannot even be killed before that. FreezeDisk
// returns when everything that was written before is on the disk.
func (h *Host) FreezeDisk() error {
	return h.change("freeze", func() error {
		if !h.disk.image {
			return ErrNoDevice
		}
		if h.disk.frozen {
			return nil
		}
		h.disk.frozen = true
		return freeze(h.diskDir(), freezeRequest)
	})
}

// ThawDisk ends what FreezeDisk began.
func (h *Host) ThawDisk() error { return h.change("thaw", h.thaw) }

func (h *Host) thaw() error {
	if !h.disk.frozen {
		return nil
	}
	h.disk.frozen = false
	return freeze(h.diskDir(), thawRequest)
}

// freeze freezes or thaws the file system of a folder. One that is thawed already is EINVAL.
func freeze(folder string, request uint) (err error) {
	dir, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	if err := unix.IoctlSetInt(int(dir.Fd()), request, 0); err != nil {
		return fmt.Errorf("freeze or thaw %s: %w", folder, err)
	}
	return nil
}

// filler is the file that takes the space.
func (h *Host) filler() string { return filepath.Join(h.diskDir(), "filler") }

// FillDisk fills a limited disk until a number of bytes, rounded up to whole pages, is left. It may
// be called again.
func (h *Host) FillDisk(left int64) error {
	return h.change("fill", func() error { return h.fillDisk(left) })
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
	for tries := 0; tries < fillTries; {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		grow, err := h.excess(left)
		if err != nil || grow <= 0 {
			return err
		}
		// All or nothing: nothing if a program was faster or a signal came, and Go sends itself
		// many. So it is done in small pieces.
		switch err = unix.Fallocate(int(file.Fd()), 0, info.Size(), min(grow, 4<<20)); {
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EINTR):
			tries++
		case err != nil:
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
	return h.change("free", func() error {
		if !h.disk.mounted {
			return ErrNoDiskLimit
		}
		if err := os.Remove(h.filler()); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
}

// unmount takes a limited disk away.
func (h *Host) unmount() error {
	return h.change("take away", func() error {
		if !h.disk.mounted {
			return nil
		}
		h.disk.mounted = false
		return errors.Join(h.thaw(), unmount(h.diskDir()))
	})
}

// unmount takes a mount out of the tree of folders. It ends when its last open file is closed.
func unmount(folder string) error {
	if err := unix.Unmount(folder, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", folder, err)
	}
	return nil
}
