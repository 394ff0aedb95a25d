package eventlog

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
)

// openDirectory makes or checks the folder, takes its lock, and opens the checkpoint files.
func (l *Log) openDirectory() error {
	fsys, dir := l.opts.FS, l.opts.Dir
	if err := vfs.MkdirAllSync(fsys, dir); err != nil {
		return err
	}
	lock, err := fsys.Lock(filepath.Join(dir, datadir.LockFile))
	if errors.Is(err, vfs.ErrLocked) {
		return fmt.Errorf("another process uses the folder: %w", err)
	}
	if err != nil {
		return err
	}
	l.lock = lock
	if l.directory, err = datadir.ID(fsys, dir); err != nil {
		return err
	}
	l.syncer.chk, err = datadir.OpenCheckpoints(fsys, dir)
	return err
}

// listChunks returns the names of the chunk files in use, in order; it removes
// temporary files and files that a newer version replaces.
func (r *recovery) listChunks() ([]string, error) {
	names, err := r.l.opts.FS.List(r.l.opts.Dir)
	if err != nil {
		return nil, err
	}
	newest, stale := chunkfile.Newest(names)
	for _, name := range names {
		if isTemp(name) {
			stale = append(stale, name)
		}
	}
	var used []string
	covered := -1
	for _, f := range newest {
		if f.Number <= covered { // A merged file before it took its place.
			stale = append(stale, f.Name)
			continue
		}
		used = append(used, f.Name)
		covered = f.Number
		if f.Version > 0 {
			if covered, err = r.checkReplacement(f.Name); err != nil {
				return nil, err
			}
		}
	}
	// Removals last: with a damaged replacement nothing that it replaces is lost.
	for _, name := range stale {
		r.l.logger.Info("removing a file that is no longer in use", logkey.File, name)
		if err := r.l.opts.FS.Remove(filepath.Join(r.l.opts.Dir, name)); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// checkReplacement opens a file that replaced another and returns the last
// chunk that it covers. It got its name when it was whole and durable.
func (r *recovery) checkReplacement(name string) (last int, err error) {
	c, err := chunkfile.OpenNamed(r.l.opts.FS, r.l.opts.Dir, name)
	if err != nil {
		return 0, err
	}
	return c.Header.Last, c.Close()
}
