package eventlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// inspectChunk checks one file in use and what it adds to the log. Damage is
// reported and passed over; only the end of ctx is an error.
func (n *inspector) inspectChunk(path string, last bool) error {
	number, version, _ := parseChunkFileName(filepath.Base(path))
	if number != n.next {
		missing := chunkStart(n.next)
		if n.optional(missing) && n.next > 0 {
			n.end()
			n.behindEnd(path)
			return nil
		}
		n.find(Problem, FindMissing, path, -1, missing, "chunks %d to %d are missing before this file", n.next, number-1)
		n.damage(missing, chunkStart(number))
	}
	n.next = number + 1
	c, err := openChunkFile(n.o.FS, path, version)
	if err != nil {
		if errors.Is(err, errNewerFormat) {
			return err
		}
		if event.IsCorruption(err) && n.optional(chunkStart(number)) {
			n.find(Notice, FindTorn, path, -1, chunkStart(number), "the file was never completely made: %v", detail(err))
			n.end()
			return nil
		}
		n.chunkLost(path, number, err)
		return nil
	}
	n.chunks = append(n.chunks, c)
	n.sum.Chunks++
	if c.header.first != number {
		n.find(Problem, FindUnreadable, path, 16, chunkStart(number), "the header says that the file begins with chunk %d", c.header.first)
		n.damage(chunkStart(number), chunkStart(number+1))
		n.chunks = n.chunks[:len(n.chunks)-1]
		return c.close()
	}
	n.next = c.header.last + 1
	if n.cluster.IsZero() {
		n.cluster = c.header.cluster
		if number == 0 {
			n.tail = event.Tail{Chain: GenesisChain(n.cluster)}
		}
	} else if c.header.cluster != n.cluster {
		n.find(Problem, FindCluster, path, 40, chunkStart(number), "the chunk belongs to cluster %s, the log to %s", c.header.cluster, n.cluster)
	}
	if err := n.inspectData(c, last); err != nil {
		if n.ctx.Err() != nil {
			return err
		}
		// It could not be read: in part, perhaps, but nobody knows up to where.
		n.find(Problem, FindUnreadable, path, -1, c.start(), "%v", detail(err))
		n.damage(c.start(), chunkStart(c.header.last+1))
	}
	return nil
}

// chunkLost reports a file that cannot be opened as a chunk.
func (n *inspector) chunkLost(path string, number int, err error) {
	kind := FindUnreadable
	offset := int64(-1)
	if c, ok := errors.AsType[*event.Corruption](err); ok {
		offset = c.Offset
		// A header that has all its bytes but one was a header.
		if f, ferr := n.o.FS.Open(path); ferr == nil {
			b := make([]byte, headerSize)
			if readFull(f, b, 0) == nil && crc32.Checksum(b[:124], castagnoli) != order.Uint32(b[124:]) {
				kind = FindChecksum
			}
			err = errors.Join(err, f.Close())
		}
	}
	n.find(Problem, kind, path, offset, chunkStart(number), "%v", detail(err))
	n.damage(chunkStart(number), chunkStart(number+1))
}

// detail shortens a corruption to what it says beside file and offset.
func detail(err error) any {
	if c, ok := errors.AsType[*event.Corruption](err); ok {
		return c.Detail
	}
	return err
}

// end says that the valid log ends where the walk is.
func (n *inspector) end() { n.ended = true }

// behindEnd reports a file behind the end of the valid log.
func (n *inspector) behindEnd(path string) {
	number, _, _ := parseChunkFileName(filepath.Base(path))
	n.find(Notice, FindTorn, path, -1, chunkStart(number), "the file lies behind the end of the log at %d: the next start removes it", n.tail.End)
}

// walk is the state within one chunk file.
type walk struct {
	c     *chunk
	data  []byte // the file up to the end of what may be data, header included
	at    int    // offset of what comes next
	frame int    // offset of the first record of the current frame
	hole  int    // offset behind the newest damage, 0 without any in this file

	footed bool  // the last trailer seen is intact and is that of the newest frame
	newest int64 // position of the newest item, -1 before the first
	items  int64 // records seen in this file
	stubs  int64
	first  uint64
	last   trailer

	sum    *xxh3.Hasher // of the whole file, when it is complete
	summed int
	full   []byte // the whole file

	entry int // of the position map, the next one
}

// inspectData maps or reads the file and walks through it.
func (n *inspector) inspectData(c *chunk, last bool) (err error) {
	defer guardFaults(&err)()
	size, err := c.file.Size()
	if err != nil {
		return err
	}
	whole, err := n.content(c, size)
	if err != nil {
		return err
	}
	n.sum.Bytes += size
	w := &walk{c: c, at: headerSize, frame: headerSize, newest: -1, full: whole}
	// Once the next chunk has begun durably, so has the footer been written.
	needsFooter := !n.optional(chunkStart(c.header.last+1) - 1)
	if _, ok := n.chk[writerCheckpoint]; !ok {
		needsFooter = !last
	}
	switch {
	case c.complete:
		w.data = whole[:headerSize+c.footer.dataSize]
		w.sum = xxh3.New()
	default:
		limit := min(size, headerSize+ChunkSize)
		if needsFooter || !last || looksLikeFooter(whole) {
			limit = n.footerLost(w, needsFooter)
		}
		w.data = whole[:limit]
	}
	if c.header.mapped {
		n.sum.Scavenged++
		n.blurred = max(n.blurred, chunkStart(c.header.last+1))
	}
	if err := n.walkFrames(w, !c.complete && last); err != nil || n.ended {
		return err
	}
	if c.complete {
		return n.checkFooter(w)
	}
	if w.footed && w.last.completes {
		n.tail.End = nextChunk(n.tail.End)
	}
	return nil
}

// content returns the bytes of the file. They stay mapped for looking up records; what cannot be mapped is read.
func (n *inspector) content(c *chunk, size int64) ([]byte, error) {
	m, err := c.file.Map(size)
	if err == nil {
		c.mapping, c.mapped = m, m.Bytes()
		file := c.file
		c.file = nil
		return c.mapped[:size], file.Close()
	}
	if !errors.Is(err, vfs.ErrNotMappable) {
		return nil, err
	}
	if int64(cap(n.buf)) < size {
		n.buf = make([]byte, size)
	}
	if err := readFull(c.file, n.buf[:size], 0); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return n.buf[:size], nil
}

// looksLikeFooter says that a file ends in what was a footer.
func looksLikeFooter(whole []byte) bool {
	at := len(whole) - footerSize
	if at < headerSize {
		return false
	}
	same := 0
	for i := range footerMagic {
		if whole[at+i] == footerMagic[i] {
			same++
		}
	}
	return same > len(footerMagic)/2
}

// footerLost reports a footer that is not valid and returns where the data before it may end.
func (n *inspector) footerLost(w *walk, needed bool) int64 {
	size := int64(len(w.full))
	limit := min(size, headerSize+ChunkSize)
	at := int64(-1)
	reason := "the chunk has no footer"
	kind := FindMissing
	if looksLikeFooter(w.full) {
		at = size - footerSize
		limit = min(limit, at)
		_, err := parseFooter(w.full[at:], w.c.header, size)
		kind, reason = FindChecksum, fmt.Sprint(err)
	}
	severity := Problem
	if !needed {
		severity = Notice // It is made again at the next start.
	}
	n.find(severity, kind, w.c.name, at, -1, "%s", reason)
	return limit
}

// walkFrames goes through the items of a file. tip says that the file is the one that was being written.
func (n *inspector) walkFrames(w *walk, tip bool) error {
	n.records = n.records[:0]
	reported := w.at
	for w.at < len(w.data) {
		if w.at-reported >= 32<<20 {
			reported = w.at
			n.progress(w.c.start() + int64(w.at))
			if err := n.ctx.Err(); err != nil {
				return err
			}
		}
		if w.sum != nil && w.at >= w.summed {
			w.addSum()
		}
		it, err := n.parse(w)
		if err != nil {
			if n.ended = n.torn(w, tip, err); n.ended {
				return nil
			}
			n.skip(w, err)
			continue
		}
		if w.c.header.mapped {
			n.checkMapEntry(w, it.position())
		}
		w.newest = it.position()
		if !it.isTrailer() {
			n.records = append(n.records, w.at)
			w.at += len(it)
			continue
		}
		if done := n.endFrame(w, it, tip); done {
			return nil
		}
	}
	if len(n.records) > 0 {
		if n.ended = n.torn(w, tip, errors.New("the records there have no trailer")); n.ended {
			return nil
		}
		w.footed = false
		n.find(Problem, FindFrame, w.c.name, int64(n.records[0]), n.positionAt(w, n.records[0]), "%d records have no trailer", len(n.records))
		n.noteRecords(w, nil)
		n.whole = false
		if !w.c.complete {
			n.damage(n.positionAt(w, w.at), chunkStart(w.c.header.last+1))
		}
	}
	if w.c.header.mapped {
		n.restOfMap(w)
	}
	n.progress(chunkStart(w.c.header.last + 1))
	return n.ctx.Err()
}

// sumStep bytes are summed before they are looked at, so that they come from memory once.
const sumStep = 256 << 10

func (w *walk) addSum() {
	upTo := min(w.at+sumStep, len(w.data))
	_, _ = w.sum.Write(w.data[w.summed:upTo]) // Never fails: it only mixes.
	w.summed = upTo
}

func (n *inspector) progress(position int64) {
	total := max(n.durable(), position)
	if n.durable() == 1<<63-1 {
		total = max(n.bytes, position)
	}
	n.o.Progress(InspectProgress{Phase: "log", Done: position, Total: total, Records: n.sum.Records})
}

// positionAt returns the log position of an offset in a file, -1 where only the position map tells.
func (n *inspector) positionAt(w *walk, offset int) int64 {
	if w.c.header.mapped {
		return -1
	}
	return w.c.start() + int64(offset) - headerSize
}

// parse reads the next item and checks that it is where it belongs.
func (n *inspector) parse(w *walk) (item, error) {
	it, err := parseItem(w.data[w.at:])
	if err != nil {
		return nil, err
	}
	return it, n.placed(w, it, w.at)
}

// placed checks the position that an item at an offset gives for itself.
func (n *inspector) placed(w *walk, it item, at int) error {
	position := it.position()
	if !w.c.header.mapped {
		if it.isStub() {
			return errors.New("a stub in a chunk as it was written")
		}
		if want := n.positionAt(w, at); position != want {
			return fmt.Errorf("position %d stands where %d belongs", position, want)
		}
		return nil
	}
	if position < w.c.start() || position >= w.c.footer.end {
		return fmt.Errorf("position %d lies outside the chunk", position)
	}
	if position <= w.newest {
		return fmt.Errorf("position %d stands behind position %d", position, w.newest)
	}
	return nil
}

// torn reports what follows the last valid frame, if all that must be there is
// there. The next start cuts it off.
func (n *inspector) torn(w *walk, tip bool, err error) bool {
	if !n.optional(n.tail.End) && !(tip && n.lastOfLog(w)) || w.c.header.mapped {
		return false
	}
	from := w.frame
	n.find(Notice, FindTorn, w.c.name, int64(from), n.positionAt(w, from), "%d bytes behind the last valid frame: %v", len(w.data)-from, err)
	n.records = n.records[:0]
	return true
}

// lastOfLog says, when the checkpoint that would tell is not there, that nothing valid follows in the file.
func (n *inspector) lastOfLog(w *walk) bool {
	if _, ok := n.chk[writerCheckpoint]; ok {
		return false
	}
	_, found := n.resync(w, w.at+1)
	return !found
}

// skip reports a damaged item and moves to the next one that is whole.
func (n *inspector) skip(w *walk, err error) {
	next, found := n.resync(w, w.at+1)
	size := len(w.data) - w.at
	if found {
		size = next - w.at
	}
	n.find(Problem, FindItem, w.c.name, int64(w.at), n.positionAt(w, w.at), "%v; %d bytes are passed over", err, size)
	from, to := w.c.start(), chunkStart(w.c.header.last+1)
	if !w.c.header.mapped {
		from = n.positionAt(w, w.at)
		if found || w.c.complete { // Else the rest of the chunk may be lost.
			to = from + int64(size)
		}
	} else if w.newest >= 0 {
		from = w.newest + 1
	}
	w.at += size
	w.hole, w.footed = w.at, false
	n.damage(from, to)
}

// resync finds the next whole item at or behind an offset.
func (n *inspector) resync(w *walk, at int) (int, bool) {
	// Where the damaged one says that it ends, if that is so.
	if size := int(order.Uint32(padded(w.data[w.at:]))); size >= recordFixed && size < len(w.data)-w.at && n.wholeItem(w, w.at+size) {
		return w.at + size, true
	}
	for ; at+recordFixed <= len(w.data); at++ {
		if n.wholeItem(w, at) {
			return at, true
		}
	}
	return len(w.data), false
}

// padded returns the first four bytes of b, which may have fewer.
func padded(b []byte) []byte {
	if len(b) >= 4 {
		return b
	}
	return append(append(make([]byte, 0, 4), b...), make([]byte, 4-len(b))...)
}

func (n *inspector) wholeItem(w *walk, at int) bool {
	b := w.data[at:]
	if len(b) < recordFixed || b[4] != kindRecord && b[4] != kindTrailer && b[4] != kindStub {
		return false
	}
	size := int(order.Uint32(b))
	if size < recordFixed || size > len(b) || order.Uint32(b[size-4:]) != uint32(size) {
		return false
	}
	it, err := parseItem(b)
	return err == nil && n.placed(w, it, at) == nil
}
