package eventlog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// published is what readers see: the chunk files, and how far the log in them
// is applied and indexed.
type published struct {
	set   *chunkSet
	tail  event.Tail
	epoch int64 // first position of the newest term, -1 when the log is empty
}

// view is a reader's hold on a published state. It must be released.
type view struct{ *published }

func (v view) release() { v.set.release() }

// itemAt returns the item that stands at exactly a position, nil when it is gone (scavenged),
// whether or not a stub is left of it.
func (v view) itemAt(position int64, scratch *[]byte) (chunkfile.Item, error) {
	if position < 0 || position >= v.tail.End {
		return nil, nil
	}
	c := v.set.at(position)
	if c == nil {
		return nil, nil
	}
	offset := chunkfile.HeaderSize + position - c.Start()
	if c.Header.Mapped {
		var exact bool
		var err error
		if offset, exact, err = c.FindFrom(position, scratch); err != nil || !exact {
			return nil, err
		}
	}
	it, err := c.ItemAt(offset, c.DataEnd(v.tail.End), scratch)
	if err == nil && it.Position() != position {
		err = c.Corrupt(offset, "a record of position %d stands where that of %d belongs", it.Position(), position)
	}
	if err == nil && it.IsStub() {
		it = nil
	}
	return it, err
}

// cursor walks the items of a view, in one direction at a time.
type cursor struct {
	v       view
	c       *chunkfile.Chunk // nil at the end (forward) or the start (backward) of the log
	offset  int64            // in c: of the next item forward, after the next item backward
	limit   int64            // in c: after its data
	scratch []byte
}

// seekForward puts the cursor before the first item at or after a position.
func (cu *cursor) seekForward(position int64) error {
	for {
		cu.c = nil
		if position >= cu.v.tail.End {
			return nil
		}
		c := cu.v.set.at(position)
		if c == nil {
			return nil
		}
		limit := c.DataEnd(cu.v.tail.End)
		offset := chunkfile.HeaderSize + position - c.Start()
		if c.Header.Mapped {
			var err error
			if offset, _, err = c.FindFrom(position, &cu.scratch); err != nil {
				return err
			}
		}
		if offset < limit {
			cu.c, cu.offset, cu.limit = c, offset, limit
			return nil
		}
		position = chunkfile.ChunkStart(c.Header.Last + 1)
	}
}

// next returns the next item forward and its position; nil at the end of the log.
func (cu *cursor) next() (chunkfile.Item, int64, error) {
	for cu.c != nil {
		if cu.offset >= cu.limit {
			if err := cu.seekForward(chunkfile.ChunkStart(cu.c.Header.Last + 1)); err != nil {
				return nil, 0, err
			}
			continue
		}
		it, err := cu.c.ItemAt(cu.offset, cu.limit, &cu.scratch)
		if err != nil {
			return nil, 0, err
		}
		position := it.Position()
		if !cu.c.Header.Mapped && position != cu.c.Start()+cu.offset-chunkfile.HeaderSize {
			return nil, 0, cu.c.Corrupt(cu.offset, "a record of position %d stands where that of %d belongs", position, cu.c.Start()+cu.offset-chunkfile.HeaderSize)
		}
		cu.offset += int64(len(it))
		return it, position, nil
	}
	return nil, 0, nil
}

// forward yields the items at or after a position, and their positions. err gets what ends it
// before the end of the log.
func (v view) forward(position int64, err *error) iter.Seq2[chunkfile.Item, int64] {
	return func(yield func(chunkfile.Item, int64) bool) {
		cu := cursor{v: v}
		for *err = cu.seekForward(position); *err == nil; {
			var it chunkfile.Item
			if it, position, *err = cu.next(); it == nil || *err != nil || !yield(it, position) {
				return
			}
		}
	}
}

// seekBackward puts the cursor after the last item that ends at or before a position.
func (cu *cursor) seekBackward(position int64) error {
	position = min(position, cu.v.tail.End)
	for {
		cu.c = nil
		if position <= 0 {
			return nil
		}
		c := cu.v.set.at(position - 1)
		if c == nil { // The log ends before it.
			return nil
		}
		limit := c.DataEnd(cu.v.tail.End)
		offset := min(limit, chunkfile.HeaderSize+position-c.Start())
		if c.Header.Mapped {
			var err error
			if offset, _, err = c.FindFrom(position, &cu.scratch); err != nil {
				return err
			}
		}
		if offset > chunkfile.HeaderSize {
			cu.c, cu.offset, cu.limit = c, offset, limit
			return nil
		}
		position = c.Start()
	}
}

// prev returns the next item backward and its position; nil at the start of the log.
func (cu *cursor) prev() (chunkfile.Item, int64, error) {
	for cu.c != nil {
		if cu.offset <= chunkfile.HeaderSize {
			if err := cu.seekBackward(cu.c.Start()); err != nil {
				return nil, 0, err
			}
			continue
		}
		it, at, err := cu.c.ItemBefore(cu.offset, &cu.scratch)
		if err != nil {
			return nil, 0, err
		}
		position := it.Position()
		if !cu.c.Header.Mapped && position != cu.c.Start()+at-chunkfile.HeaderSize {
			return nil, 0, cu.c.Corrupt(at, "a record of position %d stands where that of %d belongs", position, cu.c.Start()+at-chunkfile.HeaderSize)
		}
		cu.offset = at
		return it, position, nil
	}
	return nil, 0, nil
}

// explain tells, of an error that a cursor met right at a position that came
// from outside, whether the position was none or the data there are damaged: it
// walks the lengths from the start of the chunk.
func (v view) explain(position int64, backward bool, err error) error {
	if !event.IsCorruption(err) {
		return err
	}
	within := position
	if backward {
		within-- // The start of a chunk is also where the one before ends.
	}
	c := v.set.at(within)
	if c == nil || c.Header.Mapped {
		return err
	}
	limit := c.DataEnd(v.tail.End)
	target := min(limit, chunkfile.HeaderSize+position-c.Start())
	if at, ok := boundary(c, target, limit); ok && at > target {
		return event.ErrBadPosition
	}
	return err
}

// boundary returns where the first item ends that does not end before an offset of a chunk that was
// not rewritten. It walks the lengths of the items, and is not ok where one cannot be one.
func boundary(c *chunkfile.Chunk, target, limit int64) (at int64, ok bool) {
	var scratch []byte
	for at = chunkfile.HeaderSize; at < target; {
		b, err := c.Bytes(at, 4, &scratch)
		if err != nil {
			return at, false
		}
		size := int64(chunkfile.Order.Uint32(b))
		if size < chunkfile.RecordFixed || size > limit-at {
			return at, false
		}
		at += size
	}
	return at, true
}

// align returns the first place at or after a position at which an item begins or ends.
func (v view) align(position int64) int64 {
	position = min(position, v.tail.End)
	c := v.set.at(position)
	if c == nil || c.Header.Mapped { // A map finds any position.
		return position
	}
	limit := c.DataEnd(v.tail.End)
	target := chunkfile.HeaderSize + position - c.Start()
	if target >= limit {
		return position
	}
	if at, ok := boundary(c, target, limit); ok {
		return position + at - target
	}
	return position // What is damaged there says so.
}

// chunkSet is an immutable choice of chunk files that covers the log without
// gaps. It is released when neither the log nor a reader holds it any more.
type chunkSet struct {
	chunks   []*chunkfile.Chunk // by first chunk number
	byNumber []*chunkfile.Chunk // by logical chunk number
	refs     atomic.Int32
	released func(error) // gets what closing the chunks of the set said
}

// newChunkSet returns a set with one reference, its maker's.
func newChunkSet(chunks []*chunkfile.Chunk, released func(error)) *chunkSet {
	s := &chunkSet{chunks: chunks, released: released}
	s.refs.Store(1)
	for _, c := range chunks {
		c.Retain()
		for n := c.Header.First; n <= c.Header.Last; n++ {
			s.byNumber = append(s.byNumber, c)
		}
	}
	return s
}

// acquire takes a reference unless the set is gone already.
func (s *chunkSet) acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *chunkSet) release() {
	if s == nil || s.refs.Add(-1) > 0 {
		return
	}
	if err := chunkfile.ReleaseAll(s.chunks); err != nil {
		s.released(err)
	}
}

// at returns the chunk that covers a position, nil when there is none.
func (s *chunkSet) at(position int64) *chunkfile.Chunk {
	n := chunkfile.ChunkNumber(position)
	if n < 0 || n >= len(s.byNumber) {
		return nil
	}
	return s.byNumber[n]
}

// ChainAt returns the chain of the log at a position at which a frame ends; ok is false where none
// does. A frame that completes its chunk ends both after its trailer and at the start of the next
// chunk. Elsewhere in the void after the last frame of a chunk, and inside an item, nothing ends.
// An error says that the data there cannot be read: it is then not known whether a frame ends
// there.
func (s *state) ChainAt(position int64) (chain event.Chain, ok bool, err error) {
	err = s.read(func(v view) error {
		t, err := v.frameEndingAt(position, s.cluster)
		if ok = t != nil; ok {
			chain = t.Chain
		}
		return err
	})
	return chain, ok, err
}

// frameEndingAt returns the trailer of the frame that ends at a position, as ChainAt
// understands it; nil when none does. At 0 the chain is that of the empty log.
func (v view) frameEndingAt(position int64, cluster event.ID) (_ *chunkfile.Trailer, err error) {
	defer chunkfile.GuardFaults(&err)()
	switch {
	case position < 0 || position > v.tail.End:
		return nil, nil
	case position == 0:
		return &chunkfile.Trailer{Chain: chunkfile.GenesisChain(cluster)}, nil
	case position == v.tail.End:
		return &chunkfile.Trailer{Index: v.tail.Index, Term: v.tail.Term, Time: v.tail.Time, Chain: v.tail.Chain}, nil
	}
	t, end, err := v.frameBefore(position)
	if err != nil {
		err = v.explain(position, true, err)
		if errors.Is(err, event.ErrBadPosition) {
			return nil, nil
		}
		return nil, fmt.Errorf("frame that ends at %d: %w", position, err)
	}
	if t != nil && (end == position || t.Completes && chunkfile.NextChunk(end) == position) {
		return t, nil
	}
	return nil, nil
}

// tailBefore returns the tail of a log that ends with the last frame that ends
// at or before a position.
func (v view) tailBefore(position int64, cluster event.ID) (event.Tail, error) {
	t, end, err := v.frameBefore(position)
	if err != nil || t == nil {
		return event.Tail{Chain: chunkfile.GenesisChain(cluster)}, err
	}
	if t.Completes {
		end = chunkfile.NextChunk(end)
	}
	return event.Tail{End: end, Chain: t.Chain, Index: t.Index, Term: t.Term, Time: t.Time}, nil
}

// frameBefore returns the trailer of the last frame that ends at or before a position, and where it
// ends.
func (v view) frameBefore(position int64) (_ *chunkfile.Trailer, end int64, err error) {
	defer chunkfile.GuardFaults(&err)()
	cu := cursor{v: v}
	if err := cu.seekBackward(position); err != nil {
		return nil, 0, err
	}
	for {
		it, _, err := cu.prev()
		if err != nil || it == nil {
			return nil, 0, err
		}
		if it.IsTrailer() {
			t := it.Trailer()
			return &t, t.End(), nil
		}
	}
}

// Snapshot says what the log holds, for a Raft snapshot. Call Sync before relying on it.
func (l *Log) Snapshot() (m event.Snapshot, err error) {
	err = l.read(func(v view) error {
		m.Tail = v.tail
		for _, c := range v.set.chunks {
			if c.Complete {
				m.Chunks = append(m.Chunks, event.SnapshotChunk{
					First: c.Header.First, Last: c.Header.Last, Version: c.Version, Checksum: hex.EncodeToString(c.Footer.Checksum[:]),
				})
			}
		}
		return nil
	})
	return m, err
}
