package raftdisk

import (
	"cmp"
	"errors"
	"io"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
)

// GetLog reads one entry. The error for a missing one is raft.ErrLogNotFound itself.
func (s *segmentLog) GetLog(index uint64, log *raft.Log) error {
	for {
		u, err := s.use(index)
		if err != nil {
			return err
		}
		if u.offsets != nil {
			err = u.read(index, log)
		} else {
			err = u.scan()
		}
		done, err := s.release(u, err)
		if done {
			return err
		}
	}
}

// segmentUse is a use of a segment by a reader, whose file stays open that long.
type segmentUse struct {
	*segmentFile
	offsets []uint32 // of its entries; nil: they are to be found
	cuts    int      // how often its end had been deleted
	entries uint64   // how many it has
	sum     uint64   // of the last one, if it is not the last segment
	found   found    // by scan
}

// use finds the segment that has an entry.
func (s *segmentLog) use(index uint64) (*segmentUse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, event.ErrClosed
	}
	if first, last := s.bounds(); index < first || index > last || last == 0 {
		return nil, raft.ErrLogNotFound
	}
	at := s.at(index)
	g := s.segments[at]
	g.readers++
	u := &segmentUse{segmentFile: g, offsets: g.found.offsets, cuts: g.cuts, entries: g.last - g.head.first + 1}
	if u.offsets == nil {
		u.sum = s.segments[at+1].head.before
	}
	return u, nil
}

// at returns the place of the segment that has an entry of the log.
func (s *segmentLog) at(index uint64) int {
	at, exact := slices.BinarySearchFunc(s.segments, index, func(g *segmentFile, index uint64) int {
		return cmp.Compare(g.head.first, index)
	})
	if !exact {
		at--
	}
	return at
}

// release ends a use, and reports whether its outcome is that of the entry. It is not if only the
// offsets were found, or if the use failed and the entries were deleted meanwhile: the file may
// hold others by now.
func (s *segmentLog) release(u *segmentUse, outcome error) (done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := u.segmentFile
	g.readers--
	if g.gone && g.readers == 0 {
		if err := g.file.Close(); err != nil {
			return true, err
		}
	}
	valid := !g.gone && g.cuts == u.cuts
	if u.offsets == nil && outcome == nil && valid {
		g.found = u.found
	}
	return u.offsets != nil && outcome == nil || outcome != nil && valid, outcome
}

// scan finds the entries of a segment that is not the last one.
func (u *segmentUse) scan() (err error) {
	if u.found, err = scanSegment(u.file, u.head, u.entries); err != nil {
		return err
	}
	if n := uint64(len(u.found.offsets)); n < u.entries || u.found.sum != u.sum {
		return damagedSegment(u.file, u.found.end, u.head.first+n)
	}
	return nil
}

// read reads an entry, and compares it with its checksum.
func (u *segmentUse) read(index uint64, log *raft.Log) error {
	g, i := u.segmentFile, index-u.head.first
	at := int64(u.offsets[i]) * entryAlign
	before := g.head.sum
	var head [entryHead]byte
	if i > 0 {
		if _, err := g.file.ReadAt(head[:8], int64(u.offsets[i-1])*entryAlign); err != nil {
			return err
		}
		before = le.Uint64(head[:])
	}
	if _, err := g.file.ReadAt(head[:], at); err != nil {
		return err
	}
	size, err := g.file.Size()
	if err != nil {
		return err
	}
	n := entryHead + entryBytes(head[:])
	if n > size-at {
		return damagedSegment(g.file, at, index)
	}
	entry := make([]byte, n)
	if _, err := g.file.ReadAt(entry, at); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if le.Uint64(entry) != entrySum(entry, before) || le.Uint64(entry[16:]) != index {
		return damagedSegment(g.file, at, index)
	}
	decodeEntry(entry, log)
	return nil
}
