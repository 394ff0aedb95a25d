package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
)

// TempSuffix ends the name of a file that WriteFileAtomic has not finished. After a
// crash such a file may be left; it means nothing and can be removed.
const TempSuffix = ".tmp"

// WriteFileAtomic makes data the durable content of a file. Whatever goes
// wrong, including a crash, the name means the old file or the whole new one.
// When it fails after the rename, either may be found after a crash. Two calls
// for the same name must not run at the same time.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	temp := name + TempSuffix
	if err := writeFileSync(fsys, temp, data); err != nil {
		return errors.Join(err, RemoveIfThere(fsys, temp))
	}
	if err := fsys.Rename(temp, name); err != nil {
		return errors.Join(err, RemoveIfThere(fsys, temp))
	}
	return fsys.SyncDir(filepath.Dir(name))
}

func writeFileSync(fsys FS, name string, data []byte) (err error) {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Sync()
}

// RemoveIfThere removes a file that may not be there.
func RemoveIfThere(fsys FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MkdirAllSync makes a folder with all its parents and makes the names of those
// that were missing durable, so that what is synced inside survives a power cut.
func MkdirAllSync(fsys FS, dir string) error {
	var parents []string // of missing folders, innermost first
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := fsys.Stat(at)
		if err == nil {
			if !info.IsDir() {
				return fmt.Errorf("%s is not a folder: %w", at, fs.ErrExist)
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if filepath.Dir(at) == at {
			break
		}
		parents = append(parents, filepath.Dir(at))
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for _, parent := range slices.Backward(parents) {
		if err := fsys.SyncDir(parent); err != nil {
			return err
		}
	}
	return nil
}
