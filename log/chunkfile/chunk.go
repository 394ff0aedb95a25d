package chunkfile

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

// Chunk is one open chunk file. All but the active one are complete and never
// change. A chunk is closed when its last holder lets go: the log's own list of
// chunks is one holder, each set of a log that has the chunk another.
type Chunk struct {
	fs      vfs.FS
	Name    string // path
	Version int
	Header  Header

	File    vfs.File    // nil when the chunk is complete and mapped
	Mapping vfs.Mapping // nil where files cannot be mapped
	Mapped  []byte      // of mapping

	// Of the complete chunk; zero in the active one.
	Complete bool
	Footer   Footer

	// suspect gets what reads meet; nil until a log uses the chunk.
	Suspect atomic.Pointer[func(*Chunk, error)]

	holders  atomic.Int32
	Obsolete atomic.Bool // the file goes when the chunk is closed
	Closed   chan struct{}
}

func (c *Chunk) Retain() { c.holders.Add(1) }

// Release lets go of the chunk; the last holder closes it.
func (c *Chunk) Release() error {
	if c.holders.Add(-1) > 0 {
		return nil
	}
	return c.Close()
}

// ReleaseAll lets go of chunks.
func ReleaseAll(chunks []*Chunk) (err error) {
	for _, c := range chunks {
		err = errors.Join(err, c.Release())
	}
	return err
}

// Rewritten reports whether the file was made from others: records may be gone,
// or not be what their frame's chain was computed over.
func (c *Chunk) Rewritten() bool { return c.Header.Mapped || c.Version > 0 }

// Read fills b with the bytes of the file at offset.
func (c *Chunk) Read(b []byte, offset int64) error {
	if c.Mapped == nil {
		return vfs.ReadFull(c.File, b, offset)
	}
	if offset < 0 || offset+int64(len(b)) > int64(len(c.Mapped)) {
		return io.ErrUnexpectedEOF
	}
	copy(b, c.Mapped[offset:])
	return nil
}

func (c *Chunk) Start() int64 { return ChunkStart(c.Header.First) }
func (c *Chunk) Corrupt(offset int64, format string, args ...any) error {
	err := &event.Corruption{File: c.Name, Offset: offset, Detail: fmt.Sprintf(format, args...)}
	if suspect := c.Suspect.Load(); suspect != nil {
		(*suspect)(c, err)
	}
	return err
}

// OpenNamed opens a chunk file. Without a valid footer the chunk comes back incomplete.
func OpenNamed(fs vfs.FS, dir, name string) (c *Chunk, err error) {
	number, version, ok := ParseFileName(name)
	if !ok {
		return nil, fmt.Errorf("open chunk %s: not the name of a chunk", name)
	}
	c, err = Open(fs, filepath.Join(dir, name), version)
	if err == nil && c.Header.First != number {
		err = errors.Join(c.Corrupt(16, "the file holds chunk %d", c.Header.First), c.Close())
	}
	return c, err
}

func Open(fs vfs.FS, path string, version int) (c *Chunk, err error) {
	file, err := fs.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open chunk: %w", err)
	}
	c = &Chunk{fs: fs, Name: path, Version: version, File: file, Closed: make(chan struct{})}
	defer vfs.Undo(&err, file.Close)
	size, err := file.Size()
	if err != nil {
		return nil, fmt.Errorf("open chunk: %w", err)
	}
	if size < HeaderSize {
		return nil, c.Corrupt(0, "%d bytes are too few for a header", size)
	}
	head := make([]byte, HeaderSize)
	if err := vfs.ReadFull(file, head, 0); err != nil {
		return nil, fmt.Errorf("read header of %s: %w", path, err)
	}
	if c.Header, err = ParseHeader(head); errors.Is(err, ErrNewer) {
		return nil, fmt.Errorf("open chunk %s: %w", path, err)
	} else if err != nil {
		return nil, c.Corrupt(0, "%v", err)
	}
	if size < HeaderSize+FooterSize {
		if c.Header.Mapped {
			return nil, c.Corrupt(size, "the footer is missing")
		}
		return c, nil
	}
	foot := make([]byte, FooterSize)
	if err := vfs.ReadFull(file, foot, size-FooterSize); err != nil {
		return nil, fmt.Errorf("read footer of %s: %w", path, err)
	}
	if f, err := ParseFooter(foot, c.Header, size); err == nil {
		c.Footer, c.Complete = f, true
	} else if c.Header.Mapped {
		return nil, c.Corrupt(size-FooterSize, "%v", err)
	}
	return c, nil
}

// Use prepares the chunk for readers: mapped where the file system can, else read through the open
// file.
func (c *Chunk) Use() error {
	size := int64(HeaderSize) + ChunkSize + FooterSize
	if c.Complete {
		size = HeaderSize + c.Footer.DataSize + c.Footer.MapSize + FooterSize
	}
	m, err := c.File.Map(size)
	if errors.Is(err, vfs.ErrNotMappable) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("map chunk: %w", err)
	}
	c.Mapping, c.Mapped = m, m.Bytes()
	file := c.File
	c.File = nil
	return file.Close()
}

// OpenMapped opens a chunk file and prepares it for readers.
func OpenMapped(fs vfs.FS, path string, version int) (*Chunk, error) {
	c, err := Open(fs, path, version)
	if err != nil {
		return nil, err
	}
	if err := c.Use(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close is called once.
func (c *Chunk) Close() error {
	defer close(c.Closed)
	var err error
	if c.Mapping != nil {
		err = c.Mapping.Close()
		c.Mapping, c.Mapped = nil, nil
	}
	if c.File != nil {
		err = errors.Join(err, c.File.Close())
		c.File = nil
	}
	if c.Obsolete.Load() {
		err = errors.Join(err, c.fs.Remove(c.Name))
	}
	return err
}

// Bytes returns n bytes of the file at offset: of the mapping, or read into scratch, which it may
// replace.
func (c *Chunk) Bytes(offset int64, n int, scratch *[]byte) ([]byte, error) {
	if c.Mapped != nil {
		if offset+int64(n) > int64(len(c.Mapped)) {
			return nil, c.Corrupt(offset, "%d bytes reach beyond the file", n)
		}
		return c.Mapped[offset : offset+int64(n)], nil
	}
	if cap(*scratch) < n {
		*scratch = make([]byte, max(n, 512))
	}
	b := (*scratch)[:n]
	if err := vfs.ReadFull(c.File, b, offset); err != nil {
		return nil, fmt.Errorf("read %s at %d: %w", c.Name, offset, err)
	}
	return b, nil
}

// DataEnd is the offset after the data that belongs to the log up to the position end.
//
// A set may hold a chunk that was completed after its tail was published. Nothing after the tail is
// shown then either. Rewritten chunks lie wholly below any tail.
func (c *Chunk) DataEnd(end int64) int64 {
	switch {
	case c.Header.Mapped:
		return HeaderSize + c.Footer.DataSize
	case c.Complete:
		return HeaderSize + min(end-c.Start(), c.Footer.DataSize)
	}
	return HeaderSize + min(end-c.Start(), ChunkSize)
}

// ItemAt reads the item at an offset of the file. It touches no byte at or after limit.
func (c *Chunk) ItemAt(offset, limit int64, scratch *[]byte) (Item, error) {
	if limit-offset < RecordFixed {
		return nil, c.Corrupt(offset, "no record begins there")
	}
	var b []byte
	var err error
	if c.Mapped != nil {
		if limit > int64(len(c.Mapped)) {
			return nil, c.Corrupt(offset, "data reach beyond the file")
		}
		b = c.Mapped[offset:limit]
	} else {
		if b, err = c.Bytes(offset, 4, scratch); err != nil {
			return nil, err
		}
		size := int64(Order.Uint32(b))
		if size < RecordFixed || size > limit-offset {
			return nil, c.Corrupt(offset, "length %d does not fit the %d bytes there", size, limit-offset)
		}
		if b, err = c.Bytes(offset, int(size), scratch); err != nil {
			return nil, err
		}
	}
	it, err := ParseItem(b)
	if err != nil {
		return nil, c.Corrupt(offset, "%v", err)
	}
	if it.IsStub() && !c.Header.Mapped {
		return nil, c.Corrupt(offset, "a stub in a chunk as it was written")
	}
	return it, nil
}

// ItemBefore reads the item that ends at an offset of the file.
func (c *Chunk) ItemBefore(offset int64, scratch *[]byte) (Item, int64, error) {
	if offset-HeaderSize < RecordFixed {
		return nil, 0, c.Corrupt(offset, "no record ends there")
	}
	b, err := c.Bytes(offset-4, 4, scratch)
	if err != nil {
		return nil, 0, err
	}
	size := int64(Order.Uint32(b))
	if size < RecordFixed || size > offset-HeaderSize {
		return nil, 0, c.Corrupt(offset-4, "length %d does not fit the %d bytes before it", size, offset-HeaderSize)
	}
	it, err := c.ItemAt(offset-size, offset, scratch)
	if err == nil && int64(len(it)) != size {
		err = c.Corrupt(offset-size, "length %d is not repeated at the end", len(it))
	}
	return it, offset - size, err
}

// MapEntries is the number of items that a position map names.
func (c *Chunk) MapEntries() int { return int(c.Footer.MapSize / MapEntrySize) }

// MapEntry returns the i-th entry of the position map.
func (c *Chunk) MapEntry(i int, scratch *[]byte) (position, offset int64, err error) {
	b, err := c.Bytes(HeaderSize+c.Footer.DataSize+int64(i)*MapEntrySize, MapEntrySize, scratch)
	if err != nil {
		return 0, 0, err
	}
	return int64(Order.Uint64(b)), int64(Order.Uint32(b[8:])), nil
}

// search returns the index of the first entry of the position map that is at or after a position.
//
// It guesses where the entry is from the positions of known entries, brackets the answer with
// widening steps around the guess, and bisects the rest. Mostly it touches only a few cache lines.
func (c *Chunk) search(position int64) (int, error) {
	var scratch []byte
	lo, hi := 0, c.MapEntries() // lo <= answer <= hi
	below, above := c.Start(), c.Footer.End
	for range 4 {
		if hi-lo <= 8 {
			break
		}
		guess := hi - 1
		if position < above && below < above { // Else it is after all, or the map is damaged.
			part := float64(max(position-below, 0)) / float64(above-below)
			guess = min(lo+int(part*float64(hi-lo)), hi-1)
		}
		at, _, err := c.MapEntry(guess, &scratch)
		if err != nil {
			return 0, err
		}
		step := 4
		if at < position {
			lo, below = guess+1, at
			for p := guess + step; p < hi; p += step {
				if at, _, err = c.MapEntry(p, &scratch); err != nil {
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
			if at, _, err = c.MapEntry(p, &scratch); err != nil {
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
		at, _, err := c.MapEntry(mid, &scratch)
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

// Find returns the offset of the item that stands at exactly a position; ok is false when it is
// gone. In a chunk as it was written it is where such an item would be.
func (c *Chunk) Find(position int64, scratch *[]byte) (offset int64, ok bool, err error) {
	if !c.Header.Mapped {
		return HeaderSize + position - c.Start(), true, nil
	}
	return c.FindFrom(position, scratch)
}

// FindFrom returns the offset of the first item of a rewritten chunk at or after a position, or the
// end of the data if there is none, and whether an item stands at exactly that position.
//
// FindFrom does not trust the map, since any bit of it may have rotted: it compares the map with
// the data. The item at the offset must have the position that the map gives it. The item before it
// in the file must have a smaller position than the one looked for. So no item is passed over.
func (c *Chunk) FindFrom(position int64, scratch *[]byte) (offset int64, exact bool, err error) {
	i, err := c.search(position)
	if err != nil {
		return 0, false, err
	}
	limit := HeaderSize + c.Footer.DataSize
	entry := limit + int64(i)*MapEntrySize
	offset = limit
	if i < c.MapEntries() {
		var at int64
		if at, offset, err = c.MapEntry(i, scratch); err != nil {
			return 0, false, err
		}
		if at < position || offset < HeaderSize || offset > limit-RecordFixed {
			return 0, false, c.Corrupt(entry, "the position map names position %d and offset %d for position %d", at, offset, position)
		}
		b, err := c.Bytes(offset, RecordFixed, scratch)
		if err != nil {
			return 0, false, err
		}
		if is := Item(b).Position(); is != at {
			return 0, false, c.Corrupt(entry, "the position map names the item of position %d, at offset %d stands that of %d", at, offset, is)
		}
		exact = at == position
	}
	if exact || offset == HeaderSize {
		return offset, exact, nil
	}
	before, _, err := c.ItemBefore(offset, scratch)
	if err != nil {
		return 0, false, err
	}
	if is := before.Position(); is >= position {
		return 0, false, c.Corrupt(entry, "the position map passes over the item of position %d", is)
	}
	return offset, false, nil
}

// ComputeChecksum reads the whole complete file and returns what its checksum should be.
func (c *Chunk) ComputeChecksum(read func(b []byte, at int64) error) ([16]byte, error) {
	end := HeaderSize + c.Footer.DataSize + c.Footer.MapSize + FooterChecksumAt
	h := xxh3.New()
	err := Hash(h, end, func(b []byte, at int64) error {
		if err := read(b, at); err != nil {
			return fmt.Errorf("read %s at %d: %w", c.Name, at, err)
		}
		return nil
	})
	return h.Sum128().Bytes(), err
}

// Verify compares the file with its checksum, reading it through a handle of its own.
func (c *Chunk) Verify(pause func(bytes int64) error) (err error) {
	file, err := c.fs.Open(c.Name)
	if err != nil {
		return fmt.Errorf("verify chunk: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := c.verifyEnds(file); err != nil {
		return err
	}
	var readErr error
	sum, err := c.ComputeChecksum(func(b []byte, at int64) error {
		if err := vfs.ReadFull(file, b, at); err != nil {
			readErr = c.Corrupt(at, "it cannot be read: %v", err)
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
	if sum != c.Footer.Checksum {
		return c.Corrupt(-1, "checksum of the whole file does not match")
	}
	return nil
}

// verifyEnds compares header and footer with what they were when the chunk was opened.
func (c *Chunk) verifyEnds(file io.ReaderAt) error {
	b := make([]byte, HeaderSize)
	if err := vfs.ReadFull(file, b, 0); err != nil {
		return c.Corrupt(0, "the header cannot be read: %v", err)
	}
	if h, err := ParseHeader(b); err != nil || h != c.Header {
		return c.Corrupt(0, "the header is not what was written: %v", err)
	}
	at := c.FileSize() - FooterSize
	if err := vfs.ReadFull(file, b, at); err != nil {
		return c.Corrupt(at, "the footer cannot be read: %v", err)
	}
	if f, err := ParseFooter(b, c.Header, c.FileSize()); err != nil || f != c.Footer {
		return c.Corrupt(at, "the footer is not what was written: %v", err)
	}
	return nil
}

// FileSize is the length of the file of a complete chunk.
func (c *Chunk) FileSize() int64 {
	return HeaderSize + c.Footer.DataSize + c.Footer.MapSize + FooterSize
}

// Settled reports whether a log that ends at end can add no more frames to the chunk: its last
// frame completes it, or a committed frame lies after it. Only then may it be rewritten: a chunk
// that a start could make active again must stay as it was written.
func (c *Chunk) Settled(end int64) bool {
	return c.Complete && end >= ChunkStart(c.Header.Last+1)
}
