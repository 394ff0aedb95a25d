package raftdisk

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/annalsdb/annals/internal/vfs"
)

// Marks are empty files in the folder raft. Each tells one thing that must survive a restart. One
// that is there, or gone, need not be so after a power cut: a sync may have failed, or the process
// was killed before it. So both changes end with a sync, whatever there was before.

func (s *State) marked(name string) bool {
	found, err := exists(s.files, filepath.Join(s.dir, name))
	return found || err != nil // What cannot be read is the safer of both.
}

func (s *State) Mark(name string) error {
	switch found, err := exists(s.files, filepath.Join(s.dir, name)); {
	case err != nil:
		return err
	case found:
		return s.files.SyncDir(s.dir)
	}
	return vfs.WriteFileAtomic(s.files, filepath.Join(s.dir, name), nil)
}

func (s *State) Unmark(name string) error {
	if err := vfs.RemoveIfThere(s.files, filepath.Join(s.dir, name)); err != nil {
		return err
	}
	return s.files.SyncDir(s.dir)
}

// Joining reports whether the cluster has not yet admitted this node.
func (s *State) Joining() bool { return s.marked(JoiningFile) }

// pulled reports whether data was fetched from other nodes, so that the event log may
// be ahead of the Raft log. It was committed before; raft catches up by and by.
func (s *State) pulled() (bool, error) { return exists(s.files, filepath.Join(s.dir, PulledFile)) }

// MarkPulled marks the consensus state of a data directory, while it is not open, and reports
// whether there is any.
func MarkPulled(files vfs.FS, dataDir string) (marked bool, err error) {
	dir := filepath.Join(dataDir, Dir)
	if made, err := exists(files, filepath.Join(dir, identityFile)); err != nil || !made {
		return false, err
	}
	return true, (&State{files: files, dir: dir}).Mark(PulledFile)
}

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
	if err := files.RemoveAll(old); err != nil {
		return err
	}
	// A conversion back would take X.old and its own X.new for an exchange that is nearly done.
	return files.SyncDir(filepath.Dir(path))
}
