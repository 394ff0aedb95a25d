package raftdisk

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/annalsdb/annals/internal/vfs"
)

// Suffixes of names that are being made or taken away. What bears newSuffix is
// complete only under the conditions that openLogStore states.
const (
	newSuffix = ".new"
	oldSuffix = ".old"
)

// exists reports whether there is a file or folder of that name.
func exists(files vfs.FS, path string) (bool, error) {
	_, err := files.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// remove takes a file or folder away in one step, so that a crash never
// leaves half a folder under its own name.
func remove(files vfs.FS, path string) error {
	old := path + oldSuffix
	if err := files.RemoveAll(old); err != nil {
		return err
	}
	if err := files.Rename(path, old); err != nil {
		return err
	}
	if err := files.SyncDir(filepath.Dir(path)); err != nil {
		return err
	}
	return files.RemoveAll(old)
}
