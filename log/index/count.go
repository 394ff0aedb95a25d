package index

import (
	"math"

	"github.com/annalsdb/annals/event"
)

// Share is what a part of an index has.
type Share struct {
	Entries int64
	// Hashes is the sum of the distinct hashes of the tables, those in memory included: a hash in
	// several tables counts with each.
	Hashes int64
}

// Shares are those of an index by the highest three bits of hashes.
type Shares [8]Share

const shareShift = 61

func (s *Shares) append(to []byte) []byte {
	for _, share := range s {
		to = le.AppendUint64(le.AppendUint64(to, uint64(share.Entries)), uint64(share.Hashes))
	}
	return to
}

func (s *Shares) add(other *Shares) {
	for i := range s {
		s[i].Entries += other[i].Entries
		s[i].Hashes += other[i].Hashes
	}
}

// shares are those of a packed table: the end of its directory. Plain ones do not have them.
func (t *table) shares() (s Shares) {
	if !t.packed {
		return s
	}
	b := t.directory[len(t.directory)-sumSize-sharesSize:]
	for i := range s {
		s[i] = Share{int64(le.Uint64(b[16*i:])), int64(le.Uint64(b[16*i+8:]))}
	}
	return s
}

// Shares counts all entries of an index of packed tables, without reading one.
func (r *reading) Shares() (sum Shares) {
	r.read(func(s *state) {
		for _, m := range s.mems {
			var of Shares
			for i := range of {
				of[i] = Share{m.shares[i].entries.Load(), m.shares[i].hashes.Load()}
			}
			sum.add(&of)
		}
		for _, t := range s.tables {
			of := t.shares()
			sum.add(&of)
		}
	})
	return sum
}

// Count counts the entries of a hash numbered from..to (both included), however many there are. It
// costs two searches of each table that may have such. In memory it counts all where their numbers
// do not rise.
func (r *reading) Count(hash uint64, from, to int64) (n int64, err error) {
	s := r.acquire()
	if s == nil {
		return 0, event.ErrClosed
	}
	defer s.release()
	for _, m := range s.mems {
		switch head := m.head(hash); {
		case head == nil:
		case head.isDisordered():
			n += int64(head.total())
		default:
			n += int64(m.countUpTo(head, to) - m.countUpTo(head, from-1))
		}
	}
	for _, t := range s.tables {
		of, err := t.countOf(hash, from, to)
		if err != nil {
			return 0, err
		}
		n += of
	}
	return n, nil
}

func (t *table) countOf(hash uint64, from, to int64) (int64, error) {
	if t.outside(from, to) || !t.mayContain(hash) {
		return 0, nil
	}
	r := t.view(false)
	defer r.done()
	end := t.count
	if to < math.MaxInt64 {
		end = r.search(hash, to+1)
	} else if hash < math.MaxUint64 {
		end = r.search(hash+1, math.MinInt64)
	}
	n := end - r.search(hash, from)
	return n, r.err
}
