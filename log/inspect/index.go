package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"path/filepath"
	"sort"
	"strings"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// Names within the folder of the index. They are part of its format.
const (
	indexMapFile   = "indexmap"
	bloomExtension = ".bloomfilter"
)

var existenceCheckpoint = filepath.Join("stream-existence", "streamExistenceFilter.chk")

// entrySum is a checksum of a set of index entries that does not depend on
// their order: what the log says and what the index says are compared without
// sorting either. Two sets that differ have equal sums once in 2^64 cases.
type entrySum struct {
	count int64
	low   uint64
	high  uint64
}

func (s *entrySum) add(hash uint64, number, position int64) {
	x := hash ^ 0x9e3779b97f4a7c15
	h, l := bits.Mul64(x, 0xd6e8feb86659fd93)
	h, l = bits.Mul64(h^l^uint64(number), 0xff51afd7ed558ccd)
	h, l = bits.Mul64(h^l^uint64(position)^0x2545f4914f6cdd1d, 0x9fb21c651e98df25)
	x ^= h ^ l
	h, l = bits.Mul64(x, 0x8bb84b93962eacc9^x>>32)
	s.count++
	s.low += h ^ l
	s.high += bits.RotateLeft64(x, 29) * 0xc4ceb9fe1a85ec53
}

// indexCheck compares the index with the log.
type indexCheck struct {
	n     *inspector
	names *names

	index      *index.Index // nil: there is none to compare with
	checkpoint int64        // up to where the index must know every record, -1 without index
	logSum     entrySum     // over the records below checkpoint
	// entries of the index may have been removed while their records are there
	scavenged bool
	covered   coverage // what the index names; used where scavenged
	voided    map[uint64]bool
	entries   []index.Entry // of one lookup
}

func (r *indexCheck) close() error {
	if r.index == nil {
		return nil
	}
	return r.index.Close()
}

// openIndex opens what there is of an index, before the log is read: its
// checkpoint tells which records it must know.
func (r *indexCheck) openIndex() {
	dir := r.n.o.IndexDir
	names, err := r.n.o.FS.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.n.find(Problem, FindUnreadable, dir, -1, -1, "%v", err)
		return
	}
	listed, tables := false, []string{}
	for _, name := range names {
		listed = listed || name == indexMapFile
		if strings.HasSuffix(name, vfs.TempSuffix) {
			r.n.find(Notice, FindLeftover, filepath.Join(dir, name), -1, -1, "temporary file of work that did not finish")
		} else if id, err := uuid.Parse(strings.TrimSuffix(name, bloomExtension)); err == nil && strings.HasPrefix(name, id.String()) {
			tables = append(tables, name)
		}
	}
	covered, known := r.existence()
	if !listed {
		r.noIndex(tables, covered, err != nil)
		return
	}
	x, err := index.OpenReadOnly(r.n.o.FS, dir)
	if err != nil {
		r.findIndexError(err)
		return
	}
	r.index, r.checkpoint = x, x.Checkpoint()
	if known && covered > r.checkpoint {
		r.n.find(Problem, FindIndex, filepath.Join(dir, existenceCheckpoint), 0, covered, "%d is above the index's checkpoint, %d", covered, r.checkpoint)
	}
	r.indexFiles(tables)
}

// existence reads the checkpoint of the stream-existence filter.
func (r *indexCheck) existence() (int64, bool) {
	data, err := vfs.ReadFile(r.n.o.FS, filepath.Join(r.n.o.IndexDir, existenceCheckpoint))
	if err != nil || len(data) != 8 && len(data) != 16 { // Without and with a checksum.
		return 0, false // Opening the index says so, unless there is none.
	}
	return int64(chunkfile.Order.Uint64(data)), true
}

// noIndex reports an index without the file that names its tables. That is as
// it should be as long as the log is short.
func (r *indexCheck) noIndex(tables []string, covered int64, noFolder bool) {
	path := filepath.Join(r.n.o.IndexDir, indexMapFile)
	if covered > 0 {
		r.n.find(Problem, FindMissing, path, -1, -1, "no such file, though the index was written up to position %d", covered)
		return
	}
	for _, name := range tables {
		r.n.find(Notice, FindLeftover, filepath.Join(r.n.o.IndexDir, name), -1, -1, "index file that nothing names")
	}
	if noFolder && len(r.n.files) > 0 {
		r.n.find(Notice, FindMissing, r.n.o.IndexDir, -1, -1, "there is no index: the next start makes it from the log")
	}
}

// findIndexError reports what kept the index from being opened or read: corruption, or files that
// are gone.
func (r *indexCheck) findIndexError(err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			r.findIndexError(one)
		}
		return
	}
	if c, ok := err.(*event.Corruption); ok {
		kind := FindIndex
		if strings.Contains(c.Detail, "checksum") || strings.Contains(c.Detail, "damaged") {
			kind = FindChecksum
		}
		r.n.find(Problem, kind, c.File, c.Offset, -1, "%s", c.Detail)
		return
	}
	if p, ok := err.(*fs.PathError); ok {
		kind := FindUnreadable
		if errors.Is(err, fs.ErrNotExist) {
			kind = FindMissing
		}
		r.n.find(Problem, kind, p.Path, -1, -1, "%v", p.Err)
		return
	}
	_, corrupt := errors.AsType[*event.Corruption](err)
	_, path := errors.AsType[*fs.PathError](err)
	if corrupt || path {
		r.findIndexError(errors.Unwrap(err))
		return
	}
	r.n.find(Problem, FindUnreadable, r.n.o.IndexDir, -1, -1, "%v", err)
}

// indexFiles reports files that are not of the live set, and missing filters.
func (r *indexCheck) indexFiles(names []string) {
	live := map[string]bool{}
	there := map[string]bool{}
	for _, t := range r.index.Tables() {
		live[t.File], live[t.File+bloomExtension] = true, true
	}
	filters := 0
	for _, name := range names {
		there[name] = true
		if !live[name] {
			r.n.find(Notice, FindLeftover, filepath.Join(r.n.o.IndexDir, name), -1, -1, "index file that nothing names")
		} else if strings.HasSuffix(name, bloomExtension) {
			filters++
		}
	}
	for _, t := range r.index.Tables() {
		r.n.sum.IndexTables++
		r.n.sum.Bytes += t.Bytes
		// An index can be written without filters, but not in part.
		if name := t.File + bloomExtension; filters > 0 && !there[name] {
			r.n.find(Notice, FindMissing, filepath.Join(r.n.o.IndexDir, name), -1, -1, "the filter of an index table is missing, the next start rebuilds it")
		}
	}
}

// inspectIndex reads all entries and compares them with what the walk through the log has seen.
func (r *indexCheck) inspectIndex() (err error) {
	if r.index == nil {
		return nil
	}
	path := filepath.Join(r.n.o.IndexDir, indexMapFile)
	ahead := r.checkpoint > r.n.tail.End
	if ahead {
		r.n.find(Problem, FindIndex, path, -1, r.checkpoint, "the index reaches up to %d, the log only up to %d", r.checkpoint, r.n.tail.End)
	}
	defer func() {
		if c, ok := errors.AsType[*event.Corruption](err); ok {
			r.n.find(Problem, FindUnreadable, r.n.o.IndexDir, -1, -1, "%s", c.Detail)
			err = nil
		}
	}()
	defer chunkfile.GuardFaults(&err)()
	var total int64
	for _, t := range r.index.Tables() {
		total += t.Entries
	}
	if r.scavenged = r.wasScavenged(); r.scavenged {
		r.covered.init(len(r.names.streams.slots))
	}
	sum, whole, err := r.sumIndex(total)
	want := r.logSum
	if err != nil || sum == want {
		return err
	}
	if r.scavenged && whole {
		allowed := false
		if want, allowed, err = r.sumNamed(); err != nil || sum == want && allowed {
			return err
		}
	}
	found := 0
	if !r.n.o.Quick {
		if found, err = r.locateEntries(total); err != nil {
			return err
		}
		// After an unreadable part of a table it is not known what else it holds.
		if whole {
			missing, err := r.locateRecords()
			if err != nil {
				return err
			}
			found += missing
		}
	}
	if found == 0 && whole && !ahead && !r.n.unsure {
		r.n.find(Problem, FindIndex, path, -1, -1, "the log has %d records that the index must know, the index has %d entries: they differ", want.count, sum.count)
	}
	return nil
}

// sumIndex reads all entries, which checks the tables and their filters, and
// sums those whose records must be there. whole says that all could be read.
func (r *indexCheck) sumIndex(total int64) (sum entrySum, whole bool, err error) {
	var before index.Entry
	for e, ierr := range r.index.Entries() {
		if ierr != nil {
			r.findIndexError(ierr)
			return sum, false, nil
		}
		r.n.sum.IndexEntries++
		if r.n.sum.IndexEntries%(1<<20) == 0 {
			if err := r.n.indexProgress(r.n.sum.IndexEntries, total); err != nil {
				return sum, false, err
			}
		}
		if e == before && r.n.sum.IndexEntries > 1 {
			r.n.find(Problem, FindIndex, r.n.o.IndexDir, -1, e.Position, "event %d of the stream with hash %016x is named twice", e.Number, e.Hash)
			continue
		}
		before = e
		exists := r.mustExist(e.Position)
		if exists {
			sum.add(e.Hash, e.Number, e.Position)
		}
		if r.scavenged {
			r.noteEntry(e, exists)
		}
	}
	return sum, true, nil
}

func (n *inspector) indexProgress(done, total int64) error {
	n.o.Progress(Progress{Phase: "index", Done: done, Total: total, Records: n.sum.Records})
	return n.ctx.Err()
}

// mustExist says that an entry with the given position must have its record:
// it lies where records can be read, and is not gone by scavenging.
func (r *indexCheck) mustExist(position int64) bool {
	if r.n.unreadable(position) {
		return false
	}
	c := r.n.chunkAt(position)
	if c == nil || !c.Header.Mapped {
		return position < r.n.tail.End
	}
	var scratch []byte
	offset, there, err := c.Find(position, &scratch)
	if err != nil || !there || c.Footer.Stubs == 0 {
		return err == nil && there
	}
	b, err := c.Bytes(offset, chunkfile.RecordFixed, &scratch)
	return err != nil || b[4] != chunkfile.KindStub
}

// unreadable says that a position lies where records cannot be read.
func (n *inspector) unreadable(position int64) bool {
	if len(n.damaged) == 0 {
		return false
	}
	i := sort.Search(len(n.damaged), func(i int) bool { return n.damaged[i].to > position })
	return i < len(n.damaged) && n.damaged[i].from <= position
}

// chunkAt returns the file that holds a position, nil if there is none or it cannot be read.
func (n *inspector) chunkAt(position int64) *chunkfile.Chunk {
	number := chunkfile.ChunkNumber(position)
	i := sort.Search(len(n.chunks), func(i int) bool { return n.chunks[i].Header.Last >= number })
	if position < 0 || i == len(n.chunks) || n.chunks[i].Header.First > number {
		return nil
	}
	return n.chunks[i]
}

// itemAt returns the item at a position and its offset in the file, nil where there is none.
func (n *inspector) itemAt(position int64) (chunkfile.Item, int64, error) {
	c := n.chunkAt(position)
	if c == nil {
		return nil, 0, nil
	}
	var scratch []byte
	offset, there, err := c.Find(position, &scratch)
	if err != nil || !there {
		return nil, 0, err
	}
	limit, err := dataLimit(c)
	if err != nil {
		return nil, 0, err
	}
	it, err := c.ItemAt(offset, limit, &scratch)
	if err == nil && it.Position() != position {
		err = c.Corrupt(offset, "position %d stands where %d belongs", it.Position(), position)
	}
	return it, offset, err
}

// dataLimit is the offset in a file after what may be data.
func dataLimit(c *chunkfile.Chunk) (int64, error) {
	switch {
	case c.Complete:
		return chunkfile.HeaderSize + c.Footer.DataSize, nil
	case c.Mapped != nil:
		return int64(len(c.Mapped)), nil
	}
	return c.File.Size()
}

// locateEntries finds the entries that do not have their record.
func (r *indexCheck) locateEntries(total int64) (found int, err error) {
	done := int64(0)
	for e, ierr := range r.index.Entries() {
		if ierr != nil {
			return found, nil // Reported before.
		}
		if done++; done%(1<<16) == 0 {
			if err := r.n.indexProgress(done, total); err != nil {
				return found, err
			}
		}
		if !r.mustExist(e.Position) {
			if e.Position >= 0 && (e.Position < r.n.tail.End || r.checkpoint > r.n.tail.End) {
				continue
			}
			found++
			r.n.find(Problem, FindIndex, r.n.o.IndexDir, -1, e.Position, "event %d of the stream with hash %016x is said to be where the log does not reach", e.Number, e.Hash)
			continue
		}
		it, offset, ierr := r.n.itemAt(e.Position)
		file, what := r.n.o.IndexDir, ""
		if c := r.n.chunkAt(e.Position); c != nil {
			file = c.Name
		}
		switch {
		case ierr != nil || it == nil || !it.IsRecord():
			what = "no record begins there"
		case chunkfile.HashStream(chunkfile.String(it.Stream())) != e.Hash || it.Number() != e.Number:
			what = fmt.Sprintf("event %d of stream %s is there", it.Number(), printable(it.Stream()))
		default:
			continue
		}
		found++
		r.n.find(Problem, FindIndex, file, offset, e.Position, "the index names it for event %d of the stream with hash %016x, but %s", e.Number, e.Hash, what)
	}
	return found, nil
}

// locateRecords finds the records that the index does not name.
func (r *indexCheck) locateRecords() (found int, err error) {
	err = r.eachRecord(func(c *chunkfile.Chunk, offset int64, it chunkfile.Item) error {
		hash := it.StreamHash()
		known, err := r.isNamed(hash, it)
		if err == nil && !known && r.scavenged {
			known, err = r.mayBeUnnamed(hash, it)
		}
		if err != nil || known {
			return err
		}
		found++
		r.n.find(Problem, FindIndex, c.Name, offset, it.Position(), "the index does not name event %d of stream %s", it.Number(), printable(it.Stream()))
		return nil
	})
	return found, err
}

// eachRecord calls f with the records that can be read, up to where the index must know them.
func (r *indexCheck) eachRecord(f func(c *chunkfile.Chunk, offset int64, it chunkfile.Item) error) error {
	limit := min(r.checkpoint, r.n.tail.End)
	count := 0
	for _, c := range r.n.chunks {
		if c.Start() >= limit {
			break
		}
		size, err := dataLimit(c)
		if err != nil {
			return err
		}
		var scratch []byte
		for at := int64(chunkfile.HeaderSize); at < size; {
			it, err := c.ItemAt(at, size, &scratch)
			if err != nil || it.Position() >= limit {
				if skip, ok := r.n.behindDamage(c, at); ok {
					at = skip
					continue
				}
				break
			}
			offset := at
			at += int64(len(it))
			if count++; count%(1<<10) == 0 && r.n.ctx.Err() != nil {
				return r.n.ctx.Err()
			}
			if it.IsRecord() {
				if err := f(c, offset, it); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// behindDamage returns where a file can be read again after a damaged place.
func (n *inspector) behindDamage(c *chunkfile.Chunk, offset int64) (int64, bool) {
	if c.Header.Mapped {
		return 0, false
	}
	position := c.Start() + offset - chunkfile.HeaderSize
	for _, s := range n.damaged {
		if s.from <= position && position < s.to && s.to < chunkfile.ChunkStart(c.Header.Last+1) {
			return offset + s.to - position, true
		}
	}
	return 0, false
}
