package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"
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

// MkdirAllSync makes a folder with all its parents and makes their names durable, so that what is
// synced inside survives a power cut. Of those that are there already it syncs the innermost one: a
// process that was killed may have made it.
func MkdirAllSync(fsys FS, dir string) error {
	var missing []string // innermost first
	at := filepath.Clean(dir)
	for ; ; at = filepath.Dir(at) {
		info, err := fsys.Stat(at)
		if err == nil && !info.IsDir() {
			return fmt.Errorf("%s is not a folder: %w", at, fs.ErrExist)
		}
		if err == nil || filepath.Dir(at) == at {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		missing = append(missing, at)
	}
	// Who may not open its parent, or write there, did not make it.
	err := fsys.SyncDir(filepath.Dir(at))
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	// One by one, so that of those that are there only the innermost may lack its sync.
	for _, folder := range slices.Backward(missing) {
		if err := fsys.MkdirAll(folder); err != nil {
			return err
		}
		if err := fsys.SyncDir(filepath.Dir(folder)); err != nil {
			return err
		}
	}
	return nil
}
