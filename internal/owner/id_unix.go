//go:build unix

package owner

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// MayWrite returns an error if this process may not make files in a folder.
func MayWrite(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return &fs.PathError{Op: "write to", Path: dir, Err: err}
	}
	return nil
}

// fileKey tells files apart.
type fileKey struct{ device, inode uint64 }

// Of returns whose file it is.
func Of(info fs.FileInfo) (id ID, known bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ID{}, false
	}
	return ID{int(s.Uid), int(s.Gid)}, true
}

func keyOf(info fs.FileInfo) fileKey {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileKey{}
	}
	return fileKey{uint64(s.Dev), s.Ino}
}

// shared says whether a file has more than one name.
func shared(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && !info.IsDir() && s.Nlink > 1
}
