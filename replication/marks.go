package replication

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Marks are empty files in the folder raft. Each tells one thing that must
// survive a restart.

func (s *state) marked(name string) bool {
	if s.dir == "" {
		_, marked := s.marks.Load(name)
		return marked
	}
	found, err := exists(filepath.Join(s.dir, name))
	return found || err != nil // What cannot be read is the safer of both.
}

func (s *state) mark(name string) error {
	if s.dir == "" {
		s.marks.Store(name, nil)
		return nil
	}
	if s.marked(name) {
		return nil
	}
	return writeFile(filepath.Join(s.dir, name), nil)
}

func (s *state) unmark(name string) error {
	if s.dir == "" {
		s.marks.Delete(name)
		return nil
	}
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncDir(s.dir)
}

// joining reports whether the cluster has not yet admitted this node.
func (s *state) joining() bool { return s.marked(joiningFile) }

// pulled reports whether data was fetched from other nodes, so that the event log may
// be ahead of the Raft log. It was committed before; raft catches up by and by.
func (s *state) pulled() bool { return s.marked(pulledFile) }
