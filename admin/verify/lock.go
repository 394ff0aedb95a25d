//go:build unix

package verify

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/datadir"
)

// Hold keeps nodes from opening a folder of the real file system until the
// result is closed. It makes and changes no file: it takes a shared lock on the
// lock file, opened for reading, so that it works on a read-only volume, and so
// that several verifications can run at once. Where there is no lock file yet
// no node has ever run, and nothing is held.
//
// The error wraps vfs.ErrLocked when a node has the folder open.
func Hold(dir string) (io.Closer, error) {
	name := filepath.Join(dir, datadir.LockFile)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != unix.EINTR {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("a node has %s open: %w", dir, vfs.ErrLocked)
	}
	return nil, errors.Join(err, f.Close())
}

// ErrLocked says that a node has the folder open.
var ErrLocked = vfs.ErrLocked
