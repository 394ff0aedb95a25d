package vfs

import "golang.org/x/sys/unix"

// datasync writes a file's data to disk, and of its metadata what is needed to read it back.
func datasync(fd int) error {
	return retryEINTR(func() error { return unix.Fdatasync(fd) })
}

// uncache lets go of the pages of a file that are on disk.
func uncache(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) }

// direct says whether writes go past the memory that the kernel keeps of a file.
func direct(fd int, on bool) error {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	flags &^= unix.O_DIRECT
	if on {
		flags |= unix.O_DIRECT
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	return err
}
