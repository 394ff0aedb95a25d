package index

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

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

	bloomVersion    = 2
	bloomPage       = 32 << 10 // bytes with one checksum; the last page may have fewer
	bloomPart       = 512      // bytes with one checksum in memory
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
	blocks  uint64
	data    []byte // blocks x bloomBlock bytes
	name    string // of its file
	bytes   int64  // of its file
	source  *content
	pages   blockSums   // of data; empty: it is memory of its own
	told    atomic.Bool // onError was called
	onError func(error) // gets, once, that a page is damaged
}

func bloomBlocksFor(hashes int64) uint64 {
	return max(1, (uint64(hashes)*bloomBitsPerHash+bloomBlock*8-1)/(bloomBlock*8))
}

func newBloom(hashes int64) *bloom {
	blocks := bloomBlocksFor(hashes)
	return &bloom{blocks: blocks, data: make([]byte, blocks*bloomBlock), bytes: int64(bloomFileSize(blocks))}
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

// mayContain reports whether a hash may have been added. A filter that denies it is compared with
// its checksum each time: what it denies no one looks for, and it may have changed since it was
// right.
func (b *bloom) mayContain(hash uint64) bool {
	m := bloomMix(hash)
	place := bloomBlockOf(m, b.blocks) * bloomBlock
	part, compares := place/bloomPart, b.pages.known != nil
	if compares && !isKnown(b.pages.known, part) && !b.whole(part) {
		return true
	}
	block := b.data[place:][:bloomBlock]
	w := bloomBits(m)
	for range bloomProbes {
		if block[w>>3&63]&(1<<(w&7)) == 0 {
			return compares && !b.whole(part)
		}
		w >>= 9
	}
	return true
}

// whole reports whether a part is what was written. Where one is not the filter denies nothing.
func (b *bloom) whole(part uint64) bool {
	if b.pages.compare(part, b.data) {
		return true
	}
	if b.told.CompareAndSwap(false, true) {
		at := part * bloomPart / bloomPage * bloomPage
		b.onError(corrupt(b.name, int64(bloomHeaderSize+at), "wrong checksum of a page"))
	}
	return false
}

// bloomFileSize is the size of a file with so many blocks.
func bloomFileSize(blocks uint64) uint64 {
	pages := (blocks*bloomBlock + bloomPage - 1) / bloomPage
	return bloomHeaderSize + blocks*bloomBlock + (pages+1)*sumSize + bloomSumSize
}

func (b *bloom) close() error {
	if b == nil || b.source == nil {
		return nil
	}
	return b.source.close()
}

// writeBloom writes the filter of a table next to it. Its name is not durable yet.
func writeBloom(t *table, b *bloom) error {
	return writeNamed(t.fsys, t.path+bloomSuffix, min(64<<10, bloomHeaderSize+len(b.data)+bloomSumSize), func(w *fileWriter) error {
		header := append(make([]byte, 0, bloomHeaderSize), bloomMagic...)
		header = le.AppendUint32(header, bloomVersion)
		header = le.AppendUint32(header, bloomProbes)
		header = le.AppendUint64(header, b.blocks)
		header = le.AppendUint64(header, t.sum)
		var sums []byte
		for at := 0; at < len(b.data); at += bloomPage {
			sums = le.AppendUint64(sums, xxh3.Hash(b.data[at:min(at+bloomPage, len(b.data))]))
		}
		sums = le.AppendUint64(sums, xxh3.Hash(slices.Concat(header, sums)))
		if err := errors.Join(w.write(header), w.write(b.data), w.write(sums)); err != nil {
			return err
		}
		return w.seal()
	})
}

// openBloom opens the filter that belongs to the table with the given checksum. Unless it is asked
// for the whole to be checked, pages are compared with their checksums later.
func openBloom(fsys vfs.FS, name string, tableSum uint64, whole bool) (b *bloom, err error) {
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
		b, err = parseBloom(name, data, tableSum, whole || c.data == nil)
	}
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	if c.data == nil { // The bytes were copied, and nothing changes them.
		b.pages = blockSums{}
		if err := c.close(); err != nil {
			return nil, fmt.Errorf("close %s: %w", name, err)
		}
		return b, nil
	}
	b.source = c
	return b, nil
}

func parseBloom(name string, data []byte, tableSum uint64, whole bool) (*bloom, error) {
	if len(data) < bloomHeaderSize+bloomBlock+bloomSumSize {
		return nil, corrupt(name, 0, "too short for a bloom filter: %d bytes", len(data))
	}
	if !bytes.Equal(data[:8], bloomMagic) {
		return nil, corrupt(name, 0, "not a bloom filter")
	}
	if version, probes := le.Uint32(data[8:]), le.Uint32(data[12:]); version != bloomVersion || probes != bloomProbes {
		return nil, corrupt(name, 8, "unknown version %d with %d probes", version, probes)
	}
	blocks, size := le.Uint64(data[16:]), uint64(len(data))
	if blocks < 1 || blocks > size/bloomBlock || bloomFileSize(blocks) != size {
		return nil, corrupt(name, 16, "%d blocks do not fit the size of the file", blocks)
	}
	if le.Uint64(data[24:]) != tableSum {
		return nil, corrupt(name, 24, "filter of another table")
	}
	end := len(data) - bloomSumSize
	bits := bloomHeaderSize + int(blocks)*bloomBlock
	b := &bloom{blocks: blocks, data: data[bloomHeaderSize:bits:bits], name: name, bytes: int64(size), onError: func(error) {}}
	if whole && le.Uint64(data[end:]) != xxh3.Hash(data[:end]) {
		return nil, corrupt(name, int64(end), "wrong checksum")
	}
	sums := data[bits : end-sumSize]
	if le.Uint64(data[end-sumSize:]) != xxh3.Hash(slices.Concat(data[:bloomHeaderSize], sums)) {
		return nil, corrupt(name, int64(end-sumSize), "wrong checksum of the checksums of pages")
	}
	b.pages = newBlockSums(sums, uint64(len(b.data)), bloomPage, bloomPart)
	return b, nil
}
