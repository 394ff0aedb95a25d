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
	g, offsets, err := s.hold(index)
	if err != nil {
		return err
	}
	err = g.read(index, offsets, log)
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.release(err)
}

// release ends a use of a segment's file, which ended with an error. That of one that is gone says nothing: the file may hold something else by now.
func (g *segmentFile) release(err error) error {
	g.readers--
	if !g.gone {
		return err
	}
	if g.readers == 0 {
		if err := g.file.Close(); err != nil {
			return err
		}
	}
	if err != nil {
		return raft.ErrLogNotFound
	}
	return nil
}

// hold finds the segment that has an entry, and keeps its file open. Where the entries are it
// reads if that is not known.
func (s *segmentLog) hold(index uint64) (*segmentFile, []uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, event.ErrClosed
	}
	if first, last := s.bounds(); index < first || index > last || last == 0 {
		return nil, nil, raft.ErrLogNotFound
	}
	at, exact := slices.BinarySearchFunc(s.segments, index, func(g *segmentFile, index uint64) int {
		return cmp.Compare(g.head.first, index)
	})
	if !exact {
		at--
	}
	g := s.segments[at]
	g.readers++
	if g.found.offsets != nil {
		return g, g.found.offsets, nil
	}
	most, want := g.last-g.head.first+1, s.segments[at+1].head.before
	s.mu.Unlock()
	found, err := scanSegment(g.file, g.head, most)
	s.mu.Lock()
	if err == nil && (uint64(len(found.offsets)) < most || found.sum != want) {
		err = damagedSegment(g.file, found.end, g.head.first+uint64(len(found.offsets)))
	}
	if err != nil {
		return nil, nil, g.release(err)
	}
	g.found = found
	return g, found.offsets, nil
}

// read reads an entry, and compares it with its checksum.
func (g *segmentFile) read(index uint64, offsets []uint32, log *raft.Log) error {
	i := index - g.head.first
	at := int64(offsets[i]) * entryAlign
	before := g.head.sum
	var head [entryHead]byte
	if i > 0 {
		if _, err := g.file.ReadAt(head[:8], int64(offsets[i-1])*entryAlign); err != nil {
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
