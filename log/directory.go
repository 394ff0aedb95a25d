package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

const (
	lockFile   = "annals.lock"
	formatFile = "annals.format"

	// directoryFormat is the version of the layout of a data directory. A newer one is refused.
	directoryFormat = 1
)

// directoryInfo is the content of the format file.
type directoryInfo struct {
	Format    int    `json:"format"`
	Directory string `json:"directoryId"`
}

// openDirectory makes or checks the folder, takes its lock, and opens the checkpoint files.
func (l *Log) openDirectory() error {
	fsys, dir := l.opts.FS, l.opts.Dir
	if err := vfs.MkdirAllSync(fsys, dir); err != nil {
		return err
	}
	lock, err := fsys.Lock(filepath.Join(dir, lockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("another process uses the folder: %w", err)
	}
	if err != nil {
		return err
	}
	l.lock = lock
	info, err := readDirectoryInfo(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		info = directoryInfo{Format: directoryFormat, Directory: event.ID(uuid.New()).String()}
		data, err := json.Marshal(info)
		if err != nil {
			return err
		}
		if err := vfs.WriteFileAtomic(fsys, filepath.Join(dir, formatFile), append(data, '\n')); err != nil {
			return fmt.Errorf("write format file: %w", err)
		}
	} else if err != nil {
		return err
	}
	if l.directory, err = event.ParseID(info.Directory); err != nil {
		return fmt.Errorf("%s: directory id: %w", formatFile, err)
	}
	l.chk, err = openCheckpoints(fsys, dir)
	return err
}

func readDirectoryInfo(fsys vfs.FS, dir string) (info directoryInfo, err error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, formatFile))
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return info, fmt.Errorf("%s: %w", formatFile, err)
	}
	if info.Format > directoryFormat {
		return info, fmt.Errorf("the folder has format version %d, newer than %d, the newest known to this program", info.Format, directoryFormat)
	}
	return info, nil
}

// listChunks returns the names of the chunk files in use, in order; it removes
// temporary files and files that a newer version replaces.
func (l *Log) listChunks() ([]string, error) {
	names, err := l.opts.FS.List(l.opts.Dir)
	if err != nil {
		return nil, err
	}
	newest := map[int]int{}
	var stale []string
	for _, name := range names {
		if strings.HasSuffix(name, ".tmp") {
			stale = append(stale, name)
			continue
		}
		number, version, ok := parseChunkFileName(name)
		if !ok {
			continue
		}
		if old, seen := newest[number]; seen {
			stale = append(stale, chunkFileName(number, min(old, version)))
		}
		newest[number] = max(newest[number], version)
	}
	var used []string
	covered := -1
	for _, n := range slices.Sorted(maps.Keys(newest)) {
		name := chunkFileName(n, newest[n])
		if n <= covered { // A merged file before it took its place.
			stale = append(stale, name)
			continue
		}
		used = append(used, name)
		covered = n
		if newest[n] > 0 {
			if covered, err = l.checkReplacement(name); err != nil {
				return nil, err
			}
		}
	}
	// Removals last: with a damaged replacement nothing that it replaces is lost.
	for _, name := range stale {
		l.logger.Info("removing a file that is no longer in use", "file", name)
		if err := l.opts.FS.Remove(filepath.Join(l.opts.Dir, name)); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// checkReplacement opens a file that replaced another and returns the last
// chunk that it covers. It got its name when it was whole and durable.
func (l *Log) checkReplacement(name string) (last int, err error) {
	c, err := openChunk(l.opts.FS, l.opts.Dir, name)
	if err != nil {
		return 0, err
	}
	return c.header.last, c.close()
}
