package index

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/internal/vfs"
)

// A bloom filter consists of blocks of one cache line; a hash sets bits in one
// block. The constants and the two functions below are part of the format of
// filters on disk: do not change.
const (
	bloomBlock       = 64 // bytes
	bloomProbes      = 6
	bloomBitsPerHash = 10

	bloomVersion    = 1
	bloomHeaderSize = 32
	bloomSumSize    = 8
)

var bloomMagic = []byte("ANNALSBF")

// bloomMix spreads a stream hash over 64 bits, so that filters stay sharp even
// for hashes that are not uniform.
func bloomMix(hash uint64) uint64 {
	hi, lo := bits.Mul64(hash^0x2d358dccaa6c78a5, 0x8bb84b93962eacc9)
	return hi ^ lo
}

// bloomBlockOf chooses the block of a mixed hash. The bits within the block are
// the lowest bloomProbes groups of 9 bits of bloomBits.
func bloomBlockOf(mixed uint64, blocks uint64) uint64 {
	hi, _ := bits.Mul64(mixed, blocks)
	return hi
}

func bloomBits(mixed uint64) uint64 { return mixed * 0x9e3779b97f4a7c15 >> 10 }

// bloom is the filter of one table. It does not change once it is built.
type bloom struct {
	blocks uint64
	data   []byte // blocks x bloomBlock bytes
	source *content
}

func bloomBlocksFor(hashes int64) uint64 {
	return max(1, (uint64(hashes)*bloomBitsPerHash+bloomBlock*8-1)/(bloomBlock*8))
}

func newBloom(hashes int64) *bloom {
	blocks := bloomBlocksFor(hashes)
	return &bloom{blocks: blocks, data: make([]byte, blocks*bloomBlock)}
}

func (b *bloom) add(hash uint64) {
	m := bloomMix(hash)
	block := b.data[bloomBlockOf(m, b.blocks)*bloomBlock:][:bloomBlock]
	w := bloomBits(m)
	for range bloomProbes {
		block[w>>3&63] |= 1 << (w & 7)
		w >>= 9
	}
}

func (b *bloom) mayContain(hash uint64) bool {
	m := bloomMix(hash)
	block := b.data[bloomBlockOf(m, b.blocks)*bloomBlock:][:bloomBlock]
	w := bloomBits(m)
	for range bloomProbes {
		if block[w>>3&63]&(1<<(w&7)) == 0 {
			return false
		}
		w >>= 9
	}
	return true
}

func (b *bloom) close() error {
	if b == nil || b.source == nil {
		return nil
	}
	return b.source.close()
}

// writeBloom writes the filter of a table beside it. Its name is not durable yet.
func writeBloom(t *table, b *bloom) error {
	return writeNamed(t.fsys, t.path+bloomSuffix, min(64<<10, bloomHeaderSize+len(b.data)+bloomSumSize), func(w *fileWriter) error {
		header := append(make([]byte, 0, bloomHeaderSize), bloomMagic...)
		header = le.AppendUint32(header, bloomVersion)
		header = le.AppendUint32(header, bloomProbes)
		header = le.AppendUint64(header, b.blocks)
		header = le.AppendUint64(header, t.sum)
		if err := errors.Join(w.write(header), w.write(b.data)); err != nil {
			return err
		}
		return w.seal()
	})
}

// openBloom opens the filter that belongs to the table with the given checksum.
func openBloom(fsys vfs.FS, name string, tableSum uint64) (b *bloom, err error) {
	c, err := openContent(fsys, name)
	if err != nil {
		return nil, err
	}
	data := c.data
	if data == nil {
		data = make([]byte, c.size)
		err = readFull(c.file, data, 0)
	}
	if err == nil {
		b, err = parseBloom(name, data, tableSum)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	if c.data == nil { // The bytes were copied.
		if err := c.close(); err != nil {
			return nil, fmt.Errorf("close %s: %w", name, err)
		}
		return b, nil
	}
	b.source = c
	return b, nil
}

func parseBloom(name string, data []byte, tableSum uint64) (*bloom, error) {
	if len(data) < bloomHeaderSize+bloomBlock+bloomSumSize {
		return nil, corrupt(name, 0, "too short for a bloom filter: %d bytes", len(data))
	}
	if !bytes.Equal(data[:8], bloomMagic) {
		return nil, corrupt(name, 0, "not a bloom filter")
	}
	if v, p := le.Uint32(data[8:]), le.Uint32(data[12:]); v != bloomVersion || p != bloomProbes {
		return nil, corrupt(name, 8, "unknown version %d with %d probes", v, p)
	}
	blocks, bytesLeft := le.Uint64(data[16:]), uint64(len(data)-bloomHeaderSize-bloomSumSize)
	if bytesLeft%bloomBlock != 0 || blocks != bytesLeft/bloomBlock {
		return nil, corrupt(name, 16, "%d blocks do not fit the size of the file", blocks)
	}
	if le.Uint64(data[24:]) != tableSum {
		return nil, corrupt(name, 24, "filter of another table")
	}
	end := len(data) - bloomSumSize
	if le.Uint64(data[end:]) != xxh3.Hash(data[:end]) {
		return nil, corrupt(name, int64(end), "wrong checksum")
	}
	return &bloom{blocks: blocks, data: data[bloomHeaderSize:end:end]}, nil
}
