package eventlog

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// Span is a range of positions, its end not included.
type Span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

func (s Span) String() string { return fmt.Sprintf("%d to %d", s.From, s.To) }

// Anchor is the end of a frame and the chain there.
type Anchor struct {
	End   int64       `json:"end"`
	Chain event.Chain `json:"chain"`
}

// pageSize is what a disk fails to read at once, at least.
const pageSize = 4096

// salvage walks through the items of a chunk file of which parts may be damaged. An item is whole
// if its checksum is right and it stands where it can: at its position in a file as written, where
// the position map has it in a rewritten one. After damage it finds the next whole item.
type salvage struct {
	c             *chunkfile.Chunk
	offset, limit int64
	free          int64 // no item begins before this position any more
	lost          bool  // since the last whole item
	guided        bool  // the position map is in order
	scratch, head []byte
}

// salvaging begins a walk. end is that of the log.
func salvaging(c *chunkfile.Chunk, end int64) *salvage {
	s := &salvage{c: c, offset: chunkfile.HeaderSize, limit: c.DataEnd(end), free: c.Start()}
	s.guided = c.Header.Mapped && mapInOrder(c)
	return s
}

// mapInOrder reports whether a position map can be what was written. Where items cannot be read it
// must at least rise.
func mapInOrder(c *chunkfile.Chunk) (ok bool) {
	var err error
	defer func() { ok = ok && err == nil }()
	defer chunkfile.GuardFaults(&err)()
	var scratch, entry []byte
	limit := chunkfile.HeaderSize + c.Footer.DataSize
	// Where the next item stands, at least or exactly.
	last, next, exact := int64(-1), int64(chunkfile.HeaderSize), true
	for i := range c.MapEntries() {
		position, offset, err := c.MapEntry(i, &entry)
		if err != nil || position <= last || offset < next || exact && offset != next || offset >= limit {
			return false
		}
		last, next, exact = position, offset+1, false
		it, err := c.ItemAt(offset, limit, &scratch)
		if err != nil {
			continue
		}
		if it.Position() != position {
			return false
		}
		next, exact = offset+int64(len(it)), true
	}
	return !exact || next == limit
}

// next returns the next whole item, nil at the end, and whether something is damaged
// between it and the one before. It is good until the next call.
func (s *salvage) next() (it chunkfile.Item, position int64, gap bool) {
	for s.offset < s.limit {
		it, err := s.look()
		switch {
		case err == nil && it != nil:
			gap, s.lost = s.lost, false
			position = it.Position()
			s.offset += int64(len(it))
			s.free = position + int64(len(it))
			return it, position, gap
		case err != nil: // The disk does not give these bytes.
			s.offset = s.behindFault(err)
		}
		s.lost = true
	}
	gap, s.lost = s.lost, false
	return nil, 0, gap
}

// look returns the item at the offset if it is whole, else it moves the offset to where one may be.
func (s *salvage) look() (it chunkfile.Item, err error) {
	defer chunkfile.GuardFaults(&err)()
	if s.may(s.offset) {
		it, err := s.c.ItemAt(s.offset, s.limit, &s.scratch)
		if err == nil && s.fits(it) {
			return it, nil
		}
		if err != nil && !event.IsCorruption(err) {
			return nil, err
		}
	}
	if s.guided {
		s.offset = s.nextInMap()
		return nil, nil
	}
	for s.offset++; s.offset < s.limit && !s.may(s.offset); s.offset++ {
	}
	return nil, nil
}

// may reports whether the bytes at an offset look like an item, at little cost.
func (s *salvage) may(offset int64) bool {
	if s.limit-offset < chunkfile.RecordFixed {
		return false
	}
	b, err := s.c.Bytes(offset, 8, &s.head)
	if err != nil || b[4] < chunkfile.KindRecord || b[4] > chunkfile.KindStub || b[5] != 0 {
		return false
	}
	size := int64(chunkfile.Order.Uint32(b))
	if size < chunkfile.RecordFixed || size > s.limit-offset {
		return false
	}
	b, err = s.c.Bytes(offset+size-4, 4, &s.head)
	return err == nil && int64(chunkfile.Order.Uint32(b)) == size
}

// fits reports whether an item can stand at the offset.
func (s *salvage) fits(it chunkfile.Item) bool {
	position := it.Position()
	if !s.c.Header.Mapped {
		return it.Written(s.c.Start()+s.offset-chunkfile.HeaderSize) == nil
	}
	if position < s.free || s.c.Complete && position+int64(len(it)) > s.c.Footer.End {
		return false
	}
	if !s.guided {
		return true
	}
	i := s.inMap(s.offset)
	if i == s.c.MapEntries() {
		return false
	}
	at, offset, err := s.c.MapEntry(i, &s.head)
	return err == nil && at == position && offset == s.offset
}

// inMap is the first entry of the position map that is at or after an offset.
func (s *salvage) inMap(offset int64) int {
	return sort.Search(s.c.MapEntries(), func(i int) bool {
		_, at, err := s.c.MapEntry(i, &s.head)
		return err != nil || at >= offset
	})
}

func (s *salvage) nextInMap() int64 {
	if i := s.inMap(s.offset + 1); i < s.c.MapEntries() {
		if _, at, err := s.c.MapEntry(i, &s.head); err == nil {
			return at
		}
	}
	return s.limit
}

// behindFault is where to continue after bytes that could not be read.
func (s *salvage) behindFault(err error) int64 {
	at := s.offset
	if fault, ok := errors.AsType[*chunkfile.Fault](err); ok && s.c.Mapped != nil {
		if from := int64(fault.Addr - uintptr(unsafe.Pointer(unsafe.SliceData(s.c.Mapped)))); from >= at && from < s.limit {
			at = from
		}
	}
	return (at/pageSize + 1) * pageSize
}

// holesOf are the positions of which a complete chunk file does not tell what is there, and what it
// has whole.
func holesOf(c *chunkfile.Chunk) (holes []Span, records, stubs int) {
	s := salvaging(c, c.Footer.End)
	for before := c.Start(); ; {
		it, position, gap := s.next()
		if it == nil {
			position = c.Footer.End
		}
		if gap && position > before {
			holes = append(holes, Span{before, position})
		}
		switch {
		case it == nil:
			return holes, records, stubs
		case it.IsRecord():
			records++
		case it.IsStub():
			stubs++
		}
		before = position + int64(len(it))
	}
}

// Salvage sends what this log has of ranges of positions, rising, for a node whose copy is damaged
// there. Each call of send says that within a span the ranges hold these items and no others; what
// this log cannot tell for damage of its own is in no span. The chain at one of the anchors proves
// that both logs are the same up to there: an event.OtherHistory says that they are not. raw is
// good until send returns.
func (tr *Transfer) Salvage(ranges []Span, anchors []Anchor, send func(s Span, raw []byte) error) (err error) {
	v, err := tr.view()
	if err != nil {
		return err
	}
	defer v.release()
	if err := tr.sameHistory(v, anchors); err != nil {
		return err
	}
	if len(ranges) == 0 || !slices.IsSortedFunc(ranges, func(a, b Span) int { return cmp.Compare(a.To, b.From) }) {
		return errors.New("no ranges, or not in order")
	}
	for _, c := range v.set.chunks {
		if c.Start() >= ranges[len(ranges)-1].To || chunkfile.ChunkStart(c.Header.Last+1) <= ranges[0].From {
			continue
		}
		if err := sendWhole(c, v.tail.End, ranges, send); err != nil {
			return err
		}
	}
	return nil
}

// sameHistory checks that the log has the chain of the first of some anchors that it can judge.
func (tr *Transfer) sameHistory(v view, anchors []Anchor) error {
	err := errors.New("no anchors")
	for _, a := range anchors {
		if err = tr.sameUpTo(v, a.End, a.Chain); err == nil || errors.Is(err, event.ErrOtherHistory) {
			break
		}
	}
	return err
}

// sameUpTo checks that the frame that ends at a position has a chain. The footer of a file that
// ends there tells, also when the frame is damaged.
func (tr *Transfer) sameUpTo(v view, end int64, chain event.Chain) error {
	if end <= 0 || end > v.tail.End {
		return fmt.Errorf("salvage up to %d: %w", end, event.ErrBeyondEnd)
	}
	if c := v.set.at(end - 1); c != nil && c.Complete && c.Footer.End == end {
		if c.Footer.Chain != chain {
			return &event.OtherHistory{Position: end}
		}
		return nil
	}
	t, err := v.frameEndingAt(end, tr.cluster)
	if err != nil {
		return err
	}
	if t == nil || t.Chain != chain {
		return &event.OtherHistory{Position: end}
	}
	return nil
}

// sendWhole sends the whole items of one chunk file that lie in ranges.
func sendWhole(c *chunkfile.Chunk, end int64, ranges []Span, send func(s Span, raw []byte) error) (err error) {
	defer chunkfile.GuardFaults(&err)()
	s := salvaging(c, end)
	var raw []byte
	at, before := c.Start(), c.Start() // of the span at hand; after the last item
	flush := func(to int64) error {
		defer func() { raw = raw[:0] }()
		if to <= at || to <= ranges[0].From || at >= ranges[len(ranges)-1].To {
			return nil
		}
		return send(Span{at, to}, raw)
	}
	for {
		it, position, gap := s.next()
		switch {
		case gap:
			if err := flush(before); err != nil {
				return err
			}
			if at = position; it == nil {
				return nil
			}
		case it == nil:
			return flush(max(before, min(end, chunkfile.ChunkStart(c.Header.Last+1))))
		case len(raw) > 0 && len(raw)+len(it) > DefaultBlockBytes:
			if err := flush(position); err != nil {
				return err
			}
			at = position
		}
		i := sort.Search(len(ranges), func(i int) bool { return ranges[i].To > position })
		if i < len(ranges) && position >= ranges[i].From {
			raw = append(raw, it...)
		}
		before = position + int64(len(it))
	}
}
