//go:build unix

package peersecret

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const tellsOwner = true

// open does not wait where the name means a pipe by now, and follows no link.
func open(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
}

// private says why a file that is open is not this process's user's alone.
func private(info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return errors.New("is not a file")
	case owner.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("belongs to user %d, and this process to user %d", owner.Uid, os.Geteuid())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("can be read by others: its permissions are %v", info.Mode().Perm())
	}
	return nil
}
