package eventlog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

// Transfer brings data from one node to another: to one whose log ends earlier, or of which a file
// is damaged.
type Transfer struct {
	*state
	syncer   *syncer
	appender *appender
	reads    *Reader
	chunks   *Chunks
	health   *Health
}

// Continuation is what a node whose log ends earlier needs next: frames as they
// were written, or, where the chunk was rewritten, a whole chunk file. It keeps
// the files it reads from, whatever takes their place in the log meanwhile,
// until Close. But for ReadAt only one goroutine may use it.
type Continuation struct {
	chunks []*chunkfile.Chunk // still to be read; each is held
	offset int64              // in the first of them
	end    int64              // of the log when it was asked

	file   *ChunkFile // nil: frames
	buf    []byte     // of the newest block
	closed bool
}

// ChunkFile describes a whole chunk file.
type ChunkFile struct {
	Name        string // in the folder of the log that has it
	First, Last int    // logical chunks that it covers
	Size        int64  // in bytes
	Checksum    [16]byte
	End         int64 // of a log whose last file it is
	Chain       event.Chain
}

// Block is a run of whole frames: their records and trailers as they lie in the
// log. A block never reaches into a second chunk.
type Block struct {
	First int64 // position of the first record
	Raw   []byte
}

// DefaultBlockBytes is how large a block is at most if nothing else is asked for.
const DefaultBlockBytes = 1 << 20

// Continue returns what a node of the same cluster lacks whose log ends at a
// position with a chain. A position beyond the log's end is event.ErrBeyondEnd; one
// at which no frame of this log ends, or with another chain, an
// event.OtherHistory. At the end of the log there are no frames.
func (tr *Transfer) Continue(end int64, chain event.Chain) (*Continuation, error) {
	v, err := tr.view()
	if err != nil {
		return nil, err
	}
	defer v.release()
	if end > v.tail.End {
		return nil, fmt.Errorf("continue at %d: the log ends at %d: %w", end, v.tail.End, event.ErrBeyondEnd)
	}
	t, err := v.frameEndingAt(end, tr.cluster)
	if err != nil {
		return nil, fmt.Errorf("continue: %w", err)
	}
	if t == nil || t.Chain != chain {
		return nil, fmt.Errorf("continue: %w", &event.OtherHistory{Position: end})
	}
	return v.continuation(end), nil
}

// continuation begins at a position at which a frame ends.
func (v view) continuation(position int64) *Continuation {
	k := &Continuation{end: v.tail.End}
	for position < v.tail.End {
		c := v.set.at(position)
		switch {
		case c.Rewritten() && position >= c.Footer.End, !c.Rewritten() && chunkfile.HeaderSize+position-c.Start() >= c.DataEnd(v.tail.End):
			// The next frame did not fit there.
		case c.Rewritten():
			if len(k.chunks) == 0 {
				c.Retain()
				k.chunks, k.file = []*chunkfile.Chunk{c}, describe(c)
			}
			return k
		default:
			if len(k.chunks) == 0 {
				k.offset = chunkfile.HeaderSize + position - c.Start()
			}
			c.Retain()
			k.chunks = append(k.chunks, c)
		}
		position = chunkfile.ChunkStart(c.Header.Last + 1)
	}
	return k
}

// describe describes the file of a complete chunk.
func describe(c *chunkfile.Chunk) *ChunkFile {
	return &ChunkFile{
		Name: filepath.Base(c.Name), First: c.Header.First, Last: c.Header.Last,
		Size: c.FileSize(), Checksum: c.Footer.Checksum, End: c.Footer.LogEnd(), Chain: c.Footer.Chain,
	}
}

// File describes the chunk file to fetch whole, with ReadAt; nil when there are
// frames to fetch, with Next. It covers the position that was asked for and may begin before it.
func (k *Continuation) File() *ChunkFile { return k.file }

// ReadAt reads from the chunk file, of whose size it knows. It may run concurrently with itself.
func (k *Continuation) ReadAt(b []byte, offset int64) (n int, err error) {
	if k.closed {
		return 0, event.ErrClosed
	}
	if k.file == nil {
		return 0, errors.New("frames are to be fetched, not a chunk file")
	}
	if offset < 0 {
		return 0, fmt.Errorf("read chunk file at %d", offset)
	}
	defer chunkfile.GuardFaults(&err)()
	n = int(max(0, min(int64(len(b)), k.file.Size-offset)))
	if n < len(b) {
		err = io.EOF
	}
	if failed := k.chunks[0].Read(b[:n], offset); failed != nil {
		return 0, fmt.Errorf("read %s at %d: %w", k.file.Name, offset, failed)
	}
	return n, err
}

// Next returns the next frames, as many as fit into limit bytes (0: DefaultBlockBytes), or one
// larger frame alone. It returns io.EOF at the end that the log had when the continuation began,
// and before a chunk that was rewritten: what comes then needs a new continuation. The next call
// uses the memory of a block again.
//
// Only the lengths of the items are looked at. The receiver of the frames checks them.
func (k *Continuation) Next(limit int) (Block, error) {
	if limit <= 0 {
		limit = DefaultBlockBytes
	}
	if k.closed {
		return Block{}, event.ErrClosed
	}
	if k.file != nil {
		return Block{}, errors.New("a chunk file is to be fetched, not frames")
	}
	for len(k.chunks) > 0 {
		c := k.chunks[0]
		if left := c.DataEnd(k.end) - k.offset; left > 0 {
			b, err := k.block(c, left, limit)
			if err != nil {
				return Block{}, fmt.Errorf("read frames: %w", err)
			}
			return b, nil
		}
		k.chunks, k.offset = k.chunks[1:], chunkfile.HeaderSize
		if err := c.Release(); err != nil {
			return Block{}, err
		}
	}
	return Block{}, io.EOF
}

// block reads the next block of a chunk that has left more bytes.
func (k *Continuation) block(c *chunkfile.Chunk, left int64, limit int) (b Block, err error) {
	defer chunkfile.GuardFaults(&err)()
	// The copy is what makes it safe to hand out: a fault of the mapping is met here.
	for size := min(left, int64(limit)); ; size = min(left, 4*size) {
		if int64(cap(k.buf)) < size {
			k.buf = make([]byte, size)
		}
		raw := k.buf[:size]
		if err := c.Read(raw, k.offset); err != nil {
			return Block{}, fmt.Errorf("%s at %d: %w", c.Name, k.offset, err)
		}
		b.First = c.Start() + k.offset - chunkfile.HeaderSize
		n, err := chunkfile.WholeFrames(raw, b.First, limit)
		if err != nil {
			return Block{}, c.Corrupt(k.offset+int64(n), "%v", err)
		}
		if n > 0 {
			k.offset += int64(n)
			b.Raw = raw[:n:n]
			return b, nil
		}
		if size == left || size > chunkfile.MaxFrameBytes+chunkfile.TrailerSize {
			return Block{}, c.Corrupt(k.offset, "no frame ends in the %d bytes after it", size)
		}
	}
}

// Close lets go of the files. It is idempotent.
func (k *Continuation) Close() error {
	err := chunkfile.ReleaseAll(k.chunks)
	k.chunks, k.closed = nil, true
	return err
}

// CreateTemp makes an empty file in the log's folder for a chunk file that is
// being fetched, and returns its name. It means nothing until it is prepared and installed, and is
// removed at the next start if it is still there.
func (tr *Transfer) CreateTemp() (file vfs.File, name string, err error) {
	if err := tr.usable(); err != nil {
		return nil, "", err
	}
	name = uuid.NewString() + vfs.TempSuffix
	file, err = tr.opts.FS.Create(filepath.Join(tr.opts.Dir, name))
	if err != nil {
		return nil, "", fmt.Errorf("create temporary file: %w", err)
	}
	return file, name, nil
}

// OpenTemp opens a file that CreateTemp made, to continue writing it.
func (tr *Transfer) OpenTemp(name string) (vfs.File, error) {
	path, err := tr.tempPath(name)
	if err != nil {
		return nil, err
	}
	file, err := tr.opts.FS.OpenReadWrite(path)
	if err != nil {
		return nil, fmt.Errorf("open temporary file: %w", err)
	}
	return file, nil
}

// DropTemp removes a file that CreateTemp made.
func (tr *Transfer) DropTemp(name string) error {
	path, err := tr.tempPath(name)
	if err != nil {
		return err
	}
	if err := tr.opts.FS.Remove(path); err != nil {
		return fmt.Errorf("remove temporary file: %w", err)
	}
	return nil
}

func (tr *Transfer) tempPath(name string) (string, error) {
	if filepath.Base(name) != name || !isTemp(name) {
		return "", fmt.Errorf("%q is not the name of a temporary file", name)
	}
	return filepath.Join(tr.opts.Dir, name), nil
}

func isTemp(name string) bool { return strings.HasSuffix(name, vfs.TempSuffix) }
