package index

import (
	"math"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// blockSums tells which blocks of a file were compared with their checksums. A block is when it is read for
// the first time, so that opening a file does not cost reading all of it. Once the index is known to be
// damaged that is not enough: what was right may have changed behind it, and each lookup compares what it reads.
type blockSums struct {
	sums  []byte          // xxh3 of each block
	known []atomic.Uint64 // one bit a block: it is what was written
}

func newBlockSums(sums []byte) blockSums {
	return blockSums{sums: sums, known: make([]atomic.Uint64, (len(sums)/sumSize+63)/64)}
}

// noBlockSums is for a file that is compared as a whole, or not at all.
func noBlockSums(blocks int64) blockSums {
	s := blockSums{known: make([]atomic.Uint64, (blocks+63)/64)}
	for i := range s.known {
		s.known[i].Store(math.MaxUint64)
	}
	return s
}

func isKnown(known []atomic.Uint64, block uint64) bool {
	return known != nil && known[block>>6].Load()&(1<<(block&63)) != 0
}

func (s *blockSums) setKnown(block uint64) { s.known[block>>6].Or(1 << (block & 63)) }

// matches reports whether the bytes given are those of a block as it was written.
func (s *blockSums) matches(block uint64, data []byte) bool {
	return xxh3.Hash(data) == le.Uint64(s.sums[block*sumSize:])
}
