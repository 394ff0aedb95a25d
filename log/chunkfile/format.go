package chunkfile

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

	KindRecord  = 1
	KindTrailer = 2
	KindStub    = 3 // in rewritten files only

	RecordHead  = 56 // bytes before the stream name
	ItemFoot    = 8  // checksum and length after the content
	RecordFixed = RecordHead + ItemFoot
	TrailerSize = 68
	StubSize    = 64 // no more than the smallest record: a stub never reaches into what follows

	TrailerCompletesChunk = 1 << 0
)

var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Order is the byte order of everything on disk.
var Order = binary.LittleEndian

// RecordSize returns the bytes that an event takes in the log.
func RecordSize(stream string, e *event.Proposed) int {
	return RecordFixed + len(stream) + len(e.Type) + len(e.Data) + len(e.Metadata)
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
	dst = Order.AppendUint32(dst, uint32(size))
	dst = append(dst, KindRecord, 0)
	dst = Order.AppendUint16(dst, uint16(flags))
	dst = Order.AppendUint64(dst, uint64(position))
	dst = Order.AppendUint64(dst, uint64(number))
	dst = Order.AppendUint64(dst, uint64(time))
	dst = append(dst, e.ID[:]...)
	dst = Order.AppendUint16(dst, uint16(len(stream)))
	dst = Order.AppendUint16(dst, uint16(len(e.Type)))
	dst = Order.AppendUint32(dst, uint32(len(e.Metadata)))
	dst = append(dst, stream...)
	dst = append(dst, e.Type...)
	dst = append(dst, e.Data...)
	dst = append(dst, e.Metadata...)
	return CloseItem(dst, start, size)
}

func CloseItem(dst []byte, start, size int) []byte {
	dst = Order.AppendUint32(dst, crc32.Checksum(dst[start:], Castagnoli))
	return Order.AppendUint32(dst, uint32(size))
}

// AppendStub appends what is left of a record that was removed while decisions
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
func AppendStub(dst []byte, record Item) []byte {
	start := len(dst)
	dst = Order.AppendUint32(dst, StubSize)
	dst = append(dst, KindStub, 0)
	dst = append(dst, record[6:48]...)
	dst = Order.AppendUint64(dst, HashStream(String(record.Stream())))
	return CloseItem(dst, start, StubSize)
}

// Item is the bytes of a record, a trailer or a stub, its framing checked by ParseItem.
type Item []byte

func (it Item) IsRecord() bool   { return it[4] == KindRecord }
func (it Item) IsTrailer() bool  { return it[4] == KindTrailer }
func (it Item) IsStub() bool     { return it[4] == KindStub }
func (it Item) Flags() uint16    { return Order.Uint16(it[6:]) }
func (it Item) Number() int64    { return int64(Order.Uint64(it[16:])) }
func (it Item) Time() int64      { return int64(Order.Uint64(it[24:])) }
func (it Item) Id() event.ID     { return event.ID(it[32:48]) }
func (it Item) StreamLen() int   { return int(Order.Uint16(it[48:])) }
func (it Item) TypeLen() int     { return int(Order.Uint16(it[50:])) }
func (it Item) MetadataLen() int { return int(Order.Uint32(it[52:])) }
func (it Item) Stream() []byte   { return it[RecordHead : RecordHead+it.StreamLen()] }
func (it Item) Content() []byte  { return it[RecordHead : len(it)-ItemFoot] }

// StreamHash is the hash of the stream of a record or a stub.
func (it Item) StreamHash() uint64 {
	if it.IsStub() {
		return Order.Uint64(it[48:])
	}
	return HashStream(String(it.Stream()))
}

func (it Item) EventType() []byte {
	at := RecordHead + it.StreamLen()
	return it[at : at+it.TypeLen()]
}
func (it Item) Metadata() []byte {
	return it[len(it)-ItemFoot-it.MetadataLen() : len(it)-ItemFoot]
}
func (it Item) Data() []byte {
	return it[RecordHead+it.StreamLen()+it.TypeLen() : len(it)-ItemFoot-it.MetadataLen()]
}

// Position returns where the item stands in the log. A trailer says where its frame begins and how
// long its records are.
func (it Item) Position() int64 {
	at := int64(Order.Uint64(it[8:]))
	if it.IsTrailer() {
		return at + int64(Order.Uint32(it[56:]))
	}
	return at
}

// ParseItem checks the item at the start of b: its length, shape and checksum.
// A reader of what was never rewritten has to refuse stubs.
func ParseItem(b []byte) (Item, error) {
	if len(b) < TrailerSize && len(b) < RecordFixed {
		return nil, fmt.Errorf("%d bytes are too few for a record", len(b))
	}
	size := int(Order.Uint32(b))
	if size < RecordFixed || size > len(b) {
		return nil, fmt.Errorf("length %d does not fit the %d bytes there", size, len(b))
	}
	it := Item(b[:size:size])
	if Order.Uint32(it[size-4:]) != uint32(size) {
		return nil, fmt.Errorf("length %d is not repeated at the end", size)
	}
	if it[5] != 0 {
		return nil, fmt.Errorf("reserved byte is %d", it[5])
	}
	switch it[4] {
	case KindRecord:
		if RecordFixed+it.StreamLen()+it.TypeLen()+it.MetadataLen() > size {
			return nil, fmt.Errorf("parts of the record are longer than its %d bytes", size)
		}
	case KindTrailer:
		if size != TrailerSize {
			return nil, fmt.Errorf("trailer has %d bytes", size)
		}
	case KindStub:
		if size != StubSize {
			return nil, fmt.Errorf("stub has %d bytes", size)
		}
	default:
		return nil, fmt.Errorf("unknown kind %d", it[4])
	}
	if crc32.Checksum(it[:size-ItemFoot], Castagnoli) != Order.Uint32(it[size-ItemFoot:]) {
		return nil, fmt.Errorf("checksum of the item of %d bytes does not match", size)
	}
	return it, nil
}

// Trailer closes a frame: one applied Raft entry.
type Trailer struct {
	First     int64 // position of the frame's first record
	Length    int   // bytes of its records
	Index     uint64
	Term      uint64
	Time      int64 // of the frame's records
	Chain     event.Chain
	Completes bool // the frame is the last of its chunk
}

func (t *Trailer) End() int64 { return t.First + int64(t.Length) + TrailerSize }

// Append appends the trailer's bytes:
//
//	 0  4  length of the item, 68
//	 4  1  kind, 2
//	 5  1  0
//	 6  2  flags: 1 = the frame completes its chunk
//	 8  8  position of the frame's first record
//	16  8  Raft index
//	24  8  Raft term
//	32  8  time of the frame, nanoseconds since 1970
//	40 16  chain after the frame
//	56  4  bytes of the frame's records
//	60  4  CRC-32C of all before
//	64  4  length again
func (t *Trailer) Append(dst []byte) []byte {
	start := len(dst)
	var flags uint16
	if t.Completes {
		flags = TrailerCompletesChunk
	}
	dst = Order.AppendUint32(dst, TrailerSize)
	dst = append(dst, KindTrailer, 0)
	dst = Order.AppendUint16(dst, flags)
	dst = Order.AppendUint64(dst, uint64(t.First))
	dst = Order.AppendUint64(dst, t.Index)
	dst = Order.AppendUint64(dst, t.Term)
	dst = Order.AppendUint64(dst, uint64(t.Time))
	dst = append(dst, t.Chain[:]...)
	dst = Order.AppendUint32(dst, uint32(t.Length))
	return CloseItem(dst, start, TrailerSize)
}

func (it Item) Trailer() Trailer {
	return Trailer{
		First:     int64(Order.Uint64(it[8:])),
		Index:     Order.Uint64(it[16:]),
		Term:      Order.Uint64(it[24:]),
		Time:      int64(Order.Uint64(it[32:])),
		Chain:     event.Chain(it[40:56]),
		Length:    int(Order.Uint32(it[56:])),
		Completes: it.Flags()&TrailerCompletesChunk != 0,
	}
}

// GenesisChain is the chain of an empty log: it differs between clusters.
func GenesisChain(cluster event.ID) event.Chain {
	return NextChain(event.Chain(cluster), -1, []byte("annals"))
}

// NextChain returns the chain after a frame: XXH3 with 128 bits over the chain before it, the
// position of its first record and the bytes of its records.
func NextChain(before event.Chain, first int64, records []byte) event.Chain {
	return ChainOver(before, first, xxh3.Hash128(records))
}

// ChainOver is NextChain for records of which the hash is known.
func ChainOver(before event.Chain, first int64, records xxh3.Uint128) event.Chain {
	var b [40]byte
	copy(b[:], before[:])
	Order.PutUint64(b[16:], uint64(first))
	Order.PutUint64(b[24:], records.Lo)
	Order.PutUint64(b[32:], records.Hi)
	return event.Chain(xxh3.Hash128(b[:]).Bytes())
}

// Place returns where a frame with n bytes of records begins in a log that ends
// at end: there, or at the start of the next chunk when it does not fit.
func Place(end int64, n int) int64 {
	room := ChunkSize - end%ChunkSize
	if int64(n)+TrailerSize > room {
		return end + room
	}
	return end
}

// EndBehind returns the end of the log after a frame.
func EndBehind(first int64, n int, completesChunk bool) int64 {
	end := first + int64(n) + TrailerSize
	if completesChunk {
		return NextChunk(end)
	}
	return end
}

// NextChunk returns the start of the chunk that follows the one in which the log ends at end.
func NextChunk(end int64) int64 { return (end + ChunkSize - 1) / ChunkSize * ChunkSize }

func ChunkNumber(position int64) int { return int(position / ChunkSize) }
func ChunkStart(number int) int64    { return int64(number) * ChunkSize }

// HashStream is the hash under which the index knows a stream.
func HashStream(name string) uint64 { return xxh3.HashString(name) }

// String returns a string that shares the bytes of b, which must never change again.
func String(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
