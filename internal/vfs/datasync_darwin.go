package vfs

import "golang.org/x/sys/unix"

// datasync asks for the drive's own cache to be written as well, which fsync alone does not do
// here.
func datasync(fd int) error {
	return retryEINTR(func() error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
		return err
	})
}

// uncache does nothing: there is no such call here.
func uncache(int) error { return nil }

// direct says whether writes go past the memory that the kernel keeps of a file.
func direct(fd int, on bool) error {
	value := 0
	if on {
		value = 1
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_NOCACHE, value)
	return err
}
