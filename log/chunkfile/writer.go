package chunkfile

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

const (
	// RewriteBuffer is how much of a rewritten file is gathered for one write.
	RewriteBuffer = 128 << 10

	// RewriteSyncEvery is how much of a rewritten file is synced at a time while the log is used.
	// Twice that may wait in memory for the disk: a sync of the Raft log has to wait meanwhile for
	// that as well. It is a multiple of rewriteBuffer.
	RewriteSyncEvery = 256 << 10

	// RewriteSyncAlone is the same while the log is not used. Disks write much more in a second
	// when they sync larger parts. A request that comes in the middle of one waits once.
	RewriteSyncAlone = 4 << 20

	// mapBlock is how many bytes of the position map are kept together.
	mapBlock = MapEntrySize << 12
)

// Writer is a chunk file that Rewrite makes. Its position map waits in
// memory for the end of the data: twelve bytes an item, at most a fifth of the data.
type Writer struct {
	file    vfs.File
	free    func() (int64, error) // of the volume
	reserve int64
	Yielder Yielder

	buf      []byte     // not yet written
	written  int64      // bytes of the file
	begun    int64      // of them: a sync was begun when there were so many
	syncing  chan error // result of the running sync; nil: none is running
	sum      *xxh3.Hasher
	places   [][]byte // position map so far, in blocks
	entries  int64
	Records  int
	Stubs    int
	DataSize int64
}

// Yielder lets others go first.
type Yielder interface {
	InUse() bool // whether there are others
	GiveWay()
}

// Create makes the file. reserve is how many bytes must stay free on the volume.
func Create(fsys vfs.FS, path string, h *Header, reserve int64, y Yielder) (*Writer, error) {
	file, err := fsys.Create(path)
	if err != nil {
		return nil, fmt.Errorf("create temporary file: %w", err)
	}
	w := &Writer{
		file: file, reserve: reserve, Yielder: y, buf: make([]byte, 0, RewriteBuffer), sum: xxh3.New(),
		free: func() (int64, error) { return fsys.Free(filepath.Dir(path)) },
	}
	if err := w.checkSpace(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if err := w.write(h.Bytes()); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Add appends an item.
func (w *Writer) Add(it Item, position int64) error {
	n := len(w.places)
	if n == 0 || len(w.places[n-1]) == mapBlock {
		w.places = append(w.places, make([]byte, 0, mapBlock))
		n++
	}
	b := Order.AppendUint64(w.places[n-1], uint64(position))
	w.places[n-1] = Order.AppendUint32(b, uint32(HeaderSize+w.DataSize))
	w.entries++
	w.DataSize += int64(len(it))
	return w.write(it)
}

func (w *Writer) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), cap(w.buf)-len(w.buf))
		w.buf = append(w.buf, b[:n]...)
		if b = b[n:]; len(w.buf) == cap(w.buf) {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes what was gathered.
func (w *Writer) flush() error {
	w.Yielder.GiveWay()
	if _, err := w.sum.Write(w.buf); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(w.buf, w.written); err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	w.written += int64(len(w.buf))
	w.buf = w.buf[:0]
	if n := w.written - w.begun; n < RewriteSyncEvery || n < RewriteSyncAlone && !w.Yielder.InUse() {
		return nil
	}
	if err := w.awaitSync(); err != nil {
		return err
	}
	w.beginSync()
	return w.checkSpace()
}

// beginSync makes what is written durable while more is gathered. Only one sync runs at a time;
// Close waits for it.
func (w *Writer) beginSync() {
	w.begun = w.written
	said := make(chan error, 1)
	w.syncing = said
	go func() { said <- w.file.Sync() }()
}

func (w *Writer) awaitSync() error {
	if w.syncing == nil {
		return nil
	}
	err := <-w.syncing
	w.syncing = nil
	if err != nil {
		return fmt.Errorf("sync temporary file: %w", err)
	}
	return nil
}

func (w *Writer) checkSpace() error {
	if w.reserve <= 0 {
		return nil
	}
	free, err := w.free()
	if err != nil {
		return err
	}
	if free < w.reserve {
		return fmt.Errorf("%w: %d bytes free, %d are kept in reserve", event.ErrDiskFull, free, w.reserve)
	}
	return nil
}

// Mark is how far a Writer has come.
type Mark struct {
	places, entries, records, stubs int
	lastBlock                       int // bytes of the last block of places
	dataSize                        int64
}

// Mark returns where Back may lead to.
func (w *Writer) Mark() Mark {
	m := Mark{places: len(w.places), entries: int(w.entries), records: w.Records, stubs: w.Stubs, dataSize: w.DataSize}
	if m.places > 0 {
		m.lastBlock = len(w.places[m.places-1])
	}
	return m
}

// Since is how many bytes the file has grown since an earlier mark, its position map included.
func (m Mark) Since(earlier Mark) int64 {
	return m.dataSize - earlier.dataSize + int64(m.entries-earlier.entries)*MapEntrySize
}

// Back takes everything back that was added since the mark, and gives the file another header.
// What there is of the file is read again, for its checksum.
func (w *Writer) Back(m Mark, h *Header) error {
	if err := errors.Join(w.flush(), w.awaitSync()); err != nil {
		return err
	}
	w.places = w.places[:m.places]
	if m.places > 0 {
		w.places[m.places-1] = w.places[m.places-1][:m.lastBlock]
	}
	w.entries, w.Records, w.Stubs, w.DataSize = int64(m.entries), m.records, m.stubs, m.dataSize
	w.written, w.begun = HeaderSize+m.dataSize, 0
	if err := w.file.Truncate(w.written); err != nil {
		return fmt.Errorf("shorten temporary file: %w", err)
	}
	if _, err := w.file.WriteAt(h.Bytes(), 0); err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	w.sum.Reset()
	err := Hash(w.sum, w.written, func(b []byte, at int64) error {
		w.Yielder.GiveWay()
		return vfs.ReadFull(w.file, b, at)
	})
	if err != nil {
		return fmt.Errorf("read temporary file: %w", err)
	}
	return nil
}

// Finish writes the position map and the footer, which comes as that of the last
// source with the first Raft index of the first one, and makes the file durable.
func (w *Writer) Finish(f *Footer) error {
	for _, b := range w.places {
		if err := w.write(b); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	f.Mapped, f.DataSize, f.MapSize = true, w.DataSize, w.entries*MapEntrySize
	f.Records, f.Stubs = w.Records, w.Stubs
	foot, err := f.After(w.sum)
	if err != nil {
		return err
	}
	if _, err := w.file.WriteAt(foot, w.written); err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	w.written += FooterSize
	if err := w.awaitSync(); err != nil {
		return err
	}
	w.beginSync()
	return w.awaitSync()
}

// Close waits for a running sync.
func (w *Writer) Close() error {
	err := w.awaitSync()
	if cerr := w.file.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("close temporary file: %w", cerr))
	}
	return err
}
