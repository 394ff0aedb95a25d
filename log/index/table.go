package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/internal/vfs"
)

// The format of tables: do not change. DESIGN.md has the picture.
const (
	tableVersion    = 2
	tableHeaderSize = 32
	entrySize       = 24
	tableFooterSize = 80
	blockEntries    = 1024 // entries with one checksum; the last block may have fewer
)

var (
	tableMagic  = []byte("ANNALSIX")
	footerMagic = []byte("ANNALSXF")
)

// tableFooter says what a table holds.
type tableFooter struct {
	count     int64
	hashes    int64 // distinct ones
	minHash   uint64
	maxHash   uint64
	minPos    int64
	maxPos    int64
	maxNumber int64
	sum       uint64 // xxh3 of all before the footer
}

// tally is what a table says of its entries: of those so far, which come in their order.
type tally struct {
	tableFooter // but for maxHash and sum
	shares      Shares
	last        Entry
}

// take counts entries of one hash, as a plain table has them, and returns how many it took: all but
// those from the first one on that is not in its place.
func (t *tally) take(rows []byte) (taken int64) {
	e := getEntry(rows)
	share := &t.shares[e.Hash>>shareShift]
	switch {
	case t.count == 0:
		t.minHash, t.minPos, t.maxPos, t.maxNumber = e.Hash, e.Position, e.Position, e.Number
	case e.less(t.last):
		return 0
	}
	if t.count == 0 || e.Hash != t.last.Hash {
		t.hashes++
		share.Hashes++
	}
	number, position := e.Number, e.Position
	for ; len(rows) > 0; rows = rows[entrySize:] {
		e = getEntry(rows)
		if e.Number < number || e.Number == number && e.Position < position {
			break
		}
		number, position = e.Number, e.Position
		t.minPos, t.maxPos = min(t.minPos, position), max(t.maxPos, position)
		taken++
	}
	t.last.Hash, t.last.Number, t.last.Position = e.Hash, number, position
	t.maxNumber = max(t.maxNumber, number)
	t.count += taken
	share.Entries += taken
	return taken
}

// oneHash is the part of rows that has the hash of the first.
func oneHash(rows []byte) []byte {
	n := entrySize
	for hash := le.Uint64(rows); n < len(rows) && le.Uint64(rows[n:]) == hash; {
		n += entrySize
	}
	return rows[:n]
}

func (f *tableFooter) encode() []byte {
	b := make([]byte, 0, tableFooterSize)
	b = append(b, footerMagic...)
	b = le.AppendUint64(b, uint64(f.count))
	b = le.AppendUint64(b, uint64(f.hashes))
	b = le.AppendUint64(b, f.minHash)
	b = le.AppendUint64(b, f.maxHash)
	b = le.AppendUint64(b, uint64(f.minPos))
	b = le.AppendUint64(b, uint64(f.maxPos))
	b = le.AppendUint64(b, uint64(f.maxNumber))
	b = le.AppendUint64(b, f.sum)
	return le.AppendUint64(b, xxh3.Hash(b))
}

func tableHeader(packed bool) []byte {
	magic, version, size := tableMagic, uint32(tableVersion), uint32(entrySize)
	if packed {
		magic, version, size = packedMagic, packedVersion, blockEntries
	}
	b := make([]byte, 0, tableHeaderSize)
	b = append(b, magic...)
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, size)
	return append(b, make([]byte, tableHeaderSize-len(b))...)
}

// directorySize is the size of what a table has between entries and footer.
func directorySize(entries int64, packed bool) int64 {
	if packed {
		return blocksOf(entries)*packedLine + sharesSize + sumSize
	}
	return blocksOf(entries)*2*sumSize + sumSize
}

func blocksOf(entries int64) int64 { return (entries + blockEntries - 1) / blockEntries }

func putEntry(b []byte, e Entry) {
	_ = b[entrySize-1]
	le.PutUint64(b, e.Hash)
	le.PutUint64(b[8:], uint64(e.Number))
	le.PutUint64(b[16:], uint64(e.Position))
}

func getEntry(b []byte) Entry {
	_ = b[entrySize-1]
	return Entry{Hash: le.Uint64(b), Number: int64(le.Uint64(b[8:])), Position: int64(le.Uint64(b[16:]))}
}

// table is an open table file. It is immutable. Every state that lists it holds
// a reference, and so does its maker until it is listed. The last one to
// let go closes it and, when it was replaced, removes its files.
type table struct {
	fsys  vfs.FS
	path  string
	file  string // its name in the folder
	level int
	tableFooter
	packed    bool // its blocks are packed, each entry's number is its position
	bytes     int64
	source    *content
	directory []byte // what is between entries and footer
	// of plain tables: packed ones compare blocks each time and search in the directory
	blocks blockSums
	rows   []byte   // the mapped entries, nil when not mapped
	starts []uint64 // hashes of the first entry of each block
	// hash of the first entry of each part, of blocks that were compared with their sums
	samples  []atomic.Uint64
	filter   *bloom   // nil: none
	metrics  *metrics // of the index; nil in a table that is in none
	damage   *damage  // of the index; nil in a table that is in none
	onError  func(error)
	onFilter func(error) // gets what is wrong with the filter
	onClose  func(error) // gets what goes wrong when the last reference goes
	// the last one that has looked through all of its entries; guarded by Index.mergeTurn
	seenBy *scavenge

	refs   atomic.Int64
	doomed atomic.Bool
}

// openTable opens a table with one reference. It checks all but the entries.
func openTable(fsys vfs.FS, dir, file string, level int) (t *table, err error) {
	t = &table{fsys: fsys, path: filepath.Join(dir, file), file: file, level: level,
		onError: func(error) {}, onFilter: func(error) {}, onClose: func(error) {}}
	if t.source, err = openContent(fsys, t.path); err != nil {
		return nil, err
	}
	if err := t.readFrame(); err != nil {
		return nil, errors.Join(err, t.source.close())
	}
	t.bytes = t.source.size
	if t.source.data != nil && !t.packed {
		t.rows = t.source.data[tableHeaderSize:][:t.count*entrySize]
	}
	t.refs.Store(1)
	return t, nil
}

func (t *table) readFrame() error {
	size := t.source.size
	if size < tableHeaderSize+entrySize+tableFooterSize {
		return corrupt(t.path, 0, "no table has %d bytes", size)
	}
	var header [tableHeaderSize]byte
	if err := readFull(t.source.file, header[:], 0); err != nil {
		return err
	}
	t.packed = bytes.Equal(header[:], tableHeader(true))
	if !t.packed && !bytes.Equal(header[:], tableHeader(false)) {
		return corrupt(t.path, 0, "not a table of a known version")
	}
	var b [tableFooterSize]byte
	at := size - tableFooterSize
	if err := readFull(t.source.file, b[:], at); err != nil {
		return err
	}
	if !bytes.Equal(b[:8], footerMagic) || le.Uint64(b[tableFooterSize-8:]) != xxh3.Hash(b[:tableFooterSize-8]) {
		return corrupt(t.path, at, "damaged footer")
	}
	t.tableFooter = tableFooter{
		count: int64(le.Uint64(b[8:])), hashes: int64(le.Uint64(b[16:])),
		minHash: le.Uint64(b[24:]), maxHash: le.Uint64(b[32:]),
		minPos: int64(le.Uint64(b[40:])), maxPos: int64(le.Uint64(b[48:])), maxNumber: int64(le.Uint64(b[56:])),
		sum: le.Uint64(b[64:]),
	}
	most := size / entrySize
	if t.packed {
		most = size // An entry takes at least a byte.
	}
	if t.count < 1 || t.count > most || t.hashes < 1 || t.hashes > t.count || t.minHash > t.maxHash {
		return corrupt(t.path, at, "footer does not fit the file")
	}
	if begin := at - directorySize(t.count, t.packed); t.packed && begin <= tableHeaderSize ||
		!t.packed && begin != tableHeaderSize+t.count*entrySize {
		return corrupt(t.path, at, "footer does not fit the file")
	}
	return t.readDirectory(at)
}

// readDirectory reads what lies between the entries and the footer.
func (t *table) readDirectory(end int64) error {
	d := make([]byte, directorySize(t.count, t.packed))
	if err := readFull(t.source.file, d, end-int64(len(d))); err != nil {
		return err
	}
	lists := d[:len(d)-sumSize]
	if le.Uint64(d[len(lists):]) != xxh3.Hash(lists) {
		return corrupt(t.path, end-sumSize, "wrong checksum of the directory of blocks")
	}
	t.directory = d
	if t.packed {
		return t.checkSpans()
	}
	hashes, sums := lists[:len(lists)/2], lists[len(lists)/2:]
	t.blocks = newBlockSums(sums, uint64(t.count*entrySize), blockEntries*entrySize, partEntries*entrySize)
	for ; len(hashes) > 0; hashes = hashes[sumSize:] {
		t.starts = append(t.starts, le.Uint64(hashes))
	}
	t.samples = make([]atomic.Uint64, (t.count+partEntries-1)/partEntries)
	return nil
}

// attachFilter opens the table's bloom filter. A missing or damaged filter is rebuilt.
func (t *table) attachFilter() (rebuilt error, err error) {
	b, err := openBloom(t.fsys, t.path+bloomSuffix, t.sum, false)
	if err == nil {
		b.onError = t.onFilter
		t.filter = b
		return nil, nil
	}
	rebuilt = err
	if b, err = buildBloom(context.Background(), t); err != nil {
		return rebuilt, err
	}
	t.filter = b
	if err := writeBloom(t, b); err != nil {
		return rebuilt, err
	}
	return rebuilt, t.fsys.SyncDir(filepath.Dir(t.path))
}

// buildBloom makes a filter of just the right size by reading the table.
func buildBloom(ctx context.Context, t *table) (*bloom, error) {
	b := newBloom(t.hashes)
	return b, t.eachHash(ctx, b.add)
}

// eachHash calls f with every distinct hash of the table.
func (t *table) eachHash(ctx context.Context, f func(uint64)) error {
	s := newScanner(t)
	var last uint64
	for s.next() {
		if s.place%checkEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if s.place == 1 || s.entry.Hash != last {
			f(s.entry.Hash)
		}
		last = s.entry.Hash
	}
	return s.err
}

// offset is where the entry at a place lies in the file, or where its packed block begins.
func (t *table) offset(place int64) int64 {
	if t.packed {
		from, _ := t.span(place / blockEntries)
		return from
	}
	return tableHeaderSize + place*entrySize
}

// listBytes is the memory that the lists for searches take.
func (t *table) listBytes() int64 {
	if t.packed {
		return int64(len(t.directory))
	}
	return 8 * int64(len(t.starts)+len(t.samples))
}

// memory is all the memory that the table takes, in bytes.
func (t *table) memory() int64 {
	n := int64(len(t.directory)) + 4*int64(len(t.blocks.parts)) + 8*int64(len(t.blocks.known)+len(t.starts)+len(t.samples))
	if f := t.filter; f != nil {
		n += 4*int64(len(f.pages.parts)) + 8*int64(len(f.pages.known))
		if f.source == nil {
			n += int64(len(f.data))
		}
	}
	return n
}

// outside reports whether the footer alone says that the table has no entry numbered from..to.
func (t *table) outside(from, to int64) bool { return from > t.maxNumber || t.packed && to < t.minPos }

// fileBytes is the size of the table's files.
func (t *table) fileBytes() int64 {
	if t.filter == nil {
		return t.bytes
	}
	return t.bytes + t.filter.bytes
}

func (t *table) retain() { t.refs.Add(1) }

func (t *table) release() {
	if t.refs.Add(-1) > 0 {
		return
	}
	err := errors.Join(t.filter.close(), t.source.close())
	if t.doomed.Load() {
		// What is damaged was removed when that was found.
		err = errors.Join(err, vfs.RemoveIfThere(t.fsys, t.path), vfs.RemoveIfThere(t.fsys, t.path+bloomSuffix))
	}
	if err != nil {
		t.onClose(fmt.Errorf("let go of index table %s: %w", t.file, err))
	}
}

func (t *table) mayContain(hash uint64) bool {
	return hash >= t.minHash && hash <= t.maxHash && (t.filter == nil || t.filter.mayContain(hash))
}

// suspect reports whether every lookup must check checksums again, because damage was found.
func (t *table) suspect() bool { return t.damage != nil && t.damage.Damage() != nil }

// last returns the entry with the highest number of a hash.
func (t *table) last(hash uint64, certain bool) (e Entry, ok bool, err error) {
	if !t.mayContain(hash) {
		return e, false, nil
	}
	r := t.view(certain)
	defer r.done()
	end := t.count
	if hash < math.MaxUint64 {
		end = r.search(hash+1, math.MinInt64)
	}
	if end > 0 {
		e = r.answer(end - 1)
	}
	ok = end > 0 && e.Hash == hash && r.err == nil
	switch {
	case t.metrics == nil || r.err != nil:
	case ok:
		t.metrics.filterFound.Add(1)
	default:
		t.metrics.filterMistook.Add(1)
	}
	return e, ok, r.err
}

// ascend appends the lowest max entries numbered from..to, upwards.
func (t *table) ascend(dst []Entry, hash uint64, from, to int64, max int, certain bool) ([]Entry, error) {
	if t.outside(from, to) || !t.mayContain(hash) {
		return dst, nil
	}
	r := t.view(certain)
	defer r.done()
	for i := r.search(hash, from); i < t.count && max > 0; i, max = i+1, max-1 {
		e := r.answer(i)
		if e.Hash != hash || e.Number > to || r.err != nil {
			break
		}
		dst = append(dst, e)
	}
	return dst, r.err
}

// descend appends the highest max entries numbered downTo..from, downwards.
func (t *table) descend(dst []Entry, hash uint64, from, downTo int64, max int, certain bool) ([]Entry, error) {
	if t.outside(downTo, from) || !t.mayContain(hash) {
		return dst, nil
	}
	r := t.view(certain)
	defer r.done()
	end := t.count
	switch {
	case from < math.MaxInt64:
		end = r.search(hash, from+1)
	case hash < math.MaxUint64:
		end = r.search(hash+1, math.MinInt64)
	}
	for i := end - 1; i >= 0 && max > 0; i, max = i-1, max-1 {
		e := r.answer(i)
		if e.Hash != hash || e.Number < downTo || r.err != nil {
			break
		}
		dst = append(dst, e)
	}
	return dst, r.err
}
