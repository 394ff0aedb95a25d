package index

import (
	"math"
	"math/bits"
	"slices"
	"sync"
)

// blockRows entries are read at a time from a table that is not mapped.
const blockRows = 170

// sampleEvery is the distance of the entries whose hashes are kept in memory.
const sampleEvery = 128

type block struct {
	data  [blockRows * entrySize]byte
	first int64 // entry at the start of data
	rows  int64
}

var blocks = sync.Pool{New: func() any { return new(block) }}

// view reads single entries of a table. It is used by one goroutine for one lookup.
type view struct {
	t      *table
	rows   []byte
	block  *block // nil when mapped
	failed bool   // a read failed: what at returned is void
}

func (t *table) view() view {
	v := view{t: t, rows: t.rows}
	if v.rows == nil {
		v.block = blocks.Get().(*block)
		v.block.rows = 0
	}
	return v
}

func (v *view) done() {
	if v.block != nil {
		blocks.Put(v.block)
	}
}

func (v *view) at(i int64) Entry {
	if v.rows != nil {
		return getEntry(v.rows[i*entrySize:])
	}
	return v.read(i)
}

func (v *view) read(i int64) Entry {
	b := v.block
	if i < b.first || i >= b.first+b.rows {
		// The entry in the middle serves both directions and the end of a search.
		b.first = max(0, min(i-blockRows/2, v.t.count-blockRows))
		b.rows = min(blockRows, v.t.count-b.first)
		err := readFull(v.t.source.file, b.data[:b.rows*entrySize], tableHeaderSize+b.first*entrySize)
		if err != nil {
			b.rows = 0
			v.failed = true
			v.t.onError(err)
			return Entry{}
		}
	}
	return getEntry(b.data[(i-b.first)*entrySize:])
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
	lo, hi := int64(0), v.t.count
	below := Entry{Hash: v.t.minHash}
	above := Entry{Hash: v.t.maxHash, Number: v.t.maxNumber}
	if hash < below.Hash {
		return 0
	}
	if samples := v.t.samples; samples != nil {
		if first, _ := slices.BinarySearch(samples, hash); first > 0 {
			lo, below = int64(first-1)*sampleEvery+1, Entry{Hash: samples[first-1]}
		}
		if hash < math.MaxUint64 {
			if end, _ := slices.BinarySearch(samples, hash+1); end < len(samples) {
				hi, above = int64(end)*sampleEvery, Entry{Hash: samples[end]}
			}
		}
	}
	for range 6 {
		if hi-lo <= 8 || v.failed {
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
