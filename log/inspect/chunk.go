package inspect

import (
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
)

// inspectChunk checks one file in use and what it adds to the log. Damage is
// reported and passed over; only the end of ctx is an error.
func (k *walker) inspectChunk(path string, last bool) error {
	number, version, _ := chunkfile.ParseFileName(filepath.Base(path))
	if number != k.next {
		missing := chunkfile.ChunkStart(k.next)
		if k.n.optional(missing) && k.next > 0 {
			k.ended = true
			k.behindEnd(path)
			return nil
		}
		k.n.find(Problem, FindMissing, path, -1, missing, "chunks %d to %d are missing before this file", k.next, number-1)
		k.damage(missing, chunkfile.ChunkStart(number))
	}
	k.next = number + 1
	c, err := chunkfile.Open(k.n.o.FS, path, version)
	if err != nil {
		if errors.Is(err, chunkfile.ErrNewer) {
			return err
		}
		k.chunkLost(path, number, err)
		return nil
	}
	k.n.chunks = append(k.n.chunks, c)
	k.n.sum.Chunks++
	if c.Header.First != number {
		k.n.find(Problem, FindUnreadable, path, 16, chunkfile.ChunkStart(number), "the header says that the file begins with chunk %d", c.Header.First)
		k.damage(chunkfile.ChunkStart(number), chunkfile.ChunkStart(number+1))
		k.n.chunks = k.n.chunks[:len(k.n.chunks)-1]
		return c.Close()
	}
	k.next = c.Header.Last + 1
	if k.n.cluster.IsZero() {
		k.n.cluster = c.Header.Cluster
		if number == 0 {
			k.n.tail = event.Tail{Chain: chunkfile.GenesisChain(k.n.cluster)}
		}
	} else if c.Header.Cluster != k.n.cluster {
		k.n.find(Problem, FindCluster, path, 40, chunkfile.ChunkStart(number), "the chunk belongs to cluster %s, the log to %s", c.Header.Cluster, k.n.cluster)
	}
	if err := k.inspectData(c, last); err != nil {
		if k.n.ctx.Err() != nil {
			return err
		}
		// It could not be read. A part may be readable, but it is not known up to where.
		k.n.find(Problem, FindUnreadable, path, -1, c.Start(), "%v", detail(err))
		k.damage(c.Start(), chunkfile.ChunkStart(c.Header.Last+1))
	}
	return nil
}

// chunkLost reports a file that cannot be opened as a chunk.
func (k *walker) chunkLost(path string, number int, err error) {
	kind := FindUnreadable
	offset := int64(-1)
	if c, ok := errors.AsType[*event.Corruption](err); ok {
		offset = c.Offset
		// A header that has all its bytes but one was a header.
		if f, ferr := k.n.o.FS.Open(path); ferr == nil {
			b := make([]byte, chunkfile.HeaderSize)
			if vfs.ReadFull(f, b, 0) == nil && crc32.Checksum(b[:124], chunkfile.Castagnoli) != chunkfile.Order.Uint32(b[124:]) {
				kind = FindChecksum
			}
			err = errors.Join(err, f.Close())
		}
	}
	k.n.find(Problem, kind, path, offset, chunkfile.ChunkStart(number), "%v", detail(err))
	k.damage(chunkfile.ChunkStart(number), chunkfile.ChunkStart(number+1))
}

// detail shortens a corruption to its text without file and offset.
func detail(err error) any {
	if c, ok := errors.AsType[*event.Corruption](err); ok {
		return c.Detail
	}
	return err
}

// behindEnd reports a file after the end of the valid log.
func (k *walker) behindEnd(path string) {
	number, _, _ := chunkfile.ParseFileName(filepath.Base(path))
	if cut, ok := k.n.chk[datadir.TruncateCheckpoint]; ok && cut >= 0 && chunkfile.ChunkStart(number) >= cut {
		k.n.find(Notice, FindTorn, path, -1, chunkfile.ChunkStart(number), "the file lies after the end of the log at %d: the next start removes it", k.n.tail.End)
		return
	}
	k.n.find(Problem, FindTorn, path, -1, chunkfile.ChunkStart(number), "the file lies after the end of the log at %d: a node refuses to start with it", k.n.tail.End)
}

// walk is the state within one chunk file.
type walk struct {
	c     *chunkfile.Chunk
	data  []byte // the file up to the end of what may be data, header included
	at    int    // offset of what comes next
	frame int    // offset of the first record of the current frame
	hole  int    // offset after the newest damage, 0 without any in this file

	footed bool  // the last trailer seen is intact and is that of the newest frame
	newest int64 // position of the newest item, -1 before the first
	items  int64 // records seen in this file
	stubs  int64
	first  uint64
	last   chunkfile.Trailer

	sum    *xxh3.Hasher // of the whole file, when it is complete
	summed int
	full   []byte // the whole file

	entry int // of the position map, the next one
}

// inspectData maps or reads the file and walks through it.
func (k *walker) inspectData(c *chunkfile.Chunk, last bool) (err error) {
	defer chunkfile.GuardFaults(&err)()
	size, err := c.File.Size()
	if err != nil {
		return err
	}
	whole, err := k.content(c, size)
	if err != nil {
		return err
	}
	k.n.sum.Bytes += size
	w := &walk{c: c, at: chunkfile.HeaderSize, frame: chunkfile.HeaderSize, newest: -1, full: whole}
	// Once the next chunk has begun durably, so has the footer been written.
	needsFooter := !k.n.optional(chunkfile.ChunkStart(c.Header.Last+1) - 1)
	if _, ok := k.n.chk[datadir.WriterCheckpoint]; !ok {
		needsFooter = !last
	}
	switch {
	case c.Complete:
		w.data = whole[:chunkfile.HeaderSize+c.Footer.DataSize]
		w.sum = xxh3.New()
	default:
		limit := min(size, chunkfile.HeaderSize+chunkfile.ChunkSize)
		if needsFooter || !last || looksLikeFooter(whole) {
			limit = k.footerLost(w, needsFooter)
		}
		w.data = whole[:limit]
	}
	if c.Header.Mapped {
		k.n.sum.Scavenged++
		k.n.blurred = max(k.n.blurred, chunkfile.ChunkStart(c.Header.Last+1))
	}
	if err := k.walkFrames(w, !c.Complete && last); err != nil || k.ended {
		return err
	}
	if c.Complete {
		return k.checkFooter(w)
	}
	if w.footed && w.last.Completes {
		k.n.tail.End = chunkfile.NextChunk(k.n.tail.End)
	}
	return nil
}

// content returns the bytes of the file. They stay mapped for looking up records; what cannot be
// mapped is read.
func (k *walker) content(c *chunkfile.Chunk, size int64) ([]byte, error) {
	m, err := c.File.Map(size)
	if err == nil {
		c.Mapping, c.Mapped = m, m.Bytes()
		file := c.File
		c.File = nil
		return c.Mapped[:size], file.Close()
	}
	if !errors.Is(err, vfs.ErrNotMappable) {
		return nil, err
	}
	if int64(cap(k.buf)) < size {
		k.buf = make([]byte, size)
	}
	if err := vfs.ReadFull(c.File, k.buf[:size], 0); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return k.buf[:size], nil
}

// looksLikeFooter says that a file ends in what was a footer.
func looksLikeFooter(whole []byte) bool {
	at := len(whole) - chunkfile.FooterSize
	if at < chunkfile.HeaderSize {
		return false
	}
	same := 0
	for i := range chunkfile.FooterMagic {
		if whole[at+i] == chunkfile.FooterMagic[i] {
			same++
		}
	}
	return same > len(chunkfile.FooterMagic)/2
}

// footerLost reports a footer that is not valid and returns where the data before it may end.
func (k *walker) footerLost(w *walk, needed bool) int64 {
	size := int64(len(w.full))
	limit := min(size, chunkfile.HeaderSize+chunkfile.ChunkSize)
	at := int64(-1)
	reason := "the chunk has no footer"
	kind := FindMissing
	if looksLikeFooter(w.full) {
		at = size - chunkfile.FooterSize
		limit = min(limit, at)
		_, err := chunkfile.ParseFooter(w.full[at:], w.c.Header, size)
		kind, reason = FindChecksum, fmt.Sprint(err)
	}
	severity := Problem
	if !needed {
		severity = Notice // It is made again at the next start.
	}
	k.n.find(severity, kind, w.c.Name, at, -1, "%s", reason)
	return limit
}

// walkFrames goes through the items of a file. tip says that the file is the one that was being
// written.
func (k *walker) walkFrames(w *walk, tip bool) error {
	k.records = k.records[:0]
	reported := w.at
	for w.at < len(w.data) {
		if w.at-reported >= 32<<20 {
			reported = w.at
			k.n.progress(w.c.Start() + int64(w.at))
			if err := k.n.ctx.Err(); err != nil {
				return err
			}
		}
		if w.sum != nil && w.at >= w.summed {
			w.addSum()
		}
		it, err := k.parse(w)
		if err != nil {
			if k.ended = k.torn(w, tip, err); k.ended {
				return nil
			}
			k.skip(w, err)
			continue
		}
		if w.c.Header.Mapped {
			k.checkMapEntry(w, it.Position())
		}
		w.newest = it.Position()
		if !it.IsTrailer() {
			k.records = append(k.records, w.at)
			w.at += len(it)
			continue
		}
		if done := k.endFrame(w, it, tip); done {
			return nil
		}
	}
	if len(k.records) > 0 {
		if k.ended = k.torn(w, tip, errors.New("the records there have no trailer")); k.ended {
			return nil
		}
		w.footed = false
		k.n.find(Problem, FindFrame, w.c.Name, int64(k.records[0]), k.positionAt(w, k.records[0]), "%d records have no trailer", len(k.records))
		k.noteRecords(w, nil)
		k.whole = false
		if !w.c.Complete {
			k.damage(k.positionAt(w, w.at), chunkfile.ChunkStart(w.c.Header.Last+1))
		}
	}
	if w.c.Header.Mapped {
		k.restOfMap(w)
	}
	k.n.progress(chunkfile.ChunkStart(w.c.Header.Last + 1))
	return k.n.ctx.Err()
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
	n.o.Progress(Progress{Phase: "log", Done: position, Total: total, Records: n.sum.Records})
}

// positionAt returns the log position of an offset in a file, -1 where only the position map tells.
func (k *walker) positionAt(w *walk, offset int) int64 {
	if w.c.Header.Mapped {
		return -1
	}
	return w.c.Start() + int64(offset) - chunkfile.HeaderSize
}

// parse reads the next item and checks that it is where it belongs.
func (k *walker) parse(w *walk) (chunkfile.Item, error) {
	it, err := chunkfile.ParseItem(w.data[w.at:])
	if err != nil {
		return nil, err
	}
	return it, k.placed(w, it, w.at)
}

// placed checks the position that an item at an offset gives for itself.
func (k *walker) placed(w *walk, it chunkfile.Item, at int) error {
	position := it.Position()
	if !w.c.Header.Mapped {
		return it.Written(k.positionAt(w, at))
	}
	if position < w.c.Start() || position >= w.c.Footer.End {
		return fmt.Errorf("position %d lies outside the chunk", position)
	}
	if position <= w.newest {
		return fmt.Errorf("position %d follows position %d", position, w.newest)
	}
	return nil
}

// torn reports what follows the last valid frame, if all that must be there is
// there. The next start cuts it off.
func (k *walker) torn(w *walk, tip bool, err error) bool {
	if !k.n.optional(k.n.tail.End) && !(tip && k.lastOfLog(w)) || w.c.Header.Mapped {
		return false
	}
	from := w.frame
	k.n.find(Notice, FindTorn, w.c.Name, int64(from), k.positionAt(w, from), "%d bytes after the last valid frame: %v", len(w.data)-from, err)
	k.records = k.records[:0]
	return true
}

// lastOfLog says, when the checkpoint that would tell is not there, that nothing valid follows in
// the file.
func (k *walker) lastOfLog(w *walk) bool {
	if _, ok := k.n.chk[datadir.WriterCheckpoint]; ok {
		return false
	}
	_, found := k.resync(w, w.at+1)
	return !found
}

// skip reports a damaged item and moves to the next one that is whole.
func (k *walker) skip(w *walk, err error) {
	next, found := k.resync(w, w.at+1)
	size := len(w.data) - w.at
	if found {
		size = next - w.at
	}
	k.n.find(Problem, FindItem, w.c.Name, int64(w.at), k.positionAt(w, w.at), "%v; %d bytes are passed over", err, size)
	from, to := w.c.Start(), chunkfile.ChunkStart(w.c.Header.Last+1)
	if !w.c.Header.Mapped {
		from = k.positionAt(w, w.at)
		if found || w.c.Complete { // Else the rest of the chunk may be lost.
			to = from + int64(size)
		}
	} else if w.newest >= 0 {
		from = w.newest + 1
	}
	w.at += size
	w.hole, w.footed = w.at, false
	k.damage(from, to)
}

// resync finds the next whole item at or after an offset.
func (k *walker) resync(w *walk, at int) (int, bool) {
	// Where the damaged one says that it ends, if that is so.
	if rest := w.data[w.at:]; len(rest) > chunkfile.RecordFixed {
		if size := int(chunkfile.Order.Uint32(rest)); size >= chunkfile.RecordFixed && size < len(rest) && k.wholeItem(w, w.at+size) {
			return w.at + size, true
		}
	}
	for ; at+chunkfile.RecordFixed <= len(w.data); at++ {
		if k.wholeItem(w, at) {
			return at, true
		}
	}
	return len(w.data), false
}

func (k *walker) wholeItem(w *walk, at int) bool {
	b := w.data[at:]
	if len(b) < chunkfile.RecordFixed || b[4] != chunkfile.KindRecord && b[4] != chunkfile.KindTrailer && b[4] != chunkfile.KindStub {
		return false
	}
	size := int(chunkfile.Order.Uint32(b))
	if size < chunkfile.RecordFixed || size > len(b) || chunkfile.Order.Uint32(b[size-4:]) != uint32(size) {
		return false
	}
	it, err := chunkfile.ParseItem(b)
	return err == nil && k.placed(w, it, at) == nil
}
