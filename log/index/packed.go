package index

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sort"

	"github.com/zeebo/xxh3"
)

// The format of packed tables: do not change. DESIGN.md has the picture.
const (
	packedVersion = 2
	packedLine    = 32 // bytes that the directory has for a block
	packedRunMax  = 21 // bytes of a run of one entry: none takes more for each of its entries
	sharesSize    = 128
)

var packedMagic = []byte("ANNALSPX")

// pack appends the entries of a block, given as a plain table has them.
func pack(dst, rows []byte) []byte {
	first := getEntry(rows)
	for e, last := first, first; len(rows) > 0; last = e {
		e = getEntry(rows)
		if e.Hash != first.Hash {
			dst = binary.AppendUvarint(dst, e.Hash-last.Hash)
			dst = binary.AppendVarint(dst, e.Position-first.Position)
		}
		run := oneHash(rows)
		rows = rows[len(run):]
		dst = binary.AppendUvarint(dst, uint64(len(run)/entrySize))
		for run = run[entrySize:]; len(run) > 0; run = run[entrySize:] {
			next := getEntry(run)
			dst = binary.AppendUvarint(dst, uint64(next.Position-e.Position))
			e = next
		}
	}
	return dst
}

// unpack fills in the entries of a block as a plain table has them. It reports false for all that
// pack does not make.
func unpack(rows, data []byte, first Entry) bool {
	e := first
	for begun := false; len(rows) > 0; begun = true {
		if begun {
			step, n := uvarint(data)
			place, m := uvarint(data[n:])
			hash, carry := bits.Add64(e.Hash, step, 0)
			if n == 0 || m == 0 || step == 0 || carry != 0 {
				return false
			}
			data = data[n+m:]
			e = Entry{Hash: hash, Position: first.Position + (int64(place>>1) ^ -int64(place&1))}
		}
		count, n := uvarint(data)
		if count == 0 || count > uint64(len(rows)/entrySize) {
			return false
		}
		data = data[n:]
		run := rows[:count*entrySize]
		rows = rows[len(run):]
		e.Number = e.Position
		putEntry(run, e)
		for run = run[entrySize:]; len(run) > 0; run = run[entrySize:] {
			step, n := uvarint(data)
			last := e.Position
			e.Position += int64(step)
			if n == 0 || e.Position < last {
				return false
			}
			data = data[n:]
			e.Number = e.Position
			putEntry(run, e)
		}
	}
	return len(data) == 0
}

// uvarint reads a number and how many bytes it takes: 0 if it is not as AppendUvarint writes one.
func uvarint(b []byte) (v uint64, n int) {
	if len(b) >= 4 {
		// Nearly all have up to four bytes, without a loop and its branches.
		w := le.Uint32(b)
		if ends := ^w & 0x80808080; ends != 0 {
			n = bits.TrailingZeros32(ends)/8 + 1
			w &= 1<<(8*n) - 1
			if n > 1 && w>>(8*n-8) == 0 {
				return 0, 0
			}
			return uint64(w&0x7f | w>>1&0x3f80 | w>>2&0x1fc000 | w>>3&0xfe00000), n
		}
	}
	v, n = binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, 0
	}
	return v, n
}

// start is the first entry of a block of a packed table.
func (t *table) start(number int64) Entry {
	line := t.directory[number*packedLine:]
	position := int64(le.Uint64(line[8:]))
	return Entry{Hash: le.Uint64(line), Number: position, Position: position}
}

// span is where a block of a packed table lies in the file.
func (t *table) span(number int64) (from, to int64) {
	at := number*packedLine + 16
	from, to = int64(le.Uint64(t.directory[at:])), t.source.size-tableFooterSize-int64(len(t.directory))
	if number+1 < blocksOf(t.count) {
		to = int64(le.Uint64(t.directory[at+packedLine:]))
	}
	return from, to
}

// checkSpans makes sure that the blocks of a packed table lie one after the other, and that none
// takes more memory than a full one may.
func (t *table) checkSpans() error {
	end := int64(tableHeaderSize)
	for number := range blocksOf(t.count) {
		from, to := t.span(number)
		if from != end || to <= from || to-from > blockEntries*packedRunMax {
			return corrupt(t.path, from, "the directory of blocks does not fit the file")
		}
		end = to
	}
	return nil
}

// unpackBlock fills in the entries of a block, whose bytes are given, as a plain table has them.
func (t *table) unpackBlock(rows, data []byte, number int64) error {
	if xxh3.Hash(data) != le.Uint64(t.directory[number*packedLine+24:]) || !unpack(rows, data, t.start(number)) {
		from, _ := t.span(number)
		return corrupt(t.path, from, "wrong checksum of a block of entries")
	}
	return nil
}

// loadPacked reads a block with its checksum, each time: its entries are as a plain table has them.
func (v *view) loadPacked(number int64) error {
	t, b := v.t, v.buffer
	from, to := t.span(number)
	var data []byte
	if t.source.data != nil {
		data = t.source.data[from:to]
	} else {
		b.packed = slices.Grow(b.packed[:0], int(to-from))[:to-from]
		data = b.packed
		if err := readFull(t.source.file, data, from); err != nil {
			return err
		}
	}
	v.data = b.rows[:min(blockEntries, t.count-number*blockEntries)*entrySize]
	return t.unpackBlock(v.data, data, number)
}

// confinePacked is confine by the first entries of blocks: the bounds are within one block.
func (v *view) confinePacked(hash uint64, number int64) (lo, hi int64, below, above Entry) {
	t := v.t
	blocks := int(blocksOf(t.count))
	end := sort.Search(blocks, func(i int) bool {
		e := t.start(int64(i))
		return e.Hash > hash || e.Hash == hash && e.Number >= number
	})
	hi, below, above = t.count, Entry{Hash: t.minHash}, Entry{Hash: t.maxHash, Number: t.maxNumber}
	if end < blocks {
		hi, above = int64(end)*blockEntries, t.start(int64(end))
	}
	if end > 0 {
		lo, below = int64(end-1)*blockEntries+1, t.start(int64(end-1))
	}
	return lo, hi, below, above
}
