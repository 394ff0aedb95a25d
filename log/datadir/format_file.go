package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// Names and versions of a data directory.
const (
	LockFile   = "annals.lock" // locked by the process that has the directory open
	FormatFile = "annals.format"

	// NewestFormat is the version of the layout of a data directory. A newer one is refused.
	NewestFormat = 1
)

// directoryInfo is the content of the format file.
type directoryInfo struct {
	Format    int    `json:"format"`
	Directory string `json:"directoryId"`
}

// ReadInfo reads the format file. A newer format is an error, with what the file says.
func ReadInfo(fsys vfs.FS, dir string) (info directoryInfo, err error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, FormatFile))
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return info, fmt.Errorf("%s: %w", FormatFile, err)
	}
	if info.Format > NewestFormat {
		return info, fmt.Errorf("the folder has format version %d, newer than %d, the newest known to this program", info.Format, NewestFormat)
	}
	return info, nil
}

// ID returns the id of a data directory, and makes the format file with a new one where there is
// none.
func ID(fsys vfs.FS, dir string) (id event.ID, err error) {
	info, err := ReadInfo(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		info = directoryInfo{Format: NewestFormat, Directory: event.ID(uuid.New()).String()}
		data, err := json.Marshal(info)
		if err != nil {
			return id, err
		}
		if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, FormatFile), append(data, '\n')); err != nil {
			return id, fmt.Errorf("write format file: %w", err)
		}
	} else if err != nil {
		return id, err
	}
	if id, err = event.ParseID(info.Directory); err != nil {
		return id, fmt.Errorf("%s: directory id: %w", FormatFile, err)
	}
	return id, nil
}
