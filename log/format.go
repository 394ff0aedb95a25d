package eventlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
)

// Constants of the log's format. Do not change: every position ever handed out
// depends on them.
const (
	// ChunkSize is the length in bytes of the part of the log that one logical chunk covers.
	ChunkSize int64 = 256 << 20

	// MaxFrameBytes bounds the records of one frame, and so one Raft entry.
	MaxFrameBytes = 16 << 20

	kindRecord  = 1
	kindTrailer = 2
	kindStub    = 3 // in rewritten files only

	recordHead  = 56 // bytes before the stream name
	itemFoot    = 8  // checksum and length behind the content
	recordFixed = recordHead + itemFoot
	trailerSize = 68
	stubSize    = 64 // no more than the smallest record: a stub never reaches into what follows

	trailerCompletesChunk = 1 << 0
)

// TrailerSize is the length of what follows the records of a frame.
const TrailerSize = trailerSize

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// order is the byte order of everything on disk.
var order = binary.LittleEndian

// RecordSize returns the bytes that an event takes in the log.
func RecordSize(stream string, e *event.Proposed) int {
	return recordFixed + len(stream) + len(e.Type) + len(e.Data) + len(e.Metadata)
}

// AppendRecord appends the record of an event to dst, as it lies in the log at
// the given position:
//
//	 0  4  length of the item in bytes, this field and the last one included
//	 4  1  kind, 1
//	 5  1  0
//	 6  2  flags (event.Flags)
//	 8  8  position
//	16  8  event number
//	24  8  time, nanoseconds since 1970
//	32 16  event id
//	48  2  length of the stream name
//	50  2  length of the event type
//	52  4  length of the metadata
//	56  …  stream name, event type, data, metadata
//	 …  4  CRC-32C of all before
//	 …  4  length again, so that the log can be read backward
func AppendRecord(dst []byte, position int64, stream string, number, time int64, flags event.Flags, e *event.Proposed) []byte {
	start := len(dst)
	size := RecordSize(stream, e)
	dst = order.AppendUint32(dst, uint32(size))
	dst = append(dst, kindRecord, 0)
	dst = order.AppendUint16(dst, uint16(flags))
	dst = order.AppendUint64(dst, uint64(position))
	dst = order.AppendUint64(dst, uint64(number))
	dst = order.AppendUint64(dst, uint64(time))
	dst = append(dst, e.ID[:]...)
	dst = order.AppendUint16(dst, uint16(len(stream)))
	dst = order.AppendUint16(dst, uint16(len(e.Type)))
	dst = order.AppendUint32(dst, uint32(len(e.Metadata)))
	dst = append(dst, stream...)
	dst = append(dst, e.Type...)
	dst = append(dst, e.Data...)
	dst = append(dst, e.Metadata...)
	return closeItem(dst, start, size)
}

func closeItem(dst []byte, start, size int) []byte {
	dst = order.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
	return order.AppendUint32(dst, uint32(size))
}

// appendStub appends what is left of a record that was removed while decisions
// about writes may still depend on its id:
//
//	 0  4  length of the item, 64
//	 4  1  kind, 3
//	 5  1  0
//	 6  2  flags of the record
//	 8  8  position of the record
//	16  8  event number
//	24  8  time, nanoseconds since 1970
//	32 16  event id
//	48  8  hash of the stream name, as HashStream makes it
//	56  4  CRC-32C of all before
//	60  4  length again
func appendStub(dst []byte, record item) []byte {
	start := len(dst)
	dst = order.AppendUint32(dst, stubSize)
	dst = append(dst, kindStub, 0)
	dst = append(dst, record[6:48]...)
	dst = order.AppendUint64(dst, HashStream(asString(record.stream())))
	return closeItem(dst, start, stubSize)
}

// item is the bytes of a record, a trailer or a stub, its framing checked by parseItem.
type item []byte

func (it item) isRecord() bool   { return it[4] == kindRecord }
func (it item) isTrailer() bool  { return it[4] == kindTrailer }
func (it item) isStub() bool     { return it[4] == kindStub }
func (it item) flags() uint16    { return order.Uint16(it[6:]) }
func (it item) number() int64    { return int64(order.Uint64(it[16:])) }
func (it item) time() int64      { return int64(order.Uint64(it[24:])) }
func (it item) id() event.ID     { return event.ID(it[32:48]) }
func (it item) streamLen() int   { return int(order.Uint16(it[48:])) }
func (it item) typeLen() int     { return int(order.Uint16(it[50:])) }
func (it item) metadataLen() int { return int(order.Uint32(it[52:])) }
func (it item) stream() []byte   { return it[recordHead : recordHead+it.streamLen()] }
func (it item) content() []byte  { return it[recordHead : len(it)-itemFoot] }

// streamHash is the hash of the stream of a record or a stub.
func (it item) streamHash() uint64 {
	if it.isStub() {
		return order.Uint64(it[48:])
	}
	return HashStream(asString(it.stream()))
}

func (it item) eventType() []byte {
	at := recordHead + it.streamLen()
	return it[at : at+it.typeLen()]
}
func (it item) data() []byte {
	return it[recordHead+it.streamLen()+it.typeLen() : len(it)-itemFoot-it.metadataLen()]
}

// position returns where the item stands in the log. A trailer says where its frame begins and how long its records are.
func (it item) position() int64 {
	at := int64(order.Uint64(it[8:]))
	if it.isTrailer() {
		return at + int64(order.Uint32(it[56:]))
	}
	return at
}

// parseItem checks the item at the start of b: its length, shape and checksum.
// A reader of what was never rewritten has to refuse stubs.
func parseItem(b []byte) (item, error) {
	if len(b) < trailerSize && len(b) < recordFixed {
		return nil, fmt.Errorf("%d bytes are too few for a record", len(b))
	}
	size := int(order.Uint32(b))
	if size < recordFixed || size > len(b) {
		return nil, fmt.Errorf("length %d does not fit the %d bytes there", size, len(b))
	}
	it := item(b[:size:size])
	if order.Uint32(it[size-4:]) != uint32(size) {
		return nil, fmt.Errorf("length %d is not repeated at the end", size)
	}
	if it[5] != 0 {
		return nil, fmt.Errorf("reserved byte is %d", it[5])
	}
	switch it[4] {
	case kindRecord:
		if recordFixed+it.streamLen()+it.typeLen()+it.metadataLen() > size {
			return nil, fmt.Errorf("parts of the record are longer than its %d bytes", size)
		}
	case kindTrailer:
		if size != trailerSize {
			return nil, fmt.Errorf("trailer has %d bytes", size)
		}
	case kindStub:
		if size != stubSize {
			return nil, fmt.Errorf("stub has %d bytes", size)
		}
	default:
		return nil, fmt.Errorf("unknown kind %d", it[4])
	}
	if crc32.Checksum(it[:size-itemFoot], castagnoli) != order.Uint32(it[size-itemFoot:]) {
		return nil, fmt.Errorf("checksum of the item of %d bytes does not match", size)
	}
	return it, nil
}

// trailer closes a frame: one applied Raft entry.
type trailer struct {
	first     int64 // position of the frame's first record
	length    int   // bytes of its records
	index     uint64
	term      uint64
	time      int64 // of the frame's records
	chain     event.Chain
	completes bool // the frame is the last of its chunk
}

func (t *trailer) end() int64 { return t.first + int64(t.length) + trailerSize }

// append appends the trailer's bytes:
//
//	 0  4  length of the item, 68
//	 4  1  kind, 2
//	 5  1  0
//	 6  2  flags: 1 = the frame completes its chunk
//	 8  8  position of the frame's first record
//	16  8  Raft index
//	24  8  Raft term
//	32  8  time of the frame, nanoseconds since 1970
//	40 16  chain behind the frame
//	56  4  bytes of the frame's records
//	60  4  CRC-32C of all before
//	64  4  length again
func (t *trailer) append(dst []byte) []byte {
	start := len(dst)
	var flags uint16
	if t.completes {
		flags = trailerCompletesChunk
	}
	dst = order.AppendUint32(dst, trailerSize)
	dst = append(dst, kindTrailer, 0)
	dst = order.AppendUint16(dst, flags)
	dst = order.AppendUint64(dst, uint64(t.first))
	dst = order.AppendUint64(dst, t.index)
	dst = order.AppendUint64(dst, t.term)
	dst = order.AppendUint64(dst, uint64(t.time))
	dst = append(dst, t.chain[:]...)
	dst = order.AppendUint32(dst, uint32(t.length))
	return closeItem(dst, start, trailerSize)
}

func (it item) trailer() trailer {
	return trailer{
		first:     int64(order.Uint64(it[8:])),
		index:     order.Uint64(it[16:]),
		term:      order.Uint64(it[24:]),
		time:      int64(order.Uint64(it[32:])),
		chain:     event.Chain(it[40:56]),
		length:    int(order.Uint32(it[56:])),
		completes: it.flags()&trailerCompletesChunk != 0,
	}
}

// GenesisChain is the chain of an empty log: it differs between clusters.
func GenesisChain(cluster event.ID) event.Chain {
	return NextChain(event.Chain(cluster), -1, []byte("annals"))
}

// NextChain returns the chain behind a frame: XXH3 with 128 bits over the chain
// before it, the position of its first record and the bytes of its records.
func NextChain(before event.Chain, first int64, records []byte) event.Chain {
	var head [24]byte
	copy(head[:], before[:])
	order.PutUint64(head[16:], uint64(first))
	inner := xxh3.Hash128(records)
	var b [40]byte
	copy(b[:], head[:])
	order.PutUint64(b[24:], inner.Lo)
	order.PutUint64(b[32:], inner.Hi)
	return event.Chain(xxh3.Hash128(b[:]).Bytes())
}

// Place returns where a frame with n bytes of records begins in a log that ends
// at end: there, or at the start of the next chunk when it does not fit.
func Place(end int64, n int) int64 {
	room := ChunkSize - end%ChunkSize
	if int64(n)+trailerSize > room {
		return end + room
	}
	return end
}

// EndBehind returns the end of the log behind a frame.
func EndBehind(first int64, n int, completesChunk bool) int64 {
	end := first + int64(n) + trailerSize
	if completesChunk {
		return nextChunk(end)
	}
	return end
}

// nextChunk returns the start of the chunk that follows the one in which the log ends at end.
func nextChunk(end int64) int64 { return (end + ChunkSize - 1) / ChunkSize * ChunkSize }

func chunkNumber(position int64) int { return int(position / ChunkSize) }
func chunkStart(number int) int64    { return int64(number) * ChunkSize }

// HashStream is the hash under which the index knows a stream.
func HashStream(name string) uint64 { return xxh3.HashString(name) }

func hashMetaStream(name string) uint64 {
	var buf [256]byte
	return xxh3.Hash(append(append(buf[:0], "$$"...), name...))
}

// asString returns a string that shares the bytes of b, which must never change again.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
