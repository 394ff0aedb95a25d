package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/event"
)

// Layout of a chunk file, all numbers little-endian:
//
//	header (128) | data | position map (scavenged or merged only) | footer (128, complete only)
//
// In a chunk as it was written a record lies at header + position - start of the
// chunk. In a scavenged or merged one the position map tells.
const (
	headerSize = 128
	footerSize = 128

	// formatVersion is the newest version known. Files as written are of version 1,
	// rewritten ones, which may hold stubs, of version 2.
	formatVersion        = 2
	formatVersionWritten = 1

	headerMagic = "ANNALSCH"
	footerMagic = "ANNALSCF"

	flagMapped        = 1 << 0 // header and footer: a position map stands before the footer
	flagLastCompletes = 1 << 1 // footer: the last frame completes the chunk by itself

	mapEntrySize = 12 // position (8), offset in the file (4)
)

// header stands at the start of a chunk file:
//
//	  0  8  magic "ANNALSCH"
//	  8  2  format version
//	 10  2  flags
//	 12  4  chunk size in bytes
//	 16  4  first logical chunk number
//	 20  4  last logical chunk number
//	 24 16  file id
//	 40 16  cluster id
//	 56 68  0
//	124  4  CRC-32C of all before
type header struct {
	first, last int
	mapped      bool
	fileID      event.ID
	cluster     event.ID
}

func (h *header) bytes() []byte {
	b := make([]byte, headerSize)
	copy(b, headerMagic)
	order.PutUint16(b[8:], fileVersion(h.mapped))
	if h.mapped {
		order.PutUint16(b[10:], flagMapped)
	}
	order.PutUint32(b[12:], uint32(ChunkSize))
	order.PutUint32(b[16:], uint32(h.first))
	order.PutUint32(b[20:], uint32(h.last))
	copy(b[24:], h.fileID[:])
	copy(b[40:], h.cluster[:])
	order.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

func fileVersion(mapped bool) uint16 {
	if mapped {
		return formatVersion
	}
	return formatVersionWritten
}

// errNewerFormat says that a file is whole but of a later program: it must not
// be taken for a damaged one.
var errNewerFormat = errors.New("newer format version")

func parseHeader(b []byte) (header, error) {
	if len(b) < headerSize || !bytes.Equal(b[:8], []byte(headerMagic)) {
		return header{}, errors.New("not a chunk file")
	}
	if crc32.Checksum(b[:124], castagnoli) != order.Uint32(b[124:]) {
		return header{}, errors.New("checksum of the header does not match")
	}
	if v := order.Uint16(b[8:]); v > formatVersion {
		return header{}, fmt.Errorf("%w: %d, the newest known here is %d", errNewerFormat, v, formatVersion)
	}
	if size := order.Uint32(b[12:]); size != uint32(ChunkSize) {
		return header{}, fmt.Errorf("chunk size %d, need %d", size, ChunkSize)
	}
	h := header{
		first:   int(order.Uint32(b[16:])),
		last:    int(order.Uint32(b[20:])),
		mapped:  order.Uint16(b[10:])&flagMapped != 0,
		fileID:  event.ID(b[24:40]),
		cluster: event.ID(b[40:56]),
	}
	if h.last < h.first || h.last > h.first && !h.mapped {
		return header{}, fmt.Errorf("covers chunks %d to %d", h.first, h.last)
	}
	return h, nil
}

// footer ends a complete chunk file:
//
//	  0  8  magic "ANNALSCF"
//	  8  2  format version
//	 10  2  flags
//	 12  4  number of records
//	 16  8  bytes of data between header and position map
//	 24  8  position behind the last frame of the original chunk
//	 32  8  bytes of the position map
//	 40  8  Raft index of the first frame
//	 48  8  Raft index of the last frame
//	 56  8  Raft term of the last frame
//	 64  8  time of the last frame
//	 72 16  chain behind the last frame
//	 88 16  XXH3-128 of the file up to here
//	104  4  number of stubs, in a file with a position map
//	108 16  0
//	124  4  CRC-32C of the footer before
type footer struct {
	mapped        bool
	lastCompletes bool
	records       int
	stubs         int
	dataSize      int64
	end           int64
	mapSize       int64
	firstIndex    uint64
	lastIndex     uint64
	lastTerm      uint64
	lastTime      int64
	chain         event.Chain
	checksum      [16]byte
}

const footerChecksumAt = 88

// bytes returns the footer; sum is given the part that the checksum covers and returns the checksum of the whole file.
func (f *footer) bytes(sum func(part []byte) [16]byte) []byte {
	b := make([]byte, footerSize)
	copy(b, footerMagic)
	order.PutUint16(b[8:], fileVersion(f.mapped))
	var flags uint16
	if f.mapped {
		flags |= flagMapped
	}
	if f.lastCompletes {
		flags |= flagLastCompletes
	}
	order.PutUint16(b[10:], flags)
	order.PutUint32(b[12:], uint32(f.records))
	order.PutUint64(b[16:], uint64(f.dataSize))
	order.PutUint64(b[24:], uint64(f.end))
	order.PutUint64(b[32:], uint64(f.mapSize))
	order.PutUint64(b[40:], f.firstIndex)
	order.PutUint64(b[48:], f.lastIndex)
	order.PutUint64(b[56:], f.lastTerm)
	order.PutUint64(b[64:], uint64(f.lastTime))
	copy(b[72:], f.chain[:])
	f.checksum = sum(b[:footerChecksumAt])
	copy(b[footerChecksumAt:], f.checksum[:])
	order.PutUint32(b[104:], uint32(f.stubs))
	order.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
	return b
}

// parseFooter reads the footer of a file of the given size that covers the given chunks.
func parseFooter(b []byte, h header, fileSize int64) (footer, error) {
	if len(b) < footerSize || !bytes.Equal(b[:8], []byte(footerMagic)) {
		return footer{}, errors.New("no footer")
	}
	if crc32.Checksum(b[:124], castagnoli) != order.Uint32(b[124:]) {
		return footer{}, errors.New("checksum of the footer does not match")
	}
	flags := order.Uint16(b[10:])
	f := footer{
		mapped:        flags&flagMapped != 0,
		lastCompletes: flags&flagLastCompletes != 0,
		records:       int(order.Uint32(b[12:])),
		stubs:         int(order.Uint32(b[104:])),
		dataSize:      int64(order.Uint64(b[16:])),
		end:           int64(order.Uint64(b[24:])),
		mapSize:       int64(order.Uint64(b[32:])),
		firstIndex:    order.Uint64(b[40:]),
		lastIndex:     order.Uint64(b[48:]),
		lastTerm:      order.Uint64(b[56:]),
		lastTime:      int64(order.Uint64(b[64:])),
		chain:         event.Chain(b[72:88]),
		checksum:      [16]byte(b[footerChecksumAt : footerChecksumAt+16]),
	}
	switch {
	case f.dataSize < 0 || f.mapSize < 0 || f.dataSize > fileSize || f.mapSize > fileSize || headerSize+f.dataSize+f.mapSize+footerSize != fileSize:
		return footer{}, fmt.Errorf("sizes in the footer do not make up the file's %d bytes", fileSize)
	case f.end <= chunkStart(h.first) || f.end > chunkStart(h.last+1):
		return footer{}, fmt.Errorf("end %d lies outside chunks %d to %d", f.end, h.first, h.last)
	case f.mapped != h.mapped || f.mapSize%mapEntrySize != 0 || !f.mapped && f.mapSize != 0:
		return footer{}, errors.New("position map does not fit the header")
	case !f.mapped && f.stubs != 0:
		return footer{}, fmt.Errorf("%d stubs in a chunk as it was written", f.stubs)
	case !f.mapped && chunkStart(h.first)+f.dataSize != f.end:
		return footer{}, fmt.Errorf("end %d does not fit %d bytes of data", f.end, f.dataSize)
	}
	return f, nil
}

// logEnd is the end of a log whose last chunk has this footer.
func (f *footer) logEnd() int64 {
	if f.lastCompletes {
		return nextChunk(f.end)
	}
	return f.end
}

// chunkFileName returns the name of a chunk file: first logical chunk number and version.
func chunkFileName(number, version int) string {
	return fmt.Sprintf("chunk-%06d.%06d", number, version)
}

// parseChunkFileName is the inverse of chunkFileName.
func parseChunkFileName(name string) (number, version int, ok bool) {
	rest, found := strings.CutPrefix(name, "chunk-")
	n, v, dot := strings.Cut(rest, ".")
	if !found || !dot || len(n) < 6 || len(v) < 6 {
		return 0, 0, false
	}
	number, err := strconv.Atoi(n)
	if err != nil || number < 0 {
		return 0, 0, false
	}
	version, err = strconv.Atoi(v)
	if err != nil || version < 0 || chunkFileName(number, version) != name {
		return 0, 0, false
	}
	return number, version, true
}
