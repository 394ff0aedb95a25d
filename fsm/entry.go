package fsm

import (
	"fmt"
	"hash/crc32"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// An entry is a compare-and-append: it names the end and the chain that the log
// must have, and carries the bytes to put there. Little-endian; do not change:
//
//	 0  1  version, 1
//	 1  1  flags: 1 = the frame completes its chunk
//	 2  2  0
//	 4  4  CRC-32C of bytes 8 to 47 and of bytes 0 to 3
//	 8  8  end that the log must have
//	16 16  chain that the log must have
//	32  8  position of the first record
//	40  8  end of what the leader had applied when it decided
//	48  …  records, as they will lie in the log
const (
	entryVersion   = 1
	entryHead      = 48
	entryCompletes = 1 << 0
)

type entry struct {
	completes bool
	end       int64
	chain     event.Chain
	first     int64
	applied   int64
	records   []byte
}

var order = chunkfile.Order

// seal fills in the header of an entry. Its records are in b after entryHead free bytes.
func (e *entry) seal(b []byte) {
	b[0], b[1], b[2], b[3] = entryVersion, 0, 0, 0
	if e.completes {
		b[1] = entryCompletes
	}
	order.PutUint64(b[8:], uint64(e.end))
	copy(b[16:], e.chain[:])
	order.PutUint64(b[32:], uint64(e.first))
	order.PutUint64(b[40:], uint64(e.applied))
	order.PutUint32(b[4:], headSum(b))
}

func headSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[8:entryHead], chunkfile.Castagnoli), chunkfile.Castagnoli, b[:4])
}

// parseEntry reads an entry. The records share the memory of b.
func parseEntry(b []byte) (e entry, err error) {
	if len(b) <= entryHead {
		return e, fmt.Errorf("entry of %d bytes is too short", len(b))
	}
	if b[0] != entryVersion {
		return e, fmt.Errorf("entry has version %d, this program knows %d", b[0], entryVersion)
	}
	if b[1]&^entryCompletes != 0 || b[2] != 0 || b[3] != 0 {
		return e, fmt.Errorf("entry has flags %x that this program does not know", b[1:4])
	}
	if order.Uint32(b[4:]) != headSum(b) {
		return e, fmt.Errorf("checksum of the entry's header does not match")
	}
	e = entry{
		completes: b[1]&entryCompletes != 0,
		end:       int64(order.Uint64(b[8:])),
		chain:     event.Chain(b[16:32]),
		first:     int64(order.Uint64(b[32:])),
		applied:   int64(order.Uint64(b[40:])),
		records:   b[entryHead:],
	}
	if e.end < 0 || len(e.records) > chunkfile.MaxFrameBytes || e.first != chunkfile.Place(e.end, len(e.records)) {
		return e, fmt.Errorf("frame of %d bytes at position %d does not follow a log that ends at %d", len(e.records), e.first, e.end)
	}
	if e.completes != completesChunk(e.records) {
		return e, fmt.Errorf("the header says that the frame completes its chunk: %t; the records say otherwise", e.completes)
	}
	return e, nil
}

// completesChunk reports whether a scavenge point is among the records: their frame is the last of
// its chunk. The log checks that the records are whole.
func completesChunk(records []byte) bool {
	for len(records) > chunkfile.RecordHead {
		size, it := int(order.Uint32(records)), chunkfile.Item(records)
		if size < chunkfile.RecordHead+it.StreamLen()+it.TypeLen() || size > len(records) {
			return false
		}
		if string(it.Stream()) == event.ScavengePointsStream && string(it.EventType()) == event.TypeScavengePoint {
			return true
		}
		records = records[size:]
	}
	return false
}
