package raftdisk

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// segmentLog is a Raft log in segment files. One write and one sync store what raft gives at a
// time.
//
// Whole pages are written, and bypass the page cache: they are hardly ever read again. The page in
// which the log ends is written again with the next entries. The bytes of earlier entries in it
// stay the same, also when a power cut lets only some of its sectors through.
//
// All but the last segment are read when raft asks for their entries.
type segmentLog struct {
	files *segmentFiles
	mark  *syncMark // changed within writing

	// accept: what is damaged at the end is taken for its end.
	accept bool

	writing sync.Mutex // held by StoreLogs, and by deletions of the end; the others nest in it
	page    []byte     // what the last page holds of the last segment
	buffer  []byte     // what was written last; reused
	asked   uint64     // number of the segment for which the next one was asked for
	failed  error      // a write that failed: nothing is written any more

	deleting sync.Mutex // held while entries are deleted or the head is replaced; mu nests in it

	mu       sync.Mutex     // guards what follows
	head     logHead        // changed within deleting
	segments []*segmentFile // rising
	closed   bool
}

// segmentFile is one of the files. Its fields are guarded by segmentLog.mu, but for what never
// changes.
type segmentFile struct {
	head segmentHead
	file vfs.File // for reading
	out  vfs.File // for writing, of the last one
	last uint64   // index of its last entry, below head.first if it has none

	unfilled bool  // Its blocks were never written.
	found    found // with offsets of all entries, or none; of the last one always
	readers  int   // that use the file
	cuts     int   // how often entries at its end were deleted
	gone     bool  // The last reader closes it.
}

const (
	pageSize = vfs.DirectAlign
	// keptBuffer is how large a buffer for writing may be to be kept.
	keptBuffer = 1 << 20
)

func openSegmentLog(files vfs.FS, path string, logger hclog.Logger) (Backing, error) {
	s, err := openSegments(files, path, segmentSize, logger)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return s, nil
}

func createSegmentLog(files vfs.FS, path string) error {
	if err := files.MkdirAll(path); err != nil {
		return err
	}
	return logHead{}.write(files, path)
}

func openSegments(files vfs.FS, path string, size int64, logger hclog.Logger) (*segmentLog, error) {
	return openSegmentsAs(files, path, size, logger, false)
}

func openSegmentsAs(files vfs.FS, path string, size int64, logger hclog.Logger, accept bool) (_ *segmentLog, err error) {
	s := &segmentLog{accept: accept}
	if s.head, err = readLogHead(files, path); err != nil {
		return nil, err
	}
	var numbers []uint64
	if s.files, numbers, err = openSegmentFiles(files, path, size, logger); err != nil {
		return nil, err
	}
	if s.mark, err = openMark(files, path, logger); err != nil {
		s.files.Close()
		return nil, err
	}
	defer vfs.Undo(&err, s.Close)
	unbegun, err := s.openFiles(numbers)
	if err != nil {
		return nil, err
	}
	if n := len(unbegun) - 1; n >= 0 { // One was about to be begun, another prepared.
		s.files.next = unbegun[n]
		if err := s.files.release(unbegun[:n]...); err != nil {
			return nil, err
		}
	}
	if err := s.recover(); err != nil {
		return nil, err
	}
	// A process before may have ended before it released them.
	return s, s.dropFront()
}

// openFiles opens the segments that were begun, and returns the numbers of the others.
func (s *segmentLog) openFiles(numbers []uint64) (unbegun []uint64, err error) {
	for _, number := range numbers {
		path := segmentPath(s.files.dir, number)
		f, err := s.files.files.Open(path)
		if err != nil {
			return nil, err
		}
		head, begun, err := readSegmentHead(f, number)
		first := uint64(0)
		if err == nil && !begun {
			first, err = damagedHead(f)
		}
		if err == nil && first > 0 && first >= s.head.first && !s.accept {
			err = newRot(f, 0, first, max(first, s.mark.index))
		}
		if err == nil && begun && len(unbegun) > 0 {
			if s.accept { // What is behind a damaged segment is lost with it.
				unbegun, begun = append(unbegun, number), false
			} else {
				err = fmt.Errorf("%w: %w", ErrStateLost, &event.Corruption{File: segmentPath(s.files.dir, unbegun[0]), Detail: "the header of a segment of the Raft log is not what was written"})
			}
		} else if err == nil && !begun {
			unbegun = append(unbegun, number)
		}
		if err != nil || !begun {
			if err = errors.Join(err, f.Close()); err != nil {
				return nil, err
			}
			continue
		}
		s.segments = append(s.segments, &segmentFile{head: head, file: f})
	}
	return unbegun, nil
}

// recover finds where each segment ends.
func (s *segmentLog) recover() error {
	// What the mark says is durable before it counts. On disk may be an older one, which promises
	// entries that are gone, or has those deleted that come next.
	if s.mark.count > 0 {
		if err := s.mark.set(s.mark.segment, s.mark.index, s.mark.cutting); err != nil {
			return err
		}
	}
	if s.mark.cutting { // A crash ended the deletion of what is behind it, which is done here.
		if err := s.dropBehind(func(g *segmentFile) bool { return g.head.first <= s.mark.index }); err != nil {
			return err
		}
	}
	if s.accept {
		if err := s.cutAtDamage(); err != nil {
			return err
		}
	}
	for i := range s.segments[:max(len(s.segments)-1, 0)] {
		s.segments[i].last = s.segments[i+1].head.first - 1
	}
	for n := len(s.segments) - 1; n >= 0; n-- {
		g := s.segments[n]
		last := g.last // 0: not known
		if err := s.recoverLast(g); err != nil {
			return err
		}
		if g.last < last && !s.accept {
			return newRot(g.file, g.found.end, g.last+1, last)
		}
		if len(g.found.offsets) > 0 {
			if s.mark.cutting || s.accept {
				return s.cut(g)
			}
			return nil
		}
		// It was begun, and its first entries are not there.
		s.segments = s.segments[:n]
		if err := errors.Join(g.discard(), s.files.release(g.head.number)); err != nil {
			return err
		}
	}
	if s.mark.index > 0 && s.mark.index >= s.head.first && !s.accept {
		// No segment is left, and nothing deleted them all.
		return &RotError{event.Corruption{File: segmentPath(s.files.dir, s.mark.segment), Detail: "a segment of the Raft log is gone"}, max(s.head.first, 1), s.mark.index}
	}
	return nil
}

// dropBehind releases the segments after the last one that is kept, the last one first: a crash
// must not leave a gap between segments.
func (s *segmentLog) dropBehind(keep func(*segmentFile) bool) error {
	for n := len(s.segments) - 1; n >= 0 && !keep(s.segments[n]); n-- {
		g := s.segments[n]
		s.segments = s.segments[:n]
		if err := errors.Join(g.discard(), s.files.release(g.head.number)); err != nil {
			return err
		}
	}
	return nil
}

// recoverLast finds where the last segment ends, and reads its last page. What is there may be in
// memory alone, after a sync that failed: the kernel holds it for clean, no later sync writes it,
// and a power cut would take away what this process believes in. So it is written once more, with
// the same bytes. All before it was synced, or the process would have ended.
func (s *segmentLog) recoverLast(g *segmentFile) (err error) {
	most := uint64(math.MaxUint64)
	if s.mark.cutting {
		most = s.mark.index - g.head.first + 1
	}
	if g.found, err = scanSegment(g.file, g.head, most); err != nil {
		return err
	}
	g.last = g.head.first + uint64(len(g.found.offsets)) - 1
	if !s.accept {
		if err := s.checkEnd(g); err != nil {
			return err // before anything is written to it
		}
	}
	if err := s.openOut(g); err != nil {
		return err
	}
	if g.found.end%pageSize == 0 { // The cut-off bytes after it must not come back either.
		if _, err := g.out.WriteAt(aligned(pageSize), g.found.end); err != nil {
			return err
		}
	}
	b := aligned(int(min((g.found.end+pageSize-1)/pageSize*pageSize, 1<<20)))
	for at := int64(0); at < g.found.end; at += int64(len(b)) {
		b = b[:min(int64(len(b)), g.found.end-at)]
		if _, err := g.file.ReadAt(b, at); err != nil {
			return err
		}
		if err := writePages(g.out, b, at); err != nil {
			return err
		}
		s.keepPage(b)
	}
	err = g.out.Sync()
	g.file.Uncache()
	return err
}

// openOut opens a segment for writing.
func (s *segmentLog) openOut(g *segmentFile) (err error) {
	if g.out, err = s.files.files.OpenReadWrite(segmentPath(s.files.dir, g.head.number)); err == nil {
		g.out.Direct()
	}
	return err
}

// closeOut closes what it was written through.
func (g *segmentFile) closeOut() error {
	if g.out == nil {
		return nil
	}
	err := g.out.Close()
	g.out = nil
	return err
}

// aligned returns a buffer that begins at a page, and has room for another page after it.
func aligned(size int) []byte {
	b := make([]byte, size+2*pageSize)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (pageSize - 1)
	return b[skip : skip+size : skip+size+pageSize]
}

// writePages writes a buffer from a page on, with zeros up to the end of its last page, for which
// it has room.
func writePages(f vfs.File, b []byte, at int64) error {
	if rest := len(b) % pageSize; rest > 0 {
		n := len(b)
		b = b[:n+pageSize-rest]
		clear(b[n:])
	}
	_, err := f.WriteAt(b, at)
	return err
}

// keepPage remembers the last page of what was written, if it is not full.
func (s *segmentLog) keepPage(b []byte) {
	s.page = append(s.page[:0], b[len(b)/pageSize*pageSize:]...)
}

func (s *segmentLog) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.deleting.Lock()
	defer s.deleting.Unlock()
	s.files.Close()
	err := s.mark.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	for _, g := range s.segments {
		err = errors.Join(err, g.discard())
	}
	return err
}

// discard closes a segment's file, or has its last reader do so.
func (g *segmentFile) discard() error {
	g.gone = true
	err := g.closeOut()
	if g.readers == 0 {
		err = errors.Join(err, g.file.Close())
	}
	return err
}

func (s *segmentLog) FirstIndex() (uint64, error) {
	first, _, err := s.ends()
	return first, err
}

func (s *segmentLog) LastIndex() (uint64, error) {
	_, last, err := s.ends()
	return last, err
}

// ends returns the first and the last index, 0 both if there are no entries.
func (s *segmentLog) ends() (first, last uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, 0, event.ErrClosed
	}
	first, last = s.bounds()
	return first, last, nil
}

func (s *segmentLog) bounds() (first, last uint64) {
	if len(s.segments) == 0 {
		return 0, 0
	}
	first, last = max(s.head.first, s.segments[0].head.first), s.segments[len(s.segments)-1].last
	if first > last {
		return 0, 0
	}
	return first, last
}

// Set stores the creation id.
func (s *segmentLog) Set(key, value []byte) error {
	if !bytes.Equal(key, keyCreation) {
		return fmt.Errorf("a Raft log has no place for %q", key)
	}
	s.deleting.Lock()
	defer s.deleting.Unlock()
	return s.setHead(func(h *logHead) { h.creation = bytes.Clone(value) })
}

func (s *segmentLog) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(key, keyCreation) || len(s.head.creation) == 0 {
		return nil, raftboltdb.ErrKeyNotFound
	}
	return bytes.Clone(s.head.creation), nil
}

// setHead changes the head on disk, then in memory. The caller holds deleting.
func (s *segmentLog) setHead(change func(*logHead)) error {
	next := s.head
	change(&next)
	if err := next.write(s.files.files, s.files.dir); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head = next
	return nil
}

func (s *segmentLog) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries that follow the last one. A crash before it returns leaves any number of
// them.
func (s *segmentLog) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.failed != nil {
		return s.failed
	}
	_, last, err := s.ends()
	if err != nil {
		return err
	}
	size := int64(0)
	for i, log := range logs {
		if want := last + 1 + uint64(i); last > 0 && log.Index != want || log.Index != logs[0].Index+uint64(i) || log.Index == 0 {
			return fmt.Errorf("entry %d given where %d is next in the Raft log", log.Index, want)
		}
		size += int64(entrySize(log))
	}
	if s.failed = s.store(logs, size); s.failed != nil {
		return s.failed
	}
	return nil
}

func (s *segmentLog) store(logs []*raft.Log, size int64) error {
	last, err := s.last(logs[0].Index)
	if err != nil {
		return err
	}
	g := last
	begins := last == nil || last.found.end+size > s.files.size || last.unfilled && s.files.ready()
	if begins {
		if g, err = s.begin(last, logs[0].Index); err != nil {
			return err
		}
	}
	b, page := s.start(g, begins)
	next := g.found
	mark := g.head.mark()
	for i, log := range logs {
		n := entrySize(log)
		if need := len(b) + n; need > cap(b)-pageSize {
			b = append(aligned(2 * need)[:0], b...)
		}
		next.offsets = append(next.offsets, uint32(next.end/entryAlign)) // Readers know of fewer.
		b, next.sum = appendEntry(b, log, next.sum, mark, i)
		next.end += int64(n)
	}
	if s.buffer = b; cap(b) > keptBuffer {
		s.buffer = nil
	}
	err = writePages(g.out, b, page)
	if err == nil {
		err = g.out.Sync()
	}
	if err == nil && begins && g.unfilled {
		err = s.files.files.SyncDir(s.files.dir)
	}
	if err == nil {
		err = s.mark.note(g.head.number, logs[len(logs)-1].Index)
	}
	if err != nil && begins {
		err = errors.Join(err, g.discard())
	}
	if err != nil {
		return err
	}
	s.keepPage(b)
	if s.asked != g.head.number && (g.unfilled || next.end > s.files.size/2) {
		s.asked = g.head.number
		s.files.prepare()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.found, g.last = next, logs[len(logs)-1].Index
	if !begins {
		return nil
	}
	for _, before := range s.segments[:max(len(s.segments)-1, 0)] {
		before.found.offsets = nil // They are read again for a follower that lags so much.
	}
	s.segments = append(s.segments, g)
	if last == nil {
		return nil
	}
	return last.closeOut()
}

// last returns the last segment, nil if the log is empty, and is to have an entry.
func (s *segmentLog) last(first uint64) (g *segmentFile, err error) {
	s.mu.Lock()
	deleted := s.head.first
	if n := len(s.segments); n > 0 {
		g = s.segments[n-1]
	}
	s.mu.Unlock()
	if g == nil && first < deleted {
		s.deleting.Lock()
		defer s.deleting.Unlock()
		// What the mark had is deleted, and what comes may end below it.
		if err = s.mark.set(0, 0, false); err == nil {
			err = s.setHead(func(h *logHead) { h.first = 0 })
		}
	}
	return g, err
}

// begin makes the segment that follows another, if there is one.
func (s *segmentLog) begin(last *segmentFile, first uint64) (_ *segmentFile, err error) {
	g := &segmentFile{head: segmentHead{first: first}}
	if last != nil {
		g.head.before = last.found.sum
	}
	if g.head.number, g.unfilled, err = s.files.begin(); err != nil {
		return nil, err
	}
	if g.file, err = s.files.files.Open(segmentPath(s.files.dir, g.head.number)); err != nil {
		return nil, err
	}
	if err := s.openOut(g); err != nil {
		return nil, errors.Join(err, g.file.Close())
	}
	return g, nil
}

// start returns what is written before the next entries, from a page of a segment on.
func (s *segmentLog) start(g *segmentFile, begins bool) (b []byte, page int64) {
	if b = s.buffer[:0]; cap(b) == 0 {
		b = aligned(64 << 10)[:0]
	}
	if !begins {
		return append(b, s.page...), g.found.end / pageSize * pageSize
	}
	b = g.head.appendTo(b)
	g.found = found{end: segmentHeader, sum: g.head.sum}
	return b, 0
}
