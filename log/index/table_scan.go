package index

import (
	"slices"

	"github.com/zeebo/xxh3"
)

// scanner reads a table from front to back in large pieces. When it reaches the
// end it has checked all that the footer says; a mismatch is its error.
type scanner struct {
	t     *table
	entry Entry // the current one
	err   error

	buf    []byte
	packed []byte // what buf was unpacked from
	rest   []byte // unread part of buf
	piece  int64  // bytes of the file that were read last
	place  int64  // of the next entry
	offset int64  // in the file, of what is read next
	hash   *xxh3.Hasher
	got    tableFooter
	shares Shares
}

func newScanner(t *table) *scanner {
	most := ioBuffer / entrySize * entrySize
	if t.packed {
		most = ioBuffer / (blockEntries * entrySize) * (blockEntries * entrySize)
	}
	return &scanner{t: t, buf: make([]byte, min(int64(most), t.count*entrySize)), offset: tableHeaderSize, hash: xxh3.New()}
}

// next moves to the next entry. It returns false at the end and on errors.
func (s *scanner) next() bool {
	if len(s.rest) == 0 && !s.fill() {
		return false
	}
	e := getEntry(s.rest)
	s.rest = s.rest[entrySize:]
	if s.place == 0 {
		s.got = tableFooter{hashes: 1, minHash: e.Hash, minPos: e.Position, maxPos: e.Position, maxNumber: e.Number}
	} else {
		if e.less(s.entry) {
			s.err = corrupt(s.t.path, s.t.offset(s.place), "entries out of order")
			return false
		}
		s.got.minPos = min(s.got.minPos, e.Position)
		s.got.maxPos = max(s.got.maxPos, e.Position)
		s.got.maxNumber = max(s.got.maxNumber, e.Number)
		if e.Hash != s.entry.Hash {
			s.got.hashes++
		}
	}
	share := &s.shares[e.Hash>>shareShift]
	share.Entries++
	if s.place == 0 || e.Hash != s.entry.Hash {
		share.Hashes++
	}
	s.place++
	s.entry = e
	return true
}

func (s *scanner) fill() bool {
	if s.err != nil {
		return false
	}
	if s.place == 0 {
		if _, s.err = s.hash.Write(tableHeader(s.t.packed)); s.err != nil {
			return false
		}
	}
	left := (s.t.count - s.place) * entrySize
	if left == 0 {
		if _, s.err = s.hash.Write(s.t.directory); s.err != nil {
			return false
		}
		s.got.count, s.got.maxHash, s.got.sum = s.place, s.entry.Hash, s.hash.Sum64()
		if s.got != s.t.tableFooter || s.t.packed && s.shares != s.t.shares() {
			s.err = corrupt(s.t.path, s.offset, "content does not fit the checksum and metrics of the footer")
		}
		return false
	}
	s.rest = s.buf[:min(left, int64(len(s.buf)))]
	if s.err = s.read(); s.err != nil {
		s.rest = nil
		return false
	}
	return true
}

// read fills rest with the next entries.
func (s *scanner) read() error {
	raw, number := s.rest, s.place/blockEntries
	if s.t.packed {
		_, end := s.t.span(number + blocksOf(int64(len(raw))/entrySize) - 1)
		s.packed = slices.Grow(s.packed[:0], int(end-s.offset))[:end-s.offset]
		raw = s.packed
	}
	if err := readFull(s.t.source.file, raw, s.offset); err != nil {
		return err
	}
	if _, err := s.hash.Write(raw); err != nil {
		return err
	}
	begin := s.offset
	s.piece = int64(len(raw))
	s.offset += s.piece
	if !s.t.packed {
		return nil
	}
	for rows := range slices.Chunk(s.rest, blockEntries*entrySize) {
		from, to := s.t.span(number)
		if err := s.t.unpackBlock(rows, raw[from-begin:to-begin], number); err != nil {
			return err
		}
		number++
	}
	return nil
}

// mergeReader reads several tables as one sorted sequence.
type mergeReader struct {
	tables []*scanner // those that are not at their end
	from   *scanner   // the one that has the entry; nil before the first
	entry  Entry
	err    error
}

func newMergeReader(tables []*table) *mergeReader {
	m := &mergeReader{}
	for _, t := range tables {
		s := newScanner(t)
		if m.err == nil && !s.next() { // A table has at least one entry.
			m.err = s.err
		}
		m.tables = append(m.tables, s)
	}
	return m
}

func (m *mergeReader) next() bool {
	if m.err != nil {
		return false
	}
	if m.from != nil && !m.from.next() {
		if m.err = m.from.err; m.err != nil {
			return false
		}
		m.tables = slices.DeleteFunc(m.tables, func(s *scanner) bool { return s == m.from })
	}
	if len(m.tables) == 0 {
		return false
	}
	m.from = m.tables[0]
	for _, s := range m.tables[1:] { // There are few.
		if s.entry.less(m.from.entry) {
			m.from = s
		}
	}
	m.entry = m.from.entry
	return true
}
