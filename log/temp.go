package eventlog

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/internal/vfs"
)

// CreateTemp makes an empty file in the log's folder for a chunk file that is
// being fetched, and returns its name. It means nothing until it is prepared and installed, and is
// removed at the next start if it is still there.
func (tr *Transfer) CreateTemp() (file vfs.File, name string, err error) {
	if err := tr.usable(); err != nil {
		return nil, "", err
	}
	name = uuid.NewString() + vfs.TempSuffix
	file, err = tr.opts.FS.Create(filepath.Join(tr.opts.Dir, name))
	if err != nil {
		return nil, "", fmt.Errorf("create temporary file: %w", err)
	}
	return file, name, nil
}

// OpenTemp opens a file that CreateTemp made, to continue writing it.
func (tr *Transfer) OpenTemp(name string) (vfs.File, error) {
	path, err := tr.tempPath(name)
	if err != nil {
		return nil, err
	}
	file, err := tr.opts.FS.OpenReadWrite(path)
	if err != nil {
		return nil, fmt.Errorf("open temporary file: %w", err)
	}
	return file, nil
}

// DropTemp removes a file that CreateTemp made.
func (tr *Transfer) DropTemp(name string) error {
	path, err := tr.tempPath(name)
	if err != nil {
		return err
	}
	if err := tr.opts.FS.Remove(path); err != nil {
		return fmt.Errorf("remove temporary file: %w", err)
	}
	return nil
}

func (tr *Transfer) tempPath(name string) (string, error) {
	if filepath.Base(name) != name || !isTemp(name) {
		return "", fmt.Errorf("%q is not the name of a temporary file", name)
	}
	return filepath.Join(tr.opts.Dir, name), nil
}

func isTemp(name string) bool { return strings.HasSuffix(name, vfs.TempSuffix) }
