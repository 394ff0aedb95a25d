package raftdisk

import (
	"errors"
	"fmt"
	"slices"
)

// DeleteRange deletes entries from the front or from the end, low and high included.
func (s *segmentLog) DeleteRange(low, high uint64) error {
	if done, err := s.deleteFront(low, high); done {
		return err
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if done, err := s.deleteFront(low, high); done { // Others were stored meanwhile.
		return err
	}
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
	case low <= first:
		// In one step: what a crash left of them would not fit what comes next.
		if s.failed = s.setHead(func(h *logHead) { h.first = last + 1 }); s.failed == nil {
			s.failed = s.dropFront()
		}
	default:
		s.failed = s.deleteEnd(low)
	}
	return s.failed
}

// deleteFront deletes entries from the front, in parallel with StoreLogs, and reports whether
// nothing else is left to do.
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

// deleteEnd deletes the entries from one on that is not the first.
func (s *segmentLog) deleteEnd(low uint64) error {
	s.mu.Lock()
	at := s.at(low - 1)
	g := s.segments[at]
	s.mu.Unlock()
	kept, err := scanSegment(g.file, g.head, low-g.head.first)
	if err != nil {
		return err
	}
	if n := uint64(len(kept.offsets)); n < low-g.head.first {
		return damagedSegment(g.file, kept.end, g.head.first+n)
	}
	if err := s.mark.set(g.head.number, low-1, true); err != nil {
		return err
	}
	s.mu.Lock()
	later := s.segments[at+1:]
	s.segments = s.segments[: at+1 : at+1]
	g.found, g.last, g.cuts = kept, low-1, g.cuts+1
	for _, l := range later {
		err = errors.Join(err, l.discard())
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	// One by one: of those left after a crash none may be missing.
	for _, l := range slices.Backward(later) {
		if err := s.files.release(l.head.number); err != nil {
			return err
		}
	}
	return s.cut(g)
}

// cut writes zeros over everything after the end of the last segment. Nothing there may be taken
// for entries that were stored later. A start repeats it unless it was completed.
func (s *segmentLog) cut(g *segmentFile) error {
	if g.out == nil {
		if err := s.openOut(g); err != nil {
			return err
		}
	}
	end := g.found.end
	b, at := aligned(1<<20), end/pageSize*pageSize
	if _, err := g.file.ReadAt(b[:end-at], at); err != nil {
		return err
	}
	s.page = append(s.page[:0], b[:end-at]...)
	size, err := g.file.Size()
	if err != nil {
		return err
	}
	for size = max(size, at+1); at < size; at += int64(len(b)) {
		b = b[:min(int64(len(b)), (size-at+pageSize-1)/pageSize*pageSize)]
		if _, err := g.out.WriteAt(b, at); err != nil {
			return err
		}
		clear(b)
	}
	if err := g.out.Sync(); err != nil {
		return err
	}
	return s.mark.set(g.head.number, g.last, false)
}
