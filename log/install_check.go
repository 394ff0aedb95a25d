package eventlog

import (
	"errors"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// PreparedChunk is a chunk file fetched from another node, verified as far as that can be done
// without knowing where the log ends. It must be closed.
type PreparedChunk struct {
	l       *Log
	path    string
	first   trailer // of the first frame
	c       *chunk  // held; nil when it was installed or closed
	made    bool    // the file was made here, out of the fetched one, and goes if it is not installed
	fetched string  // path of the fetched file, if the file was made out of it
}

// PrepareChunk verifies a chunk file that was fetched from another node into a
// temporary file: its checksum, its cluster, and that frames, position map and footer agree. It
// makes the file durable. What this node redacted is blanked in it. If a file of this log reaches into it, the part behind that is copied
// to a file of its own. This takes as long as reading it, and runs beside anything else.
func (l *Log) PrepareChunk(tmp string) (*PreparedChunk, error) {
	if err := l.usable(); err != nil {
		return nil, err
	}
	path, err := l.tempPath(tmp)
	if err != nil {
		return nil, err
	}
	c, first, err := l.openFetched(path)
	if err != nil {
		return nil, err
	}
	p := &PreparedChunk{l: l, path: path, first: first, c: c}
	if err := errors.Join(p.redact(), p.fit()); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// openFetched makes a chunk file durable, verifies it, and returns it held, with the trailer of its first frame.
func (l *Log) openFetched(path string) (_ *chunk, first trailer, err error) {
	// A file under its final name counts as whole.
	if err := syncFile(l.opts.FS, path); err != nil {
		return nil, first, err
	}
	c, err := openChunkFile(l.opts.FS, path, 0)
	if err != nil {
		return nil, first, err
	}
	c.retain()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.release())
		}
	}()
	if !c.complete {
		return nil, first, c.corrupt(-1, "the fetched chunk is not complete")
	}
	if c.header.cluster != l.cluster {
		return nil, first, c.corrupt(40, "the chunk belongs to cluster %s, the log to %s", c.header.cluster, l.cluster)
	}
	sum, err := c.computeChecksum(func(b []byte, at int64) error { return readFull(c.file, b, at) })
	if err != nil {
		return nil, first, err
	}
	if sum != c.footer.checksum {
		return nil, first, c.corrupt(-1, "checksum of the whole file does not match")
	}
	if err := c.use(); err != nil {
		return nil, first, err
	}
	if first, err = c.checkContent(); err != nil {
		return nil, first, err
	}
	return c, first, nil
}

func syncFile(fsys vfs.FS, path string) (err error) {
	file, err := fsys.OpenReadWrite(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.Sync()
}

// Close lets go of the file. The fetched one stays where it is, unless it was installed. It is idempotent.
func (p *PreparedChunk) Close() error {
	if p.c == nil {
		return nil
	}
	return p.drop()
}

// drop lets go of the file at hand, and removes it if it was made here.
func (p *PreparedChunk) drop() error {
	c := p.c
	p.c = nil
	c.obsolete.Store(p.made)
	return c.release()
}

// checkContent walks through a complete chunk: every item whole and in its
// place, frames one behind the other, and the position map and the footer saying the same. It returns the first trailer.
func (c *chunk) checkContent() (first trailer, err error) {
	defer guardFaults(&err)()
	f := &c.footer
	limit := headerSize + f.dataSize
	var scratch, entry []byte
	var last trailer
	before := event.Tail{End: c.start()}
	free := c.start()                           // The next item stands here or behind it.
	lowest := int64(-1)                         // position of the first record of the frame at hand
	items, frames, records, stubs := 0, 0, 0, 0 // seen
	for offset := int64(headerSize); offset < limit; {
		it, err := c.itemAt(offset, limit, &scratch)
		if err != nil {
			return first, err
		}
		position := it.position()
		if err := c.checkPlace(items, position, offset, &entry); err != nil {
			return first, err
		}
		if position < free {
			return first, c.corrupt(offset, "position %d stands behind an item that reaches up to %d", position, free)
		}
		items++
		offset += int64(len(it))
		free = position + int64(len(it))
		if !it.isTrailer() {
			if it.isStub() {
				stubs++
			} else {
				records++
			}
			if lowest < 0 {
				lowest = position
			}
			continue
		}
		last = it.trailer()
		switch {
		case last.length == 0 || last.length > MaxFrameBytes || last.first != Place(before.End, last.length) || lowest >= 0 && lowest < last.first:
			return first, c.corrupt(offset-trailerSize, "frame of %d bytes at %d does not belong behind %d", last.length, last.first, before.End)
		case last.index <= before.Index || last.term < before.Term || last.time < before.Time:
			return first, c.corrupt(offset-trailerSize, "frame of index %d and term %d cannot follow index %d and term %d", last.index, last.term, before.Index, before.Term)
		}
		if frames++; frames == 1 {
			first = last
		}
		before = event.Tail{End: EndBehind(last.first, last.length, last.completes), Index: last.index, Term: last.term, Time: last.time}
		lowest = -1
	}
	is := footer{
		mapped: f.mapped, mapSize: f.mapSize, dataSize: f.dataSize, checksum: f.checksum,
		lastCompletes: last.completes, records: records, stubs: stubs, end: last.end(), firstIndex: first.index,
		lastIndex: last.index, lastTerm: last.term, lastTime: last.time, chain: last.chain,
	}
	switch {
	case lowest >= 0:
		return first, c.corrupt(limit, "the last records have no trailer")
	case c.header.mapped && items != c.mapEntries():
		return first, c.corrupt(limit, "the position map has %d entries for %d items", c.mapEntries(), items)
	case is != *f || chunkNumber(f.end-1) != c.header.last:
		return first, c.corrupt(limit+f.mapSize, "the footer does not say what stands before it")
	}
	return first, nil
}

// checkPlace checks that the n-th item of a chunk is where readers look for it.
func (c *chunk) checkPlace(n int, position, offset int64, scratch *[]byte) error {
	at, stands := c.start()+offset-headerSize, offset
	if c.header.mapped {
		if n >= c.mapEntries() {
			return c.corrupt(offset, "the position map does not name the item of position %d", position)
		}
		var err error
		if at, stands, err = c.mapEntry(n, scratch); err != nil {
			return err
		}
	}
	if at != position || stands != offset {
		return c.corrupt(offset, "the item of position %d stands where that of %d belongs", position, at)
	}
	return nil
}
