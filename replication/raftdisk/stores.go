package raftdisk

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/internal/vfs"
)

// FailStop is shared by all stores of a node. The first write or sync that fails ends the node:
// raft itself would step down and continue, and a disk that lost a write once must never be asked
// to sync it again.
type FailStop struct {
	err     atomic.Pointer[error]
	OnFatal func(error)
	Disk    *hang.Watch // of operations that raft's own goroutine waits for
}

// Check returns the error that stopped the node, if one did.
func (f *FailStop) Check() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Fail records the first error, reports it before it returns, and returns the first error ever
// after.
func (f *FailStop) Fail(err error) error {
	if f.err.CompareAndSwap(nil, &err) {
		f.OnFatal(err)
	}
	return *f.err.Load()
}

// Backing is one kind of Raft log on disk or in memory. Set and Get hold
// the creation id that ties it to the other parts.
type Backing interface {
	raft.LogStore
	Set(key, value []byte) error
	Get(key []byte) ([]byte, error)
	Close() error
}

// RaftLog is the Raft log as raft sees it.
//
// It stops the node on the first failed write, deletes in slices, keeps recent
// entries in memory, and can be rewritten into a fresh file.
//
// raft's stores and reads are watched: a leader whose disk hangs keeps sending heartbeats from
// other goroutines, and checks its lease on the goroutine that hangs. Waiting for the lock of the
// log counts too: its holder may hang.
type RaftLog struct {
	kind    *logKind
	files   vfs.FS
	path    string
	fail    *FailStop
	cache   *entryCache
	sizes   *entrySizes
	Flushes *FlushMeter // nil: not measured
	// Storing is called before entries are stored, which may fail then: it ends the node. It must
	// not block, nor change them.
	Storing func([]*raft.Log)
	// Stored is called after entries were stored, with the bytes they carry. It must not block.
	Stored func(entries, bytes int)
	open   func(path string) (Backing, error) // a backing of this kind: Rewrite needs it

	storing, reading hang.Op

	// Covered is the newest snapshot: its last entry may be gone while later ones are there, and
	// raft asks for its term. nil: there is none.
	Covered func() (index, term uint64)

	// mu is held for reading by each operation, although that does I/O: bbolt and
	// segments order readers and writers themselves. It is held for writing only
	// while Rewrite or Close exchanges the backing under everybody's feet.
	mu     sync.RWMutex
	inner  Backing
	closed bool
	cuts   atomic.Uint64 // deletions; raised within mu, after each

	rewriting sync.Mutex // held by Rewrite; mu nests in it

	// Frozen: the log's entries are void, and raft is about to be restarted on an empty log.
	Frozen atomic.Bool
	// Needed is the first entry that another node needs to catch up; 0: there is none. raft counts
	// what it keeps from the end, which moves, so its setting cannot be exact.
	Needed atomic.Uint64
	// Full: the disk has no room for entries with data. What raft needs for itself still goes.
	Full atomic.Bool
	// owed: raft has deleted the end, and stores next what takes its place. Its own goroutine does
	// both.
	owed bool
}

func newRaftLog(kind *logKind, files vfs.FS, path string, inner Backing, fail *FailStop, sizes *entrySizes) *RaftLog {
	return &RaftLog{
		kind: kind, files: files, path: path, inner: inner, fail: fail, sizes: sizes, cache: &entryCache{},
		storing: hang.Op{Doing: "store entries", File: path}, reading: hang.Op{Doing: "read entries", File: path},
	}
}

var (
	errFull   = errors.New("the disk is nearly full: no entries are taken")
	errFrozen = errors.New("the Raft log takes nothing until raft is restarted")
	errStale  = errors.New("the Raft log goes beyond this snapshot")
)

// conflicts reports whether the log holds entries beyond a snapshot that are of
// another history. Entries of the same history mean that the snapshot is stale.
func (s *RaftLog) conflicts(meta *raft.SnapshotMeta) (bool, error) {
	if meta == nil {
		return false, nil
	}
	last, err := s.LastIndex()
	if err != nil || last <= meta.Index {
		return false, err
	}
	same, err := s.has(meta.Index, meta.Term)
	if err == nil && same {
		err = fmt.Errorf("snapshot of index %d and term %d: %w, to %d", meta.Index, meta.Term, errStale, last)
	}
	return !same, err
}

// has reports whether the log, which goes beyond an entry, has it or had it: what was removed from
// the front was committed.
func (s *RaftLog) has(index, term uint64) (bool, error) {
	var entry raft.Log
	err := s.GetLog(index, &entry)
	if errors.Is(err, raft.ErrLogNotFound) {
		return true, nil
	}
	return err == nil && entry.Term == term, err
}

// Holds reports whether this node has what a snapshot of a leader covers, and more: such a
// snapshot is not restored. The entries it covers are committed, so that it holds them for good.
func (s *RaftLog) Holds(index, term uint64) bool {
	last, err := s.LastIndex()
	if err != nil || last <= index || s.Frozen.Load() {
		return false
	}
	same, err := s.has(index, term)
	return err == nil && same
}

var (
	_ raft.LogStore          = (*RaftLog)(nil)
	_ raft.MonotonicLogStore = (*RaftLog)(nil)
)

// IsMonotonic has raft empty the log when it has installed a snapshot, whatever the store could do.
// Older entries would leave a gap up to the snapshot. Entries before a gap may be of another
// history, and as a leader the node would send them.
func (s *RaftLog) IsMonotonic() bool { return true }

func (s *RaftLog) FirstIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.inner.FirstIndex()
}

func (s *RaftLog) LastIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.inner.LastIndex()
}

// ends are the first and the last entry of a Raft log.
func ends(of interface {
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
}) (first, last uint64, err error) {
	if first, err = of.FirstIndex(); err == nil {
		last, err = of.LastIndex()
	}
	return first, last, err
}

// GetLog reads one entry. The error for a missing one is raft.ErrLogNotFound itself, which raft
// compares.
//
// The index and term of the newest snapshot's last entry are known even if the entry was deleted. A
// follower needs them to take the next entries. A leader never sends that entry: the entries before
// it are gone too, so it sends a snapshot instead.
func (s *RaftLog) GetLog(index uint64, log *raft.Log) error {
	defer s.fail.Disk.End(s.fail.Disk.Begin(&s.reading))
	err := s.read(index, log)
	if err == raft.ErrLogNotFound && s.Covered != nil {
		if last, term := s.Covered(); index == last && index > 0 {
			*log = raft.Log{Index: index, Term: term, Type: raft.LogNoop}
			return nil
		}
	}
	return err
}

// read reads one entry that is there.
func (s *RaftLog) read(index uint64, log *raft.Log) error {
	if s.cache.get(index, log) {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.inner.GetLog(index, log)
}

func (s *RaftLog) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

func (s *RaftLog) StoreLogs(logs []*raft.Log) error {
	defer s.fail.Disk.End(s.fail.Disk.Begin(&s.storing))
	if err := s.fail.Check(); err != nil {
		return err
	}
	if s.Frozen.Load() {
		return errFrozen
	}
	if s.Full.Load() && !s.owed && slices.ContainsFunc(logs, func(l *raft.Log) bool { return l.Type == raft.LogCommand }) {
		return errFull
	}
	s.owed = false
	if s.Storing != nil {
		s.Storing(logs)
	}
	begun := time.Now()
	s.mu.RLock()
	err := s.inner.StoreLogs(logs)
	s.mu.RUnlock()
	took := time.Since(begun)
	if err != nil {
		return s.fail.Fail(fmt.Errorf("store entries in %s: %w", s.path, err))
	}
	s.cache.put(logs)
	bytes := s.sizes.put(logs)
	s.Flushes.note(bytes, took)
	if s.Stored != nil {
		s.Stored(len(logs), bytes)
	}
	return nil
}

// DeleteRange deletes the entries from low to high, both included.
//
// In bbolt one large deletion would hold up appends for seconds. It runs in
// slices there: appends go in between, and a crash in the middle leaves fewer
// entries deleted. The order of the slices keeps the rest without a gap: from
// the front when the head is cut, from the back when the tail is.
//
// While the disk is full the end stays. raft deletes it to store other entries in its place. When
// those are refused, raft continues to count from the entry that is gone, and takes nothing any
// more from a leader that has others.
func (s *RaftLog) DeleteRange(low, high uint64) error {
	if err := s.fail.Check(); err != nil {
		return err
	}
	if s.Frozen.Load() {
		return errFrozen
	}
	end, err := s.isEnd(low, high)
	if err != nil {
		return err
	}
	if end && s.Full.Load() {
		return errFull
	}
	if high, err = s.spare(low, high); err != nil || high < low {
		return err
	}
	s.cache.drop(low, high)
	if err := s.deleteRange(low, high); err != nil {
		return s.fail.Fail(fmt.Errorf("delete entries from %s: %w", s.path, err))
	}
	if end {
		s.owed = true // The disk may be full by the time that they come.
	}
	return nil
}

// isEnd reports whether a range is the end of the log, and no snapshot takes the place of its
// entries.
func (s *RaftLog) isEnd(low, high uint64) (bool, error) {
	first, last, err := ends(s)
	if err != nil || last == 0 || low > last || high < last {
		return false, err
	}
	covered := uint64(0)
	if s.Covered != nil {
		covered, _ = s.Covered()
	}
	return first < low || covered < last, nil
}

// spare returns up to where a range may be deleted. What is cut off the front ends
// before what another node needs, and the entry before that, whose term belongs to it. Deleting the
// end, or everything, is never about that.
func (s *RaftLog) spare(low, high uint64) (uint64, error) {
	needed := s.Needed.Load()
	if needed == 0 || high+1 < needed {
		return high, nil
	}
	first, last, err := ends(s)
	if err != nil || low > first || high >= last {
		return high, err
	}
	return max(needed, 2) - 2, nil
}

func (s *RaftLog) deleteRange(low, high uint64) error {
	if s.kind.deleteSlice == 0 {
		return s.deleteSlice(low, high)
	}
	first, last, err := ends(s)
	if err != nil {
		return err
	}
	low, high = max(low, first), min(high, last)
	fromBack := low > first
	for first != 0 && low <= high {
		from, to := low, high
		if high-low >= s.kind.deleteSlice {
			if fromBack {
				from = high - s.kind.deleteSlice + 1
			} else {
				to = low + s.kind.deleteSlice - 1
			}
		}
		if err := s.deleteSlice(from, to); err != nil {
			return err
		}
		if fromBack {
			high = from - 1
		} else {
			low = to + 1
		}
	}
	return nil
}

func (s *RaftLog) deleteSlice(low, high uint64) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	defer s.cuts.Add(1)
	return s.inner.DeleteRange(low, high)
}

// Wrap puts something between the Raft log and its disk.
func (s *RaftLog) Wrap(wrap func(Backing) Backing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inner = wrap(s.inner)
}

// Trailing returns how many of the newest entries carry at most so many bytes together.
func (s *RaftLog) Trailing(last uint64, maxBytes int64) uint64 {
	return s.sizes.trailing(last, maxBytes)
}

// Close closes the backing. Nothing may be asked of the store afterwards.
func (s *RaftLog) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if err := s.inner.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.path, err)
	}
	return nil
}
