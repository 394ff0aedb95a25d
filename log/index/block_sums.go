package index

import (
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// blockSums knows what the blocks of a mapped file must be. A block is compared with the checksum
// that the file has of it when it is read for the first time, so that opening a file does not cost
// reading all of it. What was right then may change: the system drops pages of a mapping and reads
// them again. So each part of the block is given a checksum in memory, and is compared with it
// again: each time by a lookup that must be certain, by others when it was not for a while (see
// forget).
type blockSums struct {
	sums  []byte          // xxh3 of each block, as the file has them
	block uint64          // bytes of a block
	part  uint64          // bytes of a part
	parts []atomic.Uint32 // checksum of each part of blocks that were compared; 0: it was not
	known []atomic.Uint64 // one bit a part: it was compared lately
}

// newBlockSums is for so many bytes in blocks.
func newBlockSums(sums []byte, bytes, block, part uint64) blockSums {
	parts := (bytes + part - 1) / part
	return blockSums{sums: sums, block: block, part: part, parts: make([]atomic.Uint32, parts), known: make([]atomic.Uint64, (parts+63)/64)}
}

func isKnown(known []atomic.Uint64, part uint64) bool {
	return known != nil && known[part>>6].Load()&(1<<(part&63)) != 0
}

// partSum is never 0.
func partSum(data []byte) uint32 { return uint32(xxh3.Hash(data)) | 1 }

// compare reports whether a part of the data is what was written.
func (s *blockSums) compare(part uint64, data []byte) bool {
	at := part * s.part
	if is := s.parts[part].Load(); is != 0 {
		if partSum(data[at:min(at+s.part, uint64(len(data)))]) != is {
			return false
		}
		// Readers share the word: it is not written without need.
		if !isKnown(s.known, part) {
			s.known[part>>6].Or(1 << (part & 63))
		}
		return true
	}
	first := at / s.block * s.block
	block := data[first:min(first+s.block, uint64(len(data)))]
	if !s.matches(at/s.block, block) {
		return false
	}
	s.take(first/s.part, block)
	return true
}

// matches reports whether the bytes given are those of a block as it was written.
func (s *blockSums) matches(block uint64, data []byte) bool {
	return xxh3.Hash(data) == le.Uint64(s.sums[block*sumSize:])
}

// take takes the checksums of parts, from one on, that are known to be what was written.
func (s *blockSums) take(part uint64, data []byte) {
	for ; len(data) > 0; part++ {
		n := min(s.part, uint64(len(data)))
		s.parts[part].Store(partSum(data[:n]))
		s.known[part>>6].Or(1 << (part & 63))
		data = data[n:]
	}
}

// forget has everything compared again by who reads it next.
func (s *blockSums) forget() {
	for i := range s.known {
		s.known[i].Store(0)
	}
}
