package chunkfile

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
)

// Layout of a chunk file, all numbers little-endian:
//
//	header (128) | data | position map (scavenged or merged only) | footer (128, complete only)
//
// In a chunk as it was written a record lies at header + position - start of the
// chunk. In a scavenged or merged one the position map tells.
const (
	HeaderSize = 128
	FooterSize = 128

	// FormatVersion is the newest version known. Files as written are of version 1,
	// rewritten ones, which may hold stubs, of version 2.
	FormatVersion        = 2
	formatVersionWritten = 1

	headerMagic = "ANNALSCH"
	FooterMagic = "ANNALSCF"

	flagMapped        = 1 << 0 // header and footer: a position map stands before the footer
	flagLastCompletes = 1 << 1 // footer: the last frame completes the chunk by itself

	MapEntrySize = 12 // position (8), offset in the file (4)
)

// Header stands at the start of a chunk file:
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
type Header struct {
	First, Last int
	Mapped      bool
	FileID      event.ID
	Cluster     event.ID
}

func (h *Header) Bytes() []byte {
	b := make([]byte, HeaderSize)
	copy(b, headerMagic)
	Order.PutUint16(b[8:], FileVersion(h.Mapped))
	if h.Mapped {
		Order.PutUint16(b[10:], flagMapped)
	}
	Order.PutUint32(b[12:], uint32(ChunkSize))
	Order.PutUint32(b[16:], uint32(h.First))
	Order.PutUint32(b[20:], uint32(h.Last))
	copy(b[24:], h.FileID[:])
	copy(b[40:], h.Cluster[:])
	Order.PutUint32(b[124:], crc32.Checksum(b[:124], Castagnoli))
	return b
}

func FileVersion(mapped bool) uint16 {
	if mapped {
		return FormatVersion
	}
	return formatVersionWritten
}

// ErrNewer says that a file is whole but of a later program: it must not
// be taken for a damaged one.
var ErrNewer = errors.New("newer format version")

func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize || !bytes.Equal(b[:8], []byte(headerMagic)) {
		return Header{}, errors.New("not a chunk file")
	}
	if crc32.Checksum(b[:124], Castagnoli) != Order.Uint32(b[124:]) {
		return Header{}, errors.New("checksum of the header does not match")
	}
	if v := Order.Uint16(b[8:]); v > FormatVersion {
		return Header{}, fmt.Errorf("%w: %d, the newest known here is %d", ErrNewer, v, FormatVersion)
	}
	if size := Order.Uint32(b[12:]); size != uint32(ChunkSize) {
		return Header{}, fmt.Errorf("chunk size %d, need %d", size, ChunkSize)
	}
	h := Header{
		First:   int(Order.Uint32(b[16:])),
		Last:    int(Order.Uint32(b[20:])),
		Mapped:  Order.Uint16(b[10:])&flagMapped != 0,
		FileID:  event.ID(b[24:40]),
		Cluster: event.ID(b[40:56]),
	}
	if h.Last < h.First || h.Last > h.First && !h.Mapped {
		return Header{}, fmt.Errorf("covers chunks %d to %d", h.First, h.Last)
	}
	return h, nil
}

// Footer ends a complete chunk file:
//
//	  0  8  magic "ANNALSCF"
//	  8  2  format version
//	 10  2  flags
//	 12  4  number of records
//	 16  8  bytes of data between header and position map
//	 24  8  position after the last frame of the original chunk
//	 32  8  bytes of the position map
//	 40  8  Raft index of the first frame
//	 48  8  Raft index of the last frame
//	 56  8  Raft term of the last frame
//	 64  8  time of the last frame
//	 72 16  chain after the last frame
//	 88 16  XXH3-128 of the file up to here
//	104  4  number of stubs, in a file with a position map
//	108 16  0
//	124  4  CRC-32C of the footer before
type Footer struct {
	Mapped        bool
	LastCompletes bool
	Records       int
	Stubs         int
	DataSize      int64
	End           int64
	MapSize       int64
	FirstIndex    uint64
	LastIndex     uint64
	LastTerm      uint64
	LastTime      int64
	Chain         event.Chain
	Checksum      [16]byte
}

const FooterChecksumAt = 88

// After returns the footer of a file of whose other bytes the sum is. The sum takes it in.
func (f *Footer) After(sum *xxh3.Hasher) ([]byte, error) {
	var err error
	b := f.Bytes(func(part []byte) [16]byte {
		_, err = sum.Write(part)
		return sum.Sum128().Bytes()
	})
	return b, err
}

// Bytes returns the footer; sum is given the part that the checksum covers and returns the checksum
// of the whole file.
func (f *Footer) Bytes(sum func(part []byte) [16]byte) []byte {
	b := make([]byte, FooterSize)
	copy(b, FooterMagic)
	Order.PutUint16(b[8:], FileVersion(f.Mapped))
	var flags uint16
	if f.Mapped {
		flags |= flagMapped
	}
	if f.LastCompletes {
		flags |= flagLastCompletes
	}
	Order.PutUint16(b[10:], flags)
	Order.PutUint32(b[12:], uint32(f.Records))
	Order.PutUint64(b[16:], uint64(f.DataSize))
	Order.PutUint64(b[24:], uint64(f.End))
	Order.PutUint64(b[32:], uint64(f.MapSize))
	Order.PutUint64(b[40:], f.FirstIndex)
	Order.PutUint64(b[48:], f.LastIndex)
	Order.PutUint64(b[56:], f.LastTerm)
	Order.PutUint64(b[64:], uint64(f.LastTime))
	copy(b[72:], f.Chain[:])
	f.Checksum = sum(b[:FooterChecksumAt])
	copy(b[FooterChecksumAt:], f.Checksum[:])
	Order.PutUint32(b[104:], uint32(f.Stubs))
	Order.PutUint32(b[124:], crc32.Checksum(b[:124], Castagnoli))
	return b
}

// ParseFooter reads the footer of a file of the given size that covers the given chunks.
func ParseFooter(b []byte, h Header, fileSize int64) (Footer, error) {
	if len(b) < FooterSize || !bytes.Equal(b[:8], []byte(FooterMagic)) {
		return Footer{}, errors.New("no footer")
	}
	if crc32.Checksum(b[:124], Castagnoli) != Order.Uint32(b[124:]) {
		return Footer{}, errors.New("checksum of the footer does not match")
	}
	flags := Order.Uint16(b[10:])
	f := Footer{
		Mapped:        flags&flagMapped != 0,
		LastCompletes: flags&flagLastCompletes != 0,
		Records:       int(Order.Uint32(b[12:])),
		Stubs:         int(Order.Uint32(b[104:])),
		DataSize:      int64(Order.Uint64(b[16:])),
		End:           int64(Order.Uint64(b[24:])),
		MapSize:       int64(Order.Uint64(b[32:])),
		FirstIndex:    Order.Uint64(b[40:]),
		LastIndex:     Order.Uint64(b[48:]),
		LastTerm:      Order.Uint64(b[56:]),
		LastTime:      int64(Order.Uint64(b[64:])),
		Chain:         event.Chain(b[72:88]),
		Checksum:      [16]byte(b[FooterChecksumAt : FooterChecksumAt+16]),
	}
	switch {
	case f.DataSize < 0 || f.MapSize < 0 || f.DataSize > fileSize || f.MapSize > fileSize || HeaderSize+f.DataSize+f.MapSize+FooterSize != fileSize:
		return Footer{}, fmt.Errorf("sizes in the footer do not make up the file's %d bytes", fileSize)
	case f.End <= ChunkStart(h.First) || f.End > ChunkStart(h.Last+1):
		return Footer{}, fmt.Errorf("end %d lies outside chunks %d to %d", f.End, h.First, h.Last)
	case f.Mapped != h.Mapped || f.MapSize%MapEntrySize != 0 || !f.Mapped && f.MapSize != 0:
		return Footer{}, errors.New("position map does not fit the header")
	case !f.Mapped && f.Stubs != 0:
		return Footer{}, fmt.Errorf("%d stubs in a chunk as it was written", f.Stubs)
	case !f.Mapped && ChunkStart(h.First)+f.DataSize != f.End:
		return Footer{}, fmt.Errorf("end %d does not fit %d bytes of data", f.End, f.DataSize)
	}
	return f, nil
}

// LogEnd is the end of a log whose last chunk has this footer.
func (f *Footer) LogEnd() int64 {
	if f.LastCompletes {
		return NextChunk(f.End)
	}
	return f.End
}

// Tail is the end of a log whose last chunk has this footer.
func (f *Footer) Tail() event.Tail {
	return event.Tail{End: f.LogEnd(), Chain: f.Chain, Index: f.LastIndex, Term: f.LastTerm, Time: f.LastTime}
}

// FileName returns the name of a chunk file: first logical chunk number and version.
func FileName(number, version int) string {
	return fmt.Sprintf("chunk-%06d.%06d", number, version)
}

// Named is a chunk file by its name.
type Named struct {
	Name            string
	Number, Version int
}

// Newest tells the newest versions of chunk files, by rising number, from the names of those that
// they replace.
func Newest(names []string) (newest []Named, older []string) {
	versions := map[int]int{}
	for _, name := range names {
		number, version, ok := ParseFileName(name)
		if !ok {
			continue
		}
		if other, seen := versions[number]; seen {
			older = append(older, FileName(number, min(other, version)))
		}
		versions[number] = max(versions[number], version)
	}
	for _, n := range slices.Sorted(maps.Keys(versions)) {
		newest = append(newest, Named{FileName(n, versions[n]), n, versions[n]})
	}
	return newest, older
}

// ParseFileName is the inverse of FileName.
func ParseFileName(name string) (number, version int, ok bool) {
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
	if err != nil || version < 0 || FileName(number, version) != name {
		return 0, 0, false
	}
	return number, version, true
}
