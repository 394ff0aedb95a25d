package raftdisk

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

// Rewrite copies the entries after an index into a new store and deletes the old one, so that
// nothing of the others stays on disk: bbolt does not overwrite pages that it frees, and segments
// keep deleted entries. A snapshot must cover the entries up to the index.
//
// Most is copied while the store is in use. Appends and reads wait for the rest and for the
// exchange only; it returns how long. The old files are removed after that. An error before the
// exchange leaves all as it was; one during or after the exchange stops the node.
func (s *RaftLog) Rewrite(through uint64, logger hclog.Logger) (stalled time.Duration, err error) {
	if err := s.fail.Check(); err != nil {
		return 0, err
	}
	s.rewriting.Lock()
	defer s.rewriting.Unlock()
	if s.Frozen.Load() {
		through = math.MaxUint64 - 1 // It is void altogether.
	}
	s.cache.drop(0, through)
	if s.kind == memKind {
		return 0, s.deleteRange(0, through)
	}
	stalled, err = s.rewrite(through, logger)
	if err != nil {
		return stalled, err
	}
	dir := filepath.Dir(s.path)
	if err = s.files.SyncDir(dir); err == nil { // Else a power cut may leave the old log alone.
		err = errors.Join(s.files.RemoveAll(s.path+oldSuffix), s.files.SyncDir(dir))
	}
	if err != nil {
		return stalled, s.fail.Fail(fmt.Errorf("rewrite %s: %w", s.path, err))
	}
	return stalled, nil
}

func (s *RaftLog) rewrite(through uint64, logger hclog.Logger) (stalled time.Duration, err error) {
	defer func() {
		if err != nil && s.fail.Check() == nil {
			err = fmt.Errorf("rewrite %s: %w", s.path, errors.Join(err, s.files.RemoveAll(s.path+newSuffix)))
		}
	}()
	cuts := s.cuts.Load()
	fresh, err := fillNew(s.files, s.kind, s.path, shared{s}, through+1, logger)
	if err != nil {
		logger.Debug("the Raft log could not be copied while it was in use", logkey.Error, err)
	}
	begun := time.Now()
	s.mu.Lock()
	defer func() {
		s.mu.Unlock()
		stalled = time.Since(begun)
	}()
	if s.closed {
		return 0, errors.Join(event.ErrClosed, closeIf(fresh))
	}
	if fresh != nil && s.cuts.Load() == cuts {
		err = topUp(fresh, s.inner, through+1)
	} else {
		// Entries were deleted while others were copied. That is rare, and there is little to copy.
		// If it was the disk, it says so again.
		if err := closeIf(fresh); err != nil {
			return 0, err
		}
		fresh, err = fillNew(s.files, s.kind, s.path, s.inner, through+1, logger)
	}
	if err != nil {
		return 0, errors.Join(err, closeIf(fresh))
	}
	if err := fresh.Close(); err != nil {
		return 0, err
	}
	if err := s.exchange(); err != nil {
		return 0, s.fail.Fail(fmt.Errorf("rewrite %s: %w", s.path, err))
	}
	return 0, nil
}

func closeIf(store Backing) error {
	if store == nil {
		return nil
	}
	return store.Close()
}

// exchange puts X.new in the place of X. What it leaves to be done is to make
// the second renaming durable and to remove X.old: with both names there, a start
// takes X.new for the Raft log, and what was appended since is in it.
func (s *RaftLog) exchange() error {
	if err := s.inner.Close(); err != nil {
		return err
	}
	if err := s.files.Rename(s.path, s.path+oldSuffix); err != nil {
		return err
	}
	if err := s.files.SyncDir(filepath.Dir(s.path)); err != nil {
		return err
	}
	if err := s.files.Rename(s.path+newSuffix, s.path); err != nil {
		return err
	}
	inner, err := s.open(s.path)
	if err != nil {
		return err
	}
	s.inner = inner
	return nil
}

// entrySource is what a Raft log is copied from.
type entrySource interface {
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
	GetLog(index uint64, log *raft.Log) error
	Get(key []byte) ([]byte, error)
}

// shared is a Raft log that is in use while it is copied.
type shared struct{ *RaftLog }

func (h shared) GetLog(index uint64, log *raft.Log) error { return h.read(index, log) }

func (h shared) Get(key []byte) ([]byte, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.inner.Get(key)
}

// fillNew makes path.new, a complete and durable copy of the live entries from
// an index on, with the creation id, and returns it open.
func fillNew(files vfs.FS, kind *logKind, path string, src entrySource, from uint64, logger hclog.Logger) (_ Backing, err error) {
	fresh := path + newSuffix
	if err := files.RemoveAll(fresh); err != nil {
		return nil, err
	}
	defer vfs.Undo(&err, func() error { return files.RemoveAll(fresh) })
	id, err := src.Get(keyCreation)
	if err != nil {
		return nil, err
	}
	if err := kind.create(files, fresh); err != nil {
		return nil, err
	}
	dst, err := kind.open(files, fresh, logger)
	if err != nil {
		return nil, err
	}
	err = dst.Set(keyCreation, id)
	if err == nil {
		err = copyEntries(dst, src, from)
	}
	if err == nil {
		err = files.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return nil, errors.Join(err, dst.Close())
	}
	return dst, nil
}

// topUp copies what src has got since, of which nothing was deleted.
func topUp(dst Backing, src entrySource, from uint64) error {
	have, err := dst.LastIndex()
	if err != nil {
		return err
	}
	return copyEntries(dst, src, max(from, have+1))
}

// copyEntries copies the live entries of a Raft log from an index on. The target must be empty or
// end before them.
func copyEntries(dst raft.LogStore, src entrySource, from uint64) error {
	index, last, err := liveEntries(src, from)
	if err != nil {
		return err
	}
	for index <= last {
		var batch []*raft.Log
		for bytes := 0; index <= last && len(batch) < 64 && bytes < 8<<20; index++ {
			entry := new(raft.Log)
			if err := src.GetLog(index, entry); err != nil {
				return fmt.Errorf("read entry %d: %w", index, err)
			}
			batch = append(batch, entry)
			bytes += len(entry.Data)
		}
		if err := dst.StoreLogs(batch); err != nil {
			return err
		}
	}
	return nil
}

// liveEntries returns the first and the last live entry from an index on: those after the last gap,
// since raft never looks before a gap. There are none if the first is beyond the last.
func liveEntries(src entrySource, from uint64) (first, last uint64, err error) {
	if first, last, err = ends(src); err != nil {
		return 0, 0, err
	}
	if last == 0 {
		return 1, 0, nil
	}
	from = max(from, first)
	var entry raft.Log
	for index := last; index >= from; index-- {
		switch err := src.GetLog(index, &entry); {
		case errors.Is(err, raft.ErrLogNotFound):
			return index + 1, last, nil
		case err != nil:
			return 0, 0, fmt.Errorf("read entry %d: %w", index, err)
		}
	}
	return from, last, nil
}
