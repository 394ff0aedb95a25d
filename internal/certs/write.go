package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/annalsdb/annals/internal/owner"
)

// The permissions of what is written. Keys are for their owner alone.
const (
	keyPermission         fs.FileMode = 0o600
	certificatePermission fs.FileMode = 0o644
	folderPermission      fs.FileMode = 0o755
)

// A newFile is a file to be written.
type newFile struct {
	name       string
	permission fs.FileMode
	data       []byte
	like       fs.FileInfo // whose owner it gets; nil: the writer's
}

// writeFiles writes files into a folder in their order. Without force it writes
// none if one of them is there. Each appears whole or not at all, also after a
// crash. Two calls for the same folder must not run at the same time.
func writeFiles(dir string, force bool, files ...newFile) error {
	if err := os.MkdirAll(dir, folderPermission); err != nil {
		return err
	}
	if !force {
		for _, f := range files {
			if err := absent(filepath.Join(dir, f.name)); err != nil {
				return err
			}
		}
	}
	for _, f := range files {
		if err := writeFile(dir, f); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(dir, f.name), err)
		}
	}
	return nil
}

// absent fails if there is anything of that name, a dangling link included.
func absent(name string) error {
	_, err := os.Lstat(name)
	switch {
	case err == nil:
		return &fs.PathError{Op: "write", Path: name, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// writeFile writes, syncs and renames. Other users can never read the temporary file; it is removed
// when something fails.
func writeFile(dir string, f newFile) error {
	temp, err := os.CreateTemp(dir, "."+f.name+"-*.tmp")
	if err != nil {
		return err
	}
	_, err = temp.Write(f.data)
	if err == nil && f.like != nil {
		err = owner.Like(temp, f.like)
	}
	if err == nil {
		err = temp.Chmod(f.permission)
	}
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), filepath.Join(dir, f.name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncFolder(dir)
}

// syncFolder makes a rename durable.
func syncFolder(dir string) (err error) {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}
