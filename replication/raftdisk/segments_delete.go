package raftdisk

import (
	"errors"
	"fmt"
)

// DeleteRange deletes entries from the front or from the end, low and high included.
func (s *segmentLog) DeleteRange(low, high uint64) error {
	if done, err := s.deleteFront(low, high); done || err != nil {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.deleting.Lock()
	defer s.deleting.Unlock()
	first, last, err := s.ends()
	switch {
	case err != nil || last == 0 || low > last:
		return err
	case high < last:
		return fmt.Errorf("entries %d to %d are in the middle of the Raft log, which has %d to %d", low, high, first, last)
	case s.failed != nil:
		return s.failed
	}
	s.failed = s.deleteEnd(max(low, first), first, last)
	return s.failed
}

// deleteFront deletes entries from the front, beside StoreLogs, and reports whether that was all.
func (s *segmentLog) deleteFront(low, high uint64) (done bool, err error) {
	s.deleting.Lock()
	defer s.deleting.Unlock()
	first, last, err := s.ends()
	switch {
	case err != nil || last == 0 || high < first:
		return true, err
	case low > first || high >= last:
		return false, nil
	}
	if err := s.setHead(func(h *logHead) { h.first = high + 1 }); err != nil {
		return true, err
	}
	return true, s.dropFront()
}

// dropFront releases the segments of which all entries were deleted.
func (s *segmentLog) dropFront() error {
	s.mu.Lock()
	var numbers []uint64
	var err error
	for len(s.segments) > 0 && s.segments[0].last < s.head.first {
		numbers = append(numbers, s.segments[0].head.number)
		err = errors.Join(err, s.segments[0].discard())
		s.segments = s.segments[1:]
	}
	s.mu.Unlock()
	if err != nil || len(numbers) == 0 {
		return err
	}
	return s.files.release(numbers...)
}

func (s *segmentLog) deleteEnd(low, first, last uint64) error {
	if low == first {
		// In one step: what a crash left of them would not fit what comes next.
		if err := s.setHead(func(h *logHead) { h.first = last + 1 }); err != nil {
			return err
		}
		return s.dropFront()
	}
	for {
		s.mu.Lock()
		n := len(s.segments) - 1
		g := s.segments[n]
		if g.head.first < low {
			s.mu.Unlock()
			return s.cut(g, low)
		}
		s.segments = s.segments[:n]
		err := g.discard()
		s.mu.Unlock()
		// One by one: of those left after a crash none may be missing.
		if err = errors.Join(err, s.files.release(g.head.number)); err != nil {
			return err
		}
	}
}

// cut makes an entry of the last segment its first that is none.
func (s *segmentLog) cut(g *segmentFile, low uint64) error {
	kept, err := scanSegment(g.file, g.head, low-g.head.first)
	if err != nil {
		return err
	}
	if uint64(len(kept.offsets)) < low-g.head.first {
		return damagedSegment(g.file, kept.end, g.head.first+uint64(len(kept.offsets)))
	}
	if g.out == nil {
		if err := s.openOut(g); err != nil {
			return err
		}
	}
	at := kept.end / pageSize * pageSize
	b := aligned(pageSize)
	if _, err := g.file.ReadAt(b[:kept.end-at], at); err != nil {
		return err
	}
	if _, err := g.out.WriteAt(b, at); err != nil {
		return err
	}
	if err := g.out.Sync(); err != nil {
		return err
	}
	s.page = append(s.page[:0], b[:kept.end-at]...)
	s.mu.Lock()
	defer s.mu.Unlock()
	g.found, g.last = kept, low-1
	return nil
}
