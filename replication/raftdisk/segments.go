package raftdisk

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft-wal/types"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// segmentFiles keeps the segment files of a WAL, and uses them again.
//
// Each write to a segment waits for its sync. On blocks that were never written that costs the file
// system a commit of its journal beside the data, and memory that it did not have before. So a
// segment that the WAL deletes is overwritten with zeros, beside the writes, and becomes
// the next one. Zeros, because the WAL reads what it finds behind its last write as
// entries, if they look like it.
//
// A full segment is let go of in memory before the next spare is made, which so takes no other: hardly anybody
// reads it again, and memory that the system has not used for a while can cost more than all else about a write.
//
// A name says what a file holds: X.wal is a segment, X.wal.tmp is one that was deleted, of any
// content, and the spare holds zeros, on disk. Its new name is on disk before anything is written to it.
type segmentFiles struct {
	files  vfs.FS
	dir    string
	size   int64
	logger hclog.Logger

	mu     sync.Mutex
	last   string   // path of the segment that is written, if this process made it
	full   string   // of one before it that takes memory
	used   []string // paths of deleted segments
	spare  bool     // there is one
	making bool     // the goroutine runs
	closed bool
	wg     sync.WaitGroup
}

const (
	// segmentSize is small enough that a segment is free again soon, and large against what beginning one costs.
	segmentSize = 16 << 20
	// usedSegments bounds the disk space that waits for being used again. A manifest frees about so many segments.
	usedSegments = 4

	spareFile     = "spare"
	segmentSuffix = ".wal" // as the WAL calls them
)

// openSegments takes over what a process before left in the folder.
func openSegments(files vfs.FS, dir string, size int64, logger hclog.Logger) (*segmentFiles, error) {
	s := &segmentFiles{files: files, dir: dir, size: size, logger: logger}
	names, err := files.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		switch {
		case name == spareFile:
			s.spare = true
		case strings.HasSuffix(name, segmentSuffix+vfs.TempSuffix), name == spareFile+vfs.TempSuffix:
			s.used = append(s.used, filepath.Join(dir, name))
		}
	}
	return s, nil
}

// Close waits for a file that is being overwritten.
func (s *segmentFiles) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wg.Wait()
	return nil
}

func (s *segmentFiles) ListDir(dir string) ([]string, error) { return s.files.List(dir) }

func (s *segmentFiles) OpenReader(dir, name string) (types.ReadableFile, error) {
	return s.files.Open(filepath.Join(dir, name))
}

// OpenWriter opens the last segment.
func (s *segmentFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := s.files.OpenReadWrite(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	if err := renew(f); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s again: %w", name, err), f.Close())
	}
	return &segmentFile{File: f, of: s}, nil
}

// Create makes a segment from the spare, if there is one, or an empty file of that size.
func (s *segmentFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	path := filepath.Join(dir, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spare {
		s.spare = false
		if err := errors.Join(s.files.Rename(filepath.Join(dir, spareFile), path), s.files.SyncDir(dir)); err != nil {
			return nil, err
		}
		f, err := s.files.OpenReadWrite(path)
		if err != nil {
			return nil, err
		}
		s.follow(path)
		s.prepare(false)
		return &segmentFile{File: f, of: s}, nil
	}
	f, err := s.files.Create(path)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(int64(size)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.follow(path)
	return &segmentFile{File: f, of: s, unsynced: true}, nil
}

// follow notes which segment is written from now on.
func (s *segmentFiles) follow(path string) { s.full, s.last = s.last, path }

func (s *segmentFiles) Delete(dir, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(dir, name)
	if len(s.used) == usedSegments {
		return errors.Join(s.files.Remove(path), s.files.SyncDir(dir))
	}
	if err := errors.Join(s.files.Rename(path, path+vfs.TempSuffix), s.files.SyncDir(dir)); err != nil {
		return err
	}
	s.used = append(s.used, path+vfs.TempSuffix)
	s.prepare(false)
	return nil
}

// prepare has a spare made of a deleted segment, or, if it is needed soon, of a new file.
func (s *segmentFiles) prepare(soon bool) {
	if s.spare || s.making || s.closed || len(s.used) == 0 && !soon {
		return
	}
	path, open := filepath.Join(s.dir, spareFile+vfs.TempSuffix), s.files.Create
	if n := len(s.used) - 1; n >= 0 {
		path, open = s.used[n], s.files.OpenReadWrite
		s.used = s.used[:n]
	}
	full := s.full
	s.making, s.full = true, ""
	s.wg.Go(func() {
		s.uncache(full)
		err := s.makeSpare(path, open)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.making, s.spare = false, err == nil
		if err != nil {
			s.logger.Warn("the next segment of the Raft log was not prepared", logkey.Error, errors.Join(err, s.files.RemoveAll(path)))
		}
	})
}

// uncache lets go of a segment in memory, if it still has that name.
func (s *segmentFiles) uncache(path string) {
	if path == "" {
		return
	}
	if f, err := s.files.Open(path); err == nil {
		f.Uncache()
		_ = f.Close() // Nothing was written.
	}
}

func (s *segmentFiles) makeSpare(path string, open func(string) (vfs.File, error)) (err error) {
	f, err := open(path)
	if err != nil {
		return err
	}
	zeros := make([]byte, min(s.size, 1<<20))
	for at := int64(0); at < s.size && err == nil; at += int64(len(zeros)) {
		if _, err = f.WriteAt(zeros[:min(s.size-at, int64(len(zeros)))], at); err == nil {
			err = f.Sync() // All at once would hold up the syncs that writes wait for.
		}
	}
	if err == nil {
		err = f.Truncate(s.size)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return errors.Join(s.files.Rename(path, filepath.Join(s.dir, spareFile)), s.files.SyncDir(s.dir))
}

// segmentFile is the segment that is being written. The WAL writes to it, and syncs it, from one goroutine.
type segmentFile struct {
	vfs.File
	of       *segmentFiles
	unsynced bool // The folder was not synced since the file was made.
	asked    bool // for a spare to follow it
}

func (f *segmentFile) WriteAt(b []byte, at int64) (int, error) {
	if !f.asked && at+int64(len(b)) > f.of.size/2 {
		f.asked = true
		f.of.mu.Lock()
		f.of.prepare(true)
		f.of.mu.Unlock()
	}
	return f.File.WriteAt(b, at)
}

func (f *segmentFile) Sync() error {
	if err := f.File.Sync(); err != nil || !f.unsynced {
		return err
	}
	f.unsynced = false
	return f.of.files.SyncDir(f.of.dir)
}
