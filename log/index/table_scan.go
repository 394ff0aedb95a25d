package index

import (
	"slices"
	"sort"

	"github.com/zeebo/xxh3"
)

// scanner reads a table from front to back in large pieces. When it reaches the
// end it has checked all that the footer says; a mismatch is its error.
type scanner struct {
	t     *table
	entry Entry  // the current one
	row   []byte // the same, as a plain table has it
	err   error

	buf    []byte
	packed []byte // what buf was unpacked from
	rest   []byte // unread part of buf
	piece  int64  // bytes of the file that were read last
	place  int64  // of the next entry
	offset int64  // in the file, of what is read next
	hash   *xxh3.Hasher
	got    tally // of what was read
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
	s.move(1)
	s.entry = getEntry(s.row)
	return true
}

// move makes the first entries of rest the current ones.
func (s *scanner) move(entries int) {
	s.row, s.rest = s.rest[:entries*entrySize], s.rest[entries*entrySize:]
	s.place += int64(entries)
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
		s.got.maxHash, s.got.sum = s.got.last.Hash, s.hash.Sum64()
		if s.got.tableFooter != s.t.tableFooter || s.t.packed && s.got.shares != s.t.shares() {
			s.err = corrupt(s.t.path, s.offset, "content does not fit the checksum and metrics of the footer")
		}
		return false
	}
	s.rest = s.buf[:min(left, int64(len(s.buf)))]
	if s.err = s.read(); s.err == nil {
		s.err = s.count()
	}
	if s.err != nil {
		s.rest = nil
		return false
	}
	return true
}

// count counts what rest has, and makes sure of its order.
func (s *scanner) count() error {
	for rows := s.rest; len(rows) > 0; {
		run := oneHash(rows)
		if taken := s.got.take(run) * entrySize; taken < int64(len(run)) {
			return corrupt(s.t.path, s.t.offset(s.got.count), "entries out of order")
		}
		rows = rows[len(run):]
	}
	return nil
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
	from   *scanner   // the one that has the rows; nil before the first
	rows   []byte     // entries of one hash, as a plain table has them
	err    error
}

// mergeMost entries are taken of a table at a time: where those of two tables alternate, each one
// taken costs a look at so many.
const mergeMost = 256

func newMergeReader(tables []*table) *mergeReader {
	m := &mergeReader{}
	for _, t := range tables {
		s := newScanner(t)
		if m.err == nil && !s.fill() { // A table has at least one entry.
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
	if m.from != nil && len(m.from.rest) == 0 && !m.from.fill() {
		if m.err = m.from.err; m.err != nil {
			return false
		}
		m.tables = slices.DeleteFunc(m.tables, func(s *scanner) bool { return s == m.from })
	}
	if len(m.tables) == 0 {
		return false
	}
	m.from = m.tables[0]
	least := getEntry(m.from.rest)
	for _, s := range m.tables[1:] { // There are few.
		if e := getEntry(s.rest); e.less(least) {
			m.from, least = s, e
		}
	}
	rows := oneHash(m.from.rest[:min(len(m.from.rest), mergeMost*entrySize)])
	n := len(rows) / entrySize
	for _, s := range m.tables {
		if e := getEntry(s.rest); s != m.from && e.Hash == least.Hash {
			n = sort.Search(n, func(i int) bool { return e.less(getEntry(rows[i*entrySize:])) })
		}
	}
	m.from.move(n)
	m.rows = m.from.row
	return true
}
