package eventlog

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/internal/vfs"
)

// CreateTemp makes an empty file in the log's folder for a chunk file that is
// being fetched, and returns its name. It means nothing until InstallChunk, and is
// removed at the next start if it is still there.
func (l *Log) CreateTemp() (file vfs.File, name string, err error) {
	if err := l.usable(); err != nil {
		return nil, "", err
	}
	name = uuid.NewString() + vfs.TempSuffix
	file, err = l.opts.FS.Create(filepath.Join(l.opts.Dir, name))
	if err != nil {
		return nil, "", fmt.Errorf("create temporary file: %w", err)
	}
	return file, name, nil
}

// OpenTemp opens a file that CreateTemp made, to go on writing it.
func (l *Log) OpenTemp(name string) (vfs.File, error) {
	path, err := l.tempPath(name)
	if err != nil {
		return nil, err
	}
	file, err := l.opts.FS.OpenReadWrite(path)
	if err != nil {
		return nil, fmt.Errorf("open temporary file: %w", err)
	}
	return file, nil
}

// DropTemp removes a file that CreateTemp made.
func (l *Log) DropTemp(name string) error {
	path, err := l.tempPath(name)
	if err != nil {
		return err
	}
	if err := l.opts.FS.Remove(path); err != nil {
		return fmt.Errorf("remove temporary file: %w", err)
	}
	return nil
}

func (l *Log) tempPath(name string) (string, error) {
	if filepath.Base(name) != name || !isTemp(name) {
		return "", fmt.Errorf("%q is not the name of a temporary file", name)
	}
	return filepath.Join(l.opts.Dir, name), nil
}

func isTemp(name string) bool { return strings.HasSuffix(name, vfs.TempSuffix) }
