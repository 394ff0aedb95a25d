package eventlog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// chunk is one open chunk file. All but the active one are complete and never
// change. A chunk is closed when its last holder lets go: the log's own list of
// chunks is one holder, each chunkSet that has the chunk another.
type chunk struct {
	fs      vfs.FS
	name    string // path
	version int
	header  header

	file    vfs.File    // nil when the chunk is complete and mapped
	mapping vfs.Mapping // nil where files cannot be mapped
	mapped  []byte      // of mapping

	// Of the complete chunk; zero in the active one.
	complete bool
	footer   footer

	damages atomic.Pointer[damages] // gets what reads meet; nil until the log uses the chunk
	lost    atomic.Bool             // the position map is damaged: nothing may be looked up by it

	holders  atomic.Int32
	obsolete atomic.Bool // the file goes when the chunk is closed
	closed   chan struct{}
}

func (c *chunk) retain() { c.holders.Add(1) }

// release lets go of the chunk; the last holder closes it.
func (c *chunk) release() error {
	if c.holders.Add(-1) > 0 {
		return nil
	}
	return c.close()
}

// rewritten reports whether the file was made from others: records may be gone,
// or not be what their frame's chain was computed over.
func (c *chunk) rewritten() bool { return c.header.mapped || c.version > 0 }

// read fills b with the bytes of the file at offset.
func (c *chunk) read(b []byte, offset int64) error {
	if c.mapped == nil {
		return readFull(c.file, b, offset)
	}
	if offset < 0 || offset+int64(len(b)) > int64(len(c.mapped)) {
		return io.ErrUnexpectedEOF
	}
	copy(b, c.mapped[offset:])
	return nil
}

func (c *chunk) start() int64 { return chunkStart(c.header.first) }
func (c *chunk) corrupt(offset int64, format string, args ...any) error {
	err := &event.Corruption{File: c.name, Offset: offset, Detail: fmt.Sprintf(format, args...)}
	if d := c.damages.Load(); d != nil {
		d.suspect(c, err)
	}
	return err
}

// openChunk opens a chunk file. Without a valid footer the chunk comes back incomplete.
func openChunk(fs vfs.FS, dir, name string) (c *chunk, err error) {
	number, version, ok := parseChunkFileName(name)
	if !ok {
		return nil, fmt.Errorf("open chunk %s: not the name of a chunk", name)
	}
	c, err = openChunkFile(fs, filepath.Join(dir, name), version)
	if err == nil && c.header.first != number {
		err = errors.Join(c.corrupt(16, "the file holds chunk %d", c.header.first), c.close())
	}
	return c, err
}

func openChunkFile(fs vfs.FS, path string, version int) (c *chunk, err error) {
	file, err := fs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open chunk: %w", err)
	}
	c = &chunk{fs: fs, name: path, version: version, file: file, closed: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	size, err := file.Size()
	if err != nil {
		return nil, fmt.Errorf("open chunk: %w", err)
	}
	if size < headerSize {
		return nil, c.corrupt(0, "%d bytes are too few for a header", size)
	}
	head := make([]byte, headerSize)
	if err := readFull(file, head, 0); err != nil {
		return nil, fmt.Errorf("read header of %s: %w", path, err)
	}
	if c.header, err = parseHeader(head); errors.Is(err, errNewerFormat) {
		return nil, fmt.Errorf("open chunk %s: %w", path, err)
	} else if err != nil {
		return nil, c.corrupt(0, "%v", err)
	}
	if size < headerSize+footerSize {
		if c.header.mapped {
			return nil, c.corrupt(size, "the footer is missing")
		}
		return c, nil
	}
	foot := make([]byte, footerSize)
	if err := readFull(file, foot, size-footerSize); err != nil {
		return nil, fmt.Errorf("read footer of %s: %w", path, err)
	}
	if f, err := parseFooter(foot, c.header, size); err == nil {
		c.footer, c.complete = f, true
	} else if c.header.mapped {
		return nil, c.corrupt(size-footerSize, "%v", err)
	}
	return c, nil
}

// use prepares the chunk for readers: mapped where the file system can, else read through the open file.
func (c *chunk) use() error {
	size := int64(headerSize) + ChunkSize + footerSize
	if c.complete {
		size = headerSize + c.footer.dataSize + c.footer.mapSize + footerSize
	}
	m, err := c.file.Map(size)
	if errors.Is(err, vfs.ErrNotMappable) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("map chunk: %w", err)
	}
	c.mapping, c.mapped = m, m.Bytes()
	file := c.file
	c.file = nil
	return file.Close()
}

// openForReaders opens a chunk file and prepares it for readers.
func openForReaders(fs vfs.FS, path string, version int) (*chunk, error) {
	c, err := openChunkFile(fs, path, version)
	if err != nil {
		return nil, err
	}
	if err := c.use(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close is called once.
func (c *chunk) close() error {
	defer close(c.closed)
	var err error
	if c.mapping != nil {
		err = c.mapping.Close()
		c.mapping, c.mapped = nil, nil
	}
	if c.file != nil {
		err = errors.Join(err, c.file.Close())
		c.file = nil
	}
	if c.obsolete.Load() {
		err = errors.Join(err, c.fs.Remove(c.name))
	}
	return err
}

// bytes returns n bytes of the file at offset: of the mapping, or read into scratch, which it may replace.
func (c *chunk) bytes(offset int64, n int, scratch *[]byte) ([]byte, error) {
	if c.mapped != nil {
		if offset+int64(n) > int64(len(c.mapped)) {
			return nil, c.corrupt(offset, "%d bytes reach beyond the file", n)
		}
		return c.mapped[offset : offset+int64(n)], nil
	}
	if cap(*scratch) < n {
		*scratch = make([]byte, max(n, 4096))
	}
	b := (*scratch)[:n]
	if err := readFull(c.file, b, offset); err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", c.name, offset, err)
	}
	return b, nil
}

// dataEnd is the offset behind the data that belongs to the log up to the position end.
//
// A set may hold a chunk that was completed after its tail was published: then
// too nothing behind the tail is shown. Rewritten chunks lie wholly below any tail.
func (c *chunk) dataEnd(end int64) int64 {
	switch {
	case c.header.mapped:
		return headerSize + c.footer.dataSize
	case c.complete:
		return headerSize + min(end-c.start(), c.footer.dataSize)
	}
	return headerSize + min(end-c.start(), ChunkSize)
}

// itemAt reads the item at an offset of the file. limit is the offset behind the last byte that may be touched.
func (c *chunk) itemAt(offset, limit int64, scratch *[]byte) (item, error) {
	if limit-offset < recordFixed {
		return nil, c.corrupt(offset, "no record begins there")
	}
	var b []byte
	var err error
	if c.mapped != nil {
		if limit > int64(len(c.mapped)) {
			return nil, c.corrupt(offset, "data reach beyond the file")
		}
		b = c.mapped[offset:limit]
	} else {
		if b, err = c.bytes(offset, 4, scratch); err != nil {
			return nil, err
		}
		size := int64(order.Uint32(b))
		if size < recordFixed || size > limit-offset {
			return nil, c.corrupt(offset, "length %d does not fit the %d bytes there", size, limit-offset)
		}
		if b, err = c.bytes(offset, int(size), scratch); err != nil {
			return nil, err
		}
	}
	it, err := parseItem(b)
	if err != nil {
		return nil, c.corrupt(offset, "%v", err)
	}
	if it.isStub() && !c.header.mapped {
		return nil, c.corrupt(offset, "a stub in a chunk as it was written")
	}
	return it, nil
}

// itemBefore reads the item that ends at an offset of the file.
func (c *chunk) itemBefore(offset int64, scratch *[]byte) (item, int64, error) {
	if offset-headerSize < recordFixed {
		return nil, 0, c.corrupt(offset, "no record ends there")
	}
	b, err := c.bytes(offset-4, 4, scratch)
	if err != nil {
		return nil, 0, err
	}
	size := int64(order.Uint32(b))
	if size < recordFixed || size > offset-headerSize {
		return nil, 0, c.corrupt(offset-4, "length %d does not fit the %d bytes before it", size, offset-headerSize)
	}
	it, err := c.itemAt(offset-size, offset, scratch)
	if err == nil && int64(len(it)) != size {
		err = c.corrupt(offset-size, "length %d is not repeated at the end", len(it))
	}
	return it, offset - size, err
}

// mapEntries is the number of items that a position map names.
func (c *chunk) mapEntries() int { return int(c.footer.mapSize / mapEntrySize) }

// mapEntry returns the i-th entry of the position map.
func (c *chunk) mapEntry(i int, scratch *[]byte) (position, offset int64, err error) {
	b, err := c.bytes(headerSize+c.footer.dataSize+int64(i)*mapEntrySize, mapEntrySize, scratch)
	if err != nil {
		return 0, 0, err
	}
	return int64(order.Uint64(b)), int64(order.Uint32(b[8:])), nil
}

// search returns the index of the first entry of the position map that is at or behind a position.
//
// It guesses from how far the position lies between those that are known, brackets the
// answer by widening steps around the guess, and does what is left by bisection:
// mostly a few lines of the cache are looked at.
func (c *chunk) search(position int64) (int, error) {
	if c.lost.Load() {
		return 0, c.corrupt(headerSize+c.footer.dataSize, "the position map is damaged")
	}
	var scratch []byte
	lo, hi := 0, c.mapEntries() // lo <= answer <= hi
	below, above := c.start(), c.footer.end
	for range 4 {
		if hi-lo <= 8 {
			break
		}
		guess := hi - 1
		if position < above && below < above { // Else it is behind all, or the map is damaged.
			part := float64(max(position-below, 0)) / float64(above-below)
			guess = min(lo+int(part*float64(hi-lo)), hi-1)
		}
		at, _, err := c.mapEntry(guess, &scratch)
		if err != nil {
			return 0, err
		}
		step := 4
		if at < position {
			lo, below = guess+1, at
			for p := guess + step; p < hi; p += step {
				if at, _, err = c.mapEntry(p, &scratch); err != nil {
					return 0, err
				}
				if at >= position {
					hi, above = p, at
					break
				}
				lo, below = p+1, at
				step *= 2
			}
			continue
		}
		hi, above = guess, at
		for p := guess - step; p >= lo; p -= step {
			if at, _, err = c.mapEntry(p, &scratch); err != nil {
				return 0, err
			}
			if at < position {
				lo, below = p+1, at
				break
			}
			hi, above = p, at
			step *= 2
		}
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		at, _, err := c.mapEntry(mid, &scratch)
		if err != nil {
			return 0, err
		}
		if at < position {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// computeChecksum reads the whole complete file and returns what its checksum should be.
func (c *chunk) computeChecksum(read func(b []byte, at int64) error) ([16]byte, error) {
	end := headerSize + c.footer.dataSize + c.footer.mapSize + footerChecksumAt
	h := xxh3.New()
	buf := make([]byte, 1<<20)
	for at := int64(0); at < end; {
		n := min(int64(len(buf)), end-at)
		if err := read(buf[:n], at); err != nil {
			return [16]byte{}, fmt.Errorf("read %s at %d: %w", c.name, at, err)
		}
		if _, err := h.Write(buf[:n]); err != nil {
			return [16]byte{}, err
		}
		at += n
	}
	return h.Sum128().Bytes(), nil
}

// verify compares the file with its checksum, reading it through a handle of its own.
func (c *chunk) verify(pause func(bytes int64) error) (err error) {
	file, err := c.fs.Open(c.name)
	if err != nil {
		return fmt.Errorf("verify chunk: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := c.verifyEnds(file); err != nil {
		return err
	}
	var readErr error
	sum, err := c.computeChecksum(func(b []byte, at int64) error {
		if err := readFull(file, b, at); err != nil {
			readErr = c.corrupt(at, "it cannot be read: %v", err)
			return readErr
		}
		return pause(int64(len(b)))
	})
	if readErr != nil {
		return readErr
	}
	if err != nil {
		return err
	}
	if sum != c.footer.checksum {
		return c.corrupt(-1, "checksum of the whole file does not match")
	}
	return nil
}

// verifyEnds compares header and footer with what they were when the chunk was opened.
func (c *chunk) verifyEnds(file io.ReaderAt) error {
	b := make([]byte, headerSize)
	if err := readFull(file, b, 0); err != nil {
		return c.corrupt(0, "the header cannot be read: %v", err)
	}
	if h, err := parseHeader(b); err != nil || h != c.header {
		return c.corrupt(0, "the header is not what was written: %v", err)
	}
	at := c.fileSize() - footerSize
	if err := readFull(file, b, at); err != nil {
		return c.corrupt(at, "the footer cannot be read: %v", err)
	}
	if f, err := parseFooter(b, c.header, c.fileSize()); err != nil || f != c.footer {
		return c.corrupt(at, "the footer is not what was written: %v", err)
	}
	return nil
}

// chunkSet is an immutable choice of chunk files that covers the log without
// gaps. It is released when neither the log nor a reader holds it any more.
type chunkSet struct {
	chunks   []*chunk // by first chunk number
	byNumber []*chunk // by logical chunk number
	refs     atomic.Int32
	released func(error) // gets what closing the chunks of the set said
}

// newChunkSet returns a set with one reference, its maker's.
func newChunkSet(chunks []*chunk, released func(error)) *chunkSet {
	s := &chunkSet{chunks: chunks, released: released}
	s.refs.Store(1)
	for _, c := range chunks {
		c.retain()
		for n := c.header.first; n <= c.header.last; n++ {
			s.byNumber = append(s.byNumber, c)
		}
	}
	return s
}

// acquire takes a reference unless the set is gone already.
func (s *chunkSet) acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (s *chunkSet) release() {
	if s == nil || s.refs.Add(-1) > 0 {
		return
	}
	var err error
	for _, c := range s.chunks {
		err = errors.Join(err, c.release())
	}
	if err != nil {
		s.released(err)
	}
}

// at returns the chunk that covers a position, nil when there is none.
func (s *chunkSet) at(position int64) *chunk {
	n := chunkNumber(position)
	if n < 0 || n >= len(s.byNumber) {
		return nil
	}
	return s.byNumber[n]
}

func readFull(f io.ReaderAt, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}
