package index

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// partEntries is how many entries are compared with their checksum at a time, once their block was.
// The hash of the first of them is kept in memory.
const partEntries = 64

// block is what is read at a time from a table that is packed or not mapped.
type block struct {
	rows   [blockEntries * entrySize]byte
	packed []byte // what they were unpacked from, where it is not mapped
}

var blocks = sync.Pool{New: func() any { return new(block) }}

// view reads single entries of a table. It is used by one goroutine for one lookup.
type view struct {
	t      *table
	rows   []byte          // as the table has them
	known  []atomic.Uint64 // parts that need not be compared with their checksums; nil: none
	data   []byte          // what was loaded last: a part, or a block where no entries are mapped
	first  int64           // place of its first entry
	buffer *block          // nil when entries are mapped
	err    error           // a read failed: what at returned is void
}

// view with certain believes nothing because it was right before.
func (t *table) view(certain bool) view {
	v := view{t: t, rows: t.rows, known: t.blocks.known}
	if certain || t.suspect() {
		v.known = nil
	}
	if v.rows == nil {
		v.buffer = blocks.Get().(*block)
	}
	return v
}

func (v *view) done() {
	if v.buffer != nil {
		blocks.Put(v.buffer)
	}
}

func (v *view) at(i int64) Entry {
	if v.rows != nil && isKnown(v.known, uint64(i)/partEntries) {
		return getEntry(v.rows[i*entrySize:])
	}
	if at := i - v.first; at < 0 || at >= int64(len(v.data))/entrySize {
		if !v.load(i) {
			return Entry{}
		}
	}
	return getEntry(v.data[(i-v.first)*entrySize:])
}

// answer is at for an entry that a lookup is about to return: one that leads nowhere it can have
// been written for is damage.
func (v *view) answer(i int64) Entry {
	e := v.at(i)
	if t := v.t; v.err == nil && (e.Position < t.minPos || e.Position > t.maxPos) {
		v.err = corrupt(t.path, t.offset(i), "an entry with a position outside of the table's")
		t.onError(v.err)
	}
	return e
}

// load reads the part with an entry, or its block where nothing is mapped, and compares it with its
// checksum.
func (v *view) load(i int64) bool {
	if v.err != nil {
		return false
	}
	t := v.t
	number := i / blockEntries
	first := number * blockEntries
	whole, taken := true, false
	part := uint64(i) / partEntries
	switch {
	case t.packed:
		v.err = v.loadPacked(number)
	case v.buffer == nil:
		taken = t.blocks.parts[part].Load() != 0
		v.data = t.rows[first*entrySize : min(first+blockEntries, t.count)*entrySize]
	default:
		taken = t.blocks.parts[part].Load() != 0
		v.data = v.buffer.rows[:min(blockEntries, t.count-first)*entrySize]
		v.err = readFull(t.source.file, v.data, tableHeaderSize+first*entrySize)
	}
	switch {
	case v.err != nil || t.packed:
	case taken && v.buffer == nil:
		whole = t.blocks.compare(part, t.rows)
		first = i / partEntries * partEntries
		v.data = t.rows[first*entrySize : min(first+partEntries, t.count)*entrySize]
	case !t.blocks.matches(uint64(number), v.data):
		whole = false
	case !taken:
		t.take(first, v.data)
	}
	if !whole {
		v.err = corrupt(t.path, tableHeaderSize+number*blockEntries*entrySize, "wrong checksum of a block of entries")
	}
	if v.err != nil {
		v.data = nil
		t.onError(v.err)
		return false
	}
	v.first = first
	return true
}

// take takes samples and checksums of the parts of a block, which is what was written. The
// samples come first: who finds the checksums uses them.
func (t *table) take(first int64, block []byte) {
	for at := 0; at < len(block); at += partEntries * entrySize {
		t.samples[(first+int64(at)/entrySize)/partEntries].Store(le.Uint64(block[at:]))
	}
	t.blocks.take(uint64(first/partEntries), block)
}

// search returns the place of the first entry that is not below (hash, number).
//
// Samples confine the search to a few cache lines, or to the entries of one long stream. From there
// it keeps the bounds lo <= answer <= hi together with the keys just outside them, guesses the
// place in between from how hashes (or, within one hash, numbers) are spread, and brackets the
// answer by widening steps around the guess. A few rounds bring the bounds within a cache line or
// two when hashes are uniform; whatever is left is done by bisection, so that no content makes it
// slower than O(log n).
func (v *view) search(hash uint64, number int64) int64 {
	if hash < v.t.minHash {
		return 0
	}
	lo, hi, below, above := v.confine(hash, number)
	for range 6 {
		if hi-lo <= 8 || v.err != nil {
			break
		}
		guess := lo + interpolate(below, above, hash, number, hi-lo)
		step := int64(1) << (bits.Len64(uint64(hi-lo)) / 2) // about the error of a guess
		e := v.at(guess)
		if e.Hash < hash || e.Hash == hash && e.Number < number {
			lo, below = guess+1, e
			for p := guess + step; p < hi; p += step {
				e = v.at(p)
				if e.Hash > hash || e.Hash == hash && e.Number >= number {
					hi, above = p, e
					break
				}
				lo, below = p+1, e
				step *= 2
			}
			continue
		}
		hi, above = guess, e
		for p := guess - step; p >= lo; p -= step {
			e = v.at(p)
			if e.Hash < hash || e.Hash == hash && e.Number < number {
				lo, below = p+1, e
				break
			}
			hi, above = p, e
			step *= 2
		}
	}
	for lo < hi {
		mid := int64(uint64(lo+hi) >> 1)
		e := v.at(mid)
		if e.Hash < hash || e.Hash == hash && e.Number < number {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// confine returns bounds of where the entries of a hash are, with keys that are outside of them or
// equal.
func (v *view) confine(hash uint64, number int64) (lo, hi int64, below, above Entry) {
	t := v.t
	if t.packed {
		return v.confinePacked(hash, number)
	}
	hi, below, above = t.count, Entry{Hash: t.minHash}, Entry{Hash: t.maxHash, Number: t.maxNumber}
	first, begins := slices.BinarySearch(t.starts, hash)
	end := first
	switch {
	case begins && hash == math.MaxUint64:
		end = len(t.starts)
	case begins:
		n, _ := slices.BinarySearch(t.starts[first:], hash+1)
		end += n
	}
	if end < len(t.starts) {
		hi, above = int64(end)*blockEntries, Entry{Hash: t.starts[end]}
	}
	if first == 0 {
		return lo, hi, below, above
	}
	// The entries begin in the block before, or at its end.
	lo = int64(first-1) * blockEntries
	// Its samples are there once it was compared.
	if t.blocks.parts[lo/partEntries].Load() == 0 && !v.load(lo) {
		return lo, hi, below, above
	}
	samples := t.samples[lo/partEntries : min((lo+blockEntries)/partEntries, int64(len(t.samples)))]
	k := int64(1) // The first one is below the hash.
	for k < int64(len(samples)) && samples[k].Load() < hash {
		k++
	}
	place := lo
	lo, below = place+(k-1)*partEntries+1, Entry{Hash: samples[k-1].Load()}
	for k < int64(len(samples)) && samples[k].Load() == hash {
		k++
	}
	if k < int64(len(samples)) {
		hi, above = place+k*partEntries, Entry{Hash: samples[k].Load()}
	}
	return lo, hi, below, above
}

// interpolate guesses where in a range of n entries between two keys a third belongs: 0..n-1.
func interpolate(below, above Entry, hash uint64, number int64, n int64) int64 {
	part, whole := hash-below.Hash, above.Hash-below.Hash
	if whole == 0 {
		if number < below.Number || above.Number <= below.Number {
			return n / 2
		}
		part, whole = uint64(number)-uint64(below.Number), uint64(above.Number)-uint64(below.Number)
	}
	if part >= whole {
		return n - 1
	}
	high, low := bits.Mul64(part, uint64(n))
	place, _ := bits.Div64(high, low, whole) // part < whole, so the quotient is below n
	return int64(place)
}
