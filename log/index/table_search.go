package index

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

// sampleEvery is the distance of the entries whose hashes are kept in memory. A block has several of them.
const sampleEvery = 128

// block is what is read at a time from a table that is not mapped.
type block [blockEntries * entrySize]byte

var blocks = sync.Pool{New: func() any { return new(block) }}

// view reads single entries of a table. It is used by one goroutine for one lookup.
type view struct {
	t      *table
	rows   []byte          // as the table has them
	known  []atomic.Uint64 // blocks that need not be compared with their checksums; nil: none
	data   []byte          // of the block that was loaded last; nil: none
	loaded uint64          // its number
	buffer *block          // nil when mapped
	err    error           // a read failed: what at returned is void
}

func (t *table) view() view {
	v := view{t: t, rows: t.rows, known: t.blocks.known}
	if t.suspect() && t.blocks.sums != nil {
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
	number := uint64(i) / blockEntries
	if v.rows != nil && isKnown(v.known, number) {
		return getEntry(v.rows[i*entrySize:])
	}
	if v.data == nil || v.loaded != number {
		if !v.load(number) {
			return Entry{}
		}
	}
	return getEntry(v.data[i%blockEntries*entrySize:])
}

// answer is at for an entry that a lookup is about to return: one that leads nowhere it can have been written for is damage.
func (v *view) answer(i int64) Entry {
	e := v.at(i)
	if t := v.t; v.err == nil && (e.Position < t.minPos || e.Position > t.maxPos) {
		v.err = corrupt(t.path, tableHeaderSize+i*entrySize, "an entry with a position outside of the table's")
		t.onError(v.err)
	}
	return e
}

// load reads a block, and compares it with its checksum unless it is known.
func (v *view) load(number uint64) bool {
	if v.err != nil {
		return false
	}
	t := v.t
	first := int64(number) * blockEntries
	offset, size := first*entrySize, min(blockEntries, t.count-first)*entrySize
	if v.buffer == nil {
		v.data = t.rows[offset:][:size]
	} else {
		v.data = v.buffer[:size]
		v.err = readFull(t.source.file, v.data, tableHeaderSize+offset)
	}
	switch {
	case v.err != nil || isKnown(v.known, number):
	case !t.blocks.matches(number, v.data):
		v.err = corrupt(t.path, tableHeaderSize+offset, "wrong checksum of a block of entries")
	default:
		for i := int64(0); i < size; i += sampleEvery * entrySize {
			t.samples[(offset+i)/entrySize/sampleEvery].Store(le.Uint64(v.data[i:]))
		}
		t.blocks.setKnown(number)
	}
	if v.err != nil {
		v.data = nil
		t.onError(v.err)
		return false
	}
	v.loaded = number
	return true
}

// search returns the place of the first entry that is not below (hash, number).
//
// Samples, where there are any, confine the search to a few cache lines, or to
// the entries of one long stream. From there it keeps the bounds lo <= answer <= hi together with the keys just outside
// them, guesses the place in between from how hashes (or, within one hash,
// numbers) are spread, and brackets the answer by widening steps around the
// guess. A few rounds bring the bounds within a cache line or two when hashes
// are uniform; whatever is left is done by bisection, so that no content makes
// it slower than O(log n).
func (v *view) search(hash uint64, number int64) int64 {
	if hash < v.t.minHash {
		return 0
	}
	lo, hi, below, above := v.confine(hash)
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

// confine returns bounds of where the entries of a hash are, with keys that are outside of them or equal.
func (v *view) confine(hash uint64) (lo, hi int64, below, above Entry) {
	t := v.t
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
	if !isKnown(v.known, uint64(first-1)) && !v.load(uint64(first-1)) {
		return lo, hi, below, above
	}
	samples := t.samples[lo/sampleEvery : min((lo+blockEntries)/sampleEvery, int64(len(t.samples)))]
	k := int64(1) // The first one is below the hash.
	for k < int64(len(samples)) && samples[k].Load() < hash {
		k++
	}
	place := lo
	lo, below = place+(k-1)*sampleEvery+1, Entry{Hash: samples[k-1].Load()}
	for k < int64(len(samples)) && samples[k].Load() == hash {
		k++
	}
	if k < int64(len(samples)) {
		hi, above = place+k*sampleEvery, Entry{Hash: samples[k].Load()}
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
