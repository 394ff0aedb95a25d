package eventlog

import (
	"sync/atomic"

	"github.com/annalsdb/annals/log/chunkfile"
)

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
