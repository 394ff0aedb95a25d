package raftdisk

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/hashicorp/raft"
	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/internal/vfs"
)

// A segment file is a header, followed by entries, each padded to a multiple of 8 bytes:
//
//	0        48                 e1               e2
//	| header | entry 1 | 0 … 0 | entry 2 | 0 … 0 | entry 3 | …
//	     │        ▲ │               ▲ │               ▲
//	     └────────┘ └───────────────┘ └───────────────┘      a checksum is the seed of the next one
//
// All numbers are little-endian; one row is 16 bytes:
//
//	header   0 ┌───────────────────────┬───────────┬───────────┐
//	           │ "ANNALSRL"            │ version 1 │ 0         │
//	        16 ├───────────────────────┼───────────┴───────────┤
//	           │ number of the segment │ index of first entry  │
//	        32 ├───────────────────────┼───────────────────────┤
//	           │ checksum of the entry │ checksum of bytes     │
//	           │ before it, 0: none    │ 0 to 39               │
//	        48 └───────────────────────┴───────────────────────┘
//
//	entry    0 ┌───────────────────────┬───────────┬───────────┐
//	           │ checksum of all after │ bytes of  │ bytes of  │
//	           │ it, without padding   │ data      │ extensions│
//	        16 ├───────────────────────┼───────────┴───────────┤
//	           │ index                 │ term                  │
//	        32 ├───────────────────────┼──────┬────────┬───────┤
//	           │ appended at, ns since │ type │ mark   │ place │
//	           │ 1970, 0: unknown      │ 1    │ 3      │ 4     │
//	        48 ├───────────────────────┴──────┴────────┴───────┤
//	           │ data … extensions … 0 up to a multiple of 8   │
//	           └───────────────────────────────────────────────┘
//
// The mark is bits of the header's checksum, the place that of the entry in the write that stored
// it, from 1 on.
//
// When an entry is damaged, the place of a later entry shows whether a later write stored that one,
// and so whether the damaged one had been synced. Earlier versions left both fields 0.
//
// A checksum is the xxh3 of the bytes that follow it up to the padding (the header's: of the bytes
// before it), seeded with the previous checksum: of the entry before, or of the header. So an entry
// is valid only after the entries that it was written after. Old content of the file, from before
// it became this segment or before its end was cut, is not valid.
const (
	segmentMagic   = "ANNALSRL"
	segmentVersion = 1
	segmentHeader  = 48
	entryHead      = 48
	entryAlign     = 8
)

var le = binary.LittleEndian

// segmentHead is what the header of a segment says.
type segmentHead struct {
	number uint64 // Each use of a file has another.
	first  uint64 // index of the first entry
	before uint64 // checksum of the entry before it
	sum    uint64
}

func (h *segmentHead) appendTo(b []byte) []byte {
	at := len(b)
	b = append(b, segmentMagic...)
	b = le.AppendUint32(b, segmentVersion)
	b = le.AppendUint32(b, 0)
	for _, v := range []uint64{h.number, h.first, h.before} {
		b = le.AppendUint64(b, v)
	}
	h.sum = xxh3.Hash(b[at:])
	return le.AppendUint64(b, h.sum)
}

// readSegmentHead reads the header of a segment. It is not ok if there is none: the file was not
// begun with that number.
func readSegmentHead(f vfs.File, number uint64) (h segmentHead, ok bool, err error) {
	var b [segmentHeader]byte
	if n, err := f.ReadAt(b[:], 0); n < len(b) {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return h, false, err
	}
	h = segmentHead{number: le.Uint64(b[16:]), first: le.Uint64(b[24:]), before: le.Uint64(b[32:]), sum: le.Uint64(b[40:])}
	ok = string(b[:8]) == segmentMagic && h.sum == xxh3.Hash(b[:40]) && h.number == number
	if version := le.Uint32(b[8:]); ok && version != segmentVersion {
		return h, false, fmt.Errorf("%s has version %d, this program knows %d", f.Name(), version, segmentVersion)
	}
	return h, ok, nil
}

// entrySize is how many bytes an entry takes.
func entrySize(log *raft.Log) int {
	return padded(entryHead + len(log.Data) + len(log.Extensions))
}

// mark is what the entries of a segment have in common: bits of the header's checksum, never 0.
func (h *segmentHead) mark() uint32 { return max(1, uint32(h.sum)&0xffffff) }

// marked reports whether an entry has the mark of a segment.
func (h *segmentHead) marked(entry []byte) bool { return le.Uint32(entry[40:])>>8 == h.mark() }

// appendEntry encodes an entry, and returns its checksum with it. place counts the entries of one
// write, from 0 on.
func appendEntry(b []byte, log *raft.Log, before uint64, mark uint32, place int) ([]byte, uint64) {
	at := len(b)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint32(b, uint32(len(log.Data)))
	b = le.AppendUint32(b, uint32(len(log.Extensions)))
	b = le.AppendUint64(b, log.Index)
	b = le.AppendUint64(b, log.Term)
	appended := int64(0)
	if !log.AppendedAt.IsZero() {
		appended = log.AppendedAt.UnixNano()
	}
	b = le.AppendUint64(b, uint64(appended))
	b = le.AppendUint32(b, uint32(log.Type)|mark<<8)
	b = le.AppendUint32(b, uint32(place)+1)
	b = append(b, log.Data...)
	b = append(b, log.Extensions...)
	sum := entrySum(b[at:], before)
	le.PutUint64(b[at:], sum)
	var padding [entryAlign]byte
	return append(b, padding[:(entryAlign-len(b)%entryAlign)%entryAlign]...), sum
}

// entrySum is the checksum of an encoded entry without its padding. It is never 0: zeros are not an
// entry.
func entrySum(entry []byte, before uint64) uint64 {
	return max(1, xxh3.HashSeed(entry[8:], before))
}

// padded is how many bytes an entry of so many takes.
func padded(n int) int { return (n + entryAlign - 1) / entryAlign * entryAlign }

// entryBytes is how many bytes an entry has after its header, without padding.
func entryBytes(head []byte) int64 { return int64(le.Uint32(head[8:])) + int64(le.Uint32(head[12:])) }

// decodeEntry reads an entry whose bytes are its own from then on.
func decodeEntry(b []byte, log *raft.Log) {
	data := entryHead + int(le.Uint32(b[8:]))
	*log = raft.Log{Index: le.Uint64(b[16:]), Term: le.Uint64(b[24:]), Type: raft.LogType(b[40]), Data: b[entryHead:data:data]}
	if data < len(b) {
		log.Extensions = b[data:]
	}
	if nanos := int64(le.Uint64(b[32:])); nanos != 0 {
		log.AppendedAt = time.Unix(0, nanos)
	}
}

// found is what a segment holds.
type found struct {
	offsets []uint32 // of each entry, in units of entryAlign
	end     int64    // offset after the last entry
	sum     uint64   // checksum of the last entry, or of the header
}

// scanSegment reads the entries of a segment, at most so many, up to the first that is none.
func scanSegment(f vfs.File, h segmentHead, most uint64) (found, error) {
	s := found{end: segmentHeader, sum: h.sum}
	size, err := f.Size()
	if err != nil {
		return s, err
	}
	r := bufio.NewReaderSize(io.NewSectionReader(f, segmentHeader, math.MaxInt64-segmentHeader), int(min(max(size, pageSize), 1<<20)))
	var entry []byte
	for uint64(len(s.offsets)) < most {
		head, err := r.Peek(entryHead)
		if errors.Is(err, io.EOF) {
			return s, nil
		}
		if err != nil {
			return s, err
		}
		n := entryHead + entryBytes(head)
		if le.Uint64(head[16:]) != h.first+uint64(len(s.offsets)) || le.Uint64(head) == 0 || n > size-s.end {
			return s, nil
		}
		if int64(cap(entry)) < n {
			entry = make([]byte, n)
		}
		entry = entry[:n]
		if _, err := io.ReadFull(r, entry); err != nil {
			return s, err
		}
		sum := le.Uint64(entry)
		if sum != entrySum(entry, s.sum) {
			return s, nil
		}
		padding := (entryAlign - n%entryAlign) % entryAlign
		if _, err := r.Discard(int(min(padding, size-s.end-n))); err != nil {
			return s, err
		}
		s.offsets = append(s.offsets, uint32(s.end/entryAlign))
		s.end, s.sum = s.end+n+padding, sum
	}
	return s, nil
}

// damagedSegment is the error for stored entries that are damaged.
func damagedSegment(f vfs.File, at int64, index uint64) error {
	return newRot(f, at, index, index)
}
