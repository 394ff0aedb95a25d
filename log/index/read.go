package index

import (
	"iter"
	"math"
	"slices"

	"github.com/annalsdb/annals/event"
)

// Sources are asked without assuming which of them holds which numbers: streams
// that share a hash may have any numbers anywhere. For a stream alone under its
// hash newer sources hold higher numbers, and the bounds below then make all but
// the sources of the answer cost one search each.
//
// An error says that a source could not be read: what it has is not known, so nothing is answered.

// Certain lookups believe nothing because it was right before: what they read of tables is compared
// with its checksum, each time. Who gives numbers goes by them. Others believe what was compared in
// the last ten seconds, but not that something is missing: an answer that lacks a number is looked
// for again, and is certain then.

// Last returns the entry with the highest number of a hash. It is certain.
func (r *reading) Last(hash uint64) (Entry, bool, error) {
	s := r.acquire()
	if s == nil {
		return Entry{}, false, event.ErrClosed
	}
	defer s.release()
	var best Entry
	found, where := false, nowhere
	for _, m := range s.mems {
		if e, ok := m.last(hash); ok && (!found || best.less(e)) {
			best, found, where = e, true, inMemory
		}
	}
	for _, t := range s.tables {
		if found && t.maxNumber < best.Number {
			continue
		}
		e, ok, err := t.last(hash, true)
		if err != nil {
			return Entry{}, false, err
		}
		if ok && (!found || best.less(e)) {
			best, found, where = e, true, inTables
		}
	}
	r.metrics.lookups.count(hash, where)
	return best, found, nil
}

// noLimit is more entries than one number of one hash can have.
const noLimit = math.MaxInt32

// Get appends all entries with a number to dst, by rising position. More than
// one means that streams share the hash.
func (r *reading) Get(dst []Entry, hash uint64, number int64) ([]Entry, error) {
	return get(r, dst, hash, number, false)
}

// GetCertain is a Get that is certain.
func GetCertain(x *Index, dst []Entry, hash uint64, number int64) ([]Entry, error) {
	return get(&x.reading, dst, hash, number, true)
}

func get(r *reading, dst []Entry, hash uint64, number int64, certain bool) (_ []Entry, err error) {
	s := r.acquire()
	if s == nil {
		return nil, event.ErrClosed
	}
	defer s.release()
	start := len(dst)
	for _, m := range s.mems {
		dst = m.ascend(dst, hash, number, number, noLimit)
	}
	fromMemory := len(dst)
	for _, t := range s.tables {
		if dst, err = t.ascend(dst, hash, number, number, noLimit, certain); err != nil {
			return nil, err
		}
	}
	if !certain && len(dst) == start && s.isPlain() {
		return get(r, dst, hash, number, true)
	}
	r.metrics.found(hash, len(dst)-start, len(dst) > fromMemory)
	if len(dst)-start > 1 {
		slices.SortFunc(dst[start:], compareEntries)
	}
	return dst, nil
}

// Ascend appends the lowest max entries numbered from..to (both included) to dst, upwards.
func (r *reading) Ascend(dst []Entry, hash uint64, from, to int64, max int) ([]Entry, error) {
	return ascend(r, dst, hash, from, to, max, false)
}

// Pages of a list of entries grow while it is read on.
const firstPage, largePage = 16, 1024

// Pages reads the entries of a hash page by page.
type Pages struct {
	Index   *Index
	Hash    uint64
	Certain bool
	Read    int // entries so far

	size int // of the last page
}

// Begun reports whether a page was read.
func (p *Pages) Begun() bool { return p.size > 0 }

// Next reads a page of entries from a number on, up to another one, into the memory of dst. It is
// whole if no entries follow.
func (p *Pages) Next(dst []Entry, from, to int64, backward bool) (page []Entry, whole bool, err error) {
	p.size = min(max(firstPage, 2*p.size), largePage)
	read := ascend
	if backward {
		read = descend
	}
	page, err = read(&p.Index.reading, slices.Grow(dst[:0], p.size), p.Hash, from, to, p.size, p.Certain)
	p.Read += len(page)
	return page, len(page) < p.size, err
}

func ascend(r *reading, dst []Entry, hash uint64, from, to int64, max int, certain bool) (_ []Entry, err error) {
	s := r.acquire()
	if s == nil {
		return nil, event.ErrClosed
	}
	defer s.release()
	if max <= 0 || from > to {
		return dst, nil
	}
	start, last, tabled := len(dst), to, false
	for i := len(s.tables) - 1; i >= 0; i-- {
		before := len(dst)
		if dst, err = s.tables[i].ascend(dst, hash, from, to, max, certain); err != nil {
			return nil, err
		}
		tabled = tabled || len(dst) > before
		dst, to = settle(dst, start, before, max, to, compareEntries)
	}
	for i := len(s.mems) - 1; i >= 0; i-- {
		before := len(dst)
		dst = s.mems[i].ascend(dst, hash, from, to, max)
		dst, to = settle(dst, start, before, max, to, compareEntries)
	}
	if !certain && s.isPlain() && lacks(dst[start:], from, last, max, 1) {
		return ascend(r, dst[:start], hash, from, last, max, true)
	}
	r.metrics.found(hash, len(dst)-start, tabled)
	return dst, nil
}

// Descend appends the highest max entries numbered from..downTo (both included) to dst, downwards.
func (r *reading) Descend(dst []Entry, hash uint64, from, downTo int64, max int) ([]Entry, error) {
	return descend(r, dst, hash, from, downTo, max, false)
}

func descend(r *reading, dst []Entry, hash uint64, from, downTo int64, max int, certain bool) (_ []Entry, err error) {
	s := r.acquire()
	if s == nil {
		return nil, event.ErrClosed
	}
	defer s.release()
	if max <= 0 || from < downTo {
		return dst, nil
	}
	start, last, tabled := len(dst), downTo, false
	for _, m := range s.mems {
		before := len(dst)
		dst = m.descend(dst, hash, from, downTo, max)
		dst, downTo = settle(dst, start, before, max, downTo, compareFalling)
	}
	for _, t := range s.tables {
		before := len(dst)
		if dst, err = t.descend(dst, hash, from, downTo, max, certain); err != nil {
			return nil, err
		}
		tabled = tabled || len(dst) > before
		dst, downTo = settle(dst, start, before, max, downTo, compareFalling)
	}
	if !certain && s.isPlain() && lacks(dst[start:], from, last, max, -1) {
		return descend(r, dst[:start], hash, from, last, max, true)
	}
	r.metrics.found(hash, len(dst)-start, tabled)
	return dst, nil
}

// DescendCertain is a Descend that is certain.
func (r *reading) DescendCertain(dst []Entry, hash uint64, from, downTo int64, max int) ([]Entry, error) {
	return descend(r, dst, hash, from, downTo, max, true)
}

// Down yields all entries numbered from..downTo (both included), downwards; those of one number in
// any order. The first error ends it. It is certain.
func (r *reading) Down(hash uint64, from, downTo int64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var buf [8]Entry
		page := buf[:0]
		for size := len(buf); ; size = min(4*size, 4096) {
			var err error
			if page, err = descend(r, page[:0], hash, from, downTo, size, true); err != nil {
				yield(Entry{}, err)
				return
			}
			whole := len(page) < size
			if !whole {
				// Of the lowest number some may have been cut off: streams share the hash.
				lowest := page[size-1].Number
				page = slices.DeleteFunc(page, func(e Entry) bool { return e.Number == lowest })
				if page, err = get(r, page, hash, lowest, true); err != nil {
					yield(Entry{}, err)
					return
				}
				from, whole = lowest-1, lowest <= downTo
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			if whole {
				return
			}
		}
	}
}

// isPlain reports whether there are tables that are not packed. The numbers of packed ones do not
// follow each other, and their blocks are compared each time.
func (s *state) isPlain() bool { return len(s.tables) > 0 && !s.tables[0].packed }

// lacks reports whether an answer lacks one of the numbers from..to, in steps of 1 or -1. One with
// as many entries as were asked for need not reach to.
func lacks(answer []Entry, from, to int64, max int, step int64) bool {
	next := from // that must be there
	for i := range answer {
		switch number := answer[i].Number; {
		case number == next:
			next += step
		case i == 0 || number != answer[i-1].Number: // Streams may share the hash.
			return true
		}
	}
	return len(answer) < max && next != to+step
}

func compareFalling(a, b Entry) int { return compareEntries(b, a) }

// settle joins the sorted runs dst[start:before] and dst[before:], keeps the
// first max entries, and returns the bound for the next source: once there are
// enough entries, only those up to the last of them matter.
func settle(dst []Entry, start, before, max int, bound int64, compare func(a, b Entry) int) ([]Entry, int64) {
	if start < before && before < len(dst) && compare(dst[before-1], dst[before]) > 0 {
		slices.SortFunc(dst[start:], compare)
	}
	if len(dst)-start >= max {
		dst = dst[:start+max]
		bound = dst[len(dst)-1].Number
	}
	return dst, bound
}

// MayExist reports whether a hash may have entries; false is certain.
func (r *reading) MayExist(hash uint64) bool {
	f := r.existence.filter.Load()
	may := f == nil || f.mayContain(hash)
	if !may {
		r.metrics.spared.Add(1)
	}
	return may
}

// TableInfo describes one table on disk.
type TableInfo struct {
	Level   int
	Entries int64
	Streams int64 // distinct hashes
	Bytes   int64 // without the filter
	File    string
}

// Tables lists the tables on disk, from the newest to the oldest.
func (r *reading) Tables() []TableInfo {
	s := r.acquire()
	if s == nil {
		return nil
	}
	defer s.release()
	infos := make([]TableInfo, len(s.tables))
	for i, t := range s.tables {
		infos[i] = TableInfo{Level: t.level, Entries: t.count, Streams: t.hashes, Bytes: t.bytes, File: t.file}
	}
	return infos
}

// Sizes says how large an index is.
type Sizes struct {
	Tables  int   // on disk
	Entries int64 // in tables and in memory
	// distinct hashes ever added, as far as the existence filter tells them apart; 0 without one
	Keys   int64
	Bytes  int64 // of the tables with their filters
	Memory int64 // bytes, without what is mapped
}

// Sizes returns the sizes at the moment, which costs a look at each table and no reading. A closed
// index has none.
func (r *reading) Sizes() (n Sizes) {
	r.read(func(s *state) {
		n.Tables = len(s.tables)
		for _, t := range s.tables {
			n.Entries += t.count
			n.Bytes += t.fileBytes()
			n.Memory += t.memory()
		}
		for _, m := range s.mems {
			n.Entries += m.shown.Load()
			n.Memory += m.bytes()
		}
		if f := r.existence.filter.Load(); f != nil {
			n.Memory += f.bytes()
			for _, l := range *f.layers.Load() {
				n.Keys += l.count.Load()
			}
		}
	})
	return n
}
