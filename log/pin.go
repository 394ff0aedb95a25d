package eventlog

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
	"github.com/annalsdb/annals/log/index"
)

// Pin holds the files that make up the database at one moment: a folder with copies of them is that
// database, and opens without a cut. Their bytes do not change until it is closed, whatever is
// appended, scavenged, merged or switched in the meantime. Replaced files stay on disk for it. A
// pin delays no other work. It must be closed before the log is.
type Pin struct {
	Tail    event.Tail // of the log; everything that was readable before the pin is before it
	Cluster event.ID

	l      *Log
	files  []PinnedFile
	byName map[string]*PinnedFile
	v      view
	index  *index.Pin
	posted *index.Pin // nil: they could not be pinned, and are made again by who uses the copy

	mu      sync.RWMutex // held for reading by readers of a file; guards what follows
	readers map[*PinnedReader]struct{}
	closed  bool
}

// PinnedFile is one file of a Pin.
type PinnedFile struct {
	// relative to the data folder, with slashes, the index below index/ wherever it lies
	Name     string
	Size     int64
	Checksum string // in hexadecimal, as FileSum computes it
	Complete bool   // the bytes are the same as long as the file has its name

	data  []byte           // all of it, of a small file
	file  vfs.File         // or: open as long as the pin
	chunk *chunkfile.Chunk // or: the active one
	path  string           // or: to be opened
}

// Pin makes the log durable and pins it, and the tables of the index that are durable
// already: what they lack a start indexes from the log, as after a crash.
func (l *Log) Pin() (_ *Pin, err error) {
	l.Chunks.jobs.RLock() // Close waits for it.
	defer l.Chunks.jobs.RUnlock()
	if err := l.usable(); err != nil {
		return nil, err
	}
	// The index first: what it says to cover must be in the log.
	x, err := l.index.Pin()
	if err != nil {
		return nil, err
	}
	p := &Pin{Cluster: l.cluster, l: l, index: x, readers: map[*PinnedReader]struct{}{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pin: %w", err), p.Close())
		}
	}()
	if p.posted, err = l.postings.Pin(); err != nil {
		return nil, err
	}
	// A commit indexes before it publishes, and a table may just have been written then.
	known := x.Checkpoint
	if p.posted != nil {
		known = max(known, p.posted.Checkpoint)
	}
	if known > 0 {
		if err := l.Reads.WaitLog(l.lifetime, known-1); err != nil {
			return nil, err
		}
	}
	if p.v, err = l.view(); err != nil {
		return nil, err
	}
	p.Tail = p.v.tail
	if err := l.syncer.Sync(); err != nil {
		return nil, err
	}
	if err := p.list(); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Pin) listIndex(folder string, x *index.Pin) {
	if x == nil {
		return
	}
	for _, f := range x.Files {
		one := PinnedFile{Name: folder + "/" + f.Name, Size: f.Size, Checksum: f.Sum, Complete: f.Fixed, data: f.Data, file: f.File, path: f.Path}
		if f.Sum == "" {
			one.Checksum = sumOf(f.Data)
		}
		p.files = append(p.files, one)
	}
}

// list names the files in the order in which they could be copied one after the other from a
// running database: the index, the checkpoints, the chunks.
func (p *Pin) list() error {
	p.listIndex(indexFolder, p.index)
	p.listIndex(indexFolder+"/"+postingsFolder, p.posted)
	for _, chk := range p.checkpoints() {
		data := chunkfile.Order.AppendUint64(nil, uint64(chk.value))
		p.files = append(p.files, PinnedFile{Name: chk.name, Size: int64(len(data)), Checksum: sumOf(data), data: data})
	}
	for i, c := range p.v.set.chunks {
		if i > 0 && c.Start() >= p.Tail.End {
			break // Made for frames that are not committed yet.
		}
		f, err := pinned(c, p.Tail.End)
		if err != nil {
			return err
		}
		p.files = append(p.files, f)
	}
	p.byName = make(map[string]*PinnedFile, len(p.files))
	for i := range p.files {
		p.byName[p.files[i].Name] = &p.files[i]
	}
	return nil
}

type checkpointValue struct {
	name  string
	value int64
}

// checkpoints are what the files say when nothing but the pinned log is there.
func (p *Pin) checkpoints() []checkpointValue {
	term := datadir.InitialCheckpoints[datadir.ProposalCheckpoint]
	if p.Tail.Index > 0 {
		term = int64(p.Tail.Term)
	}
	return []checkpointValue{
		{datadir.ChaserCheckpoint, p.Tail.End}, {datadir.EpochCheckpoint, p.v.epoch}, {datadir.ProposalCheckpoint, term},
		{datadir.TruncateCheckpoint, -1}, {datadir.WriterCheckpoint, p.Tail.End},
	}
}

// pinned describes the file in a log that ends at end. Where a frame may still be added, or was and
// is not committed, it is the bytes up to there, without a footer: so a start finds the active
// chunk.
func pinned(c *chunkfile.Chunk, end int64) (f PinnedFile, err error) {
	f = PinnedFile{Name: filepath.Base(c.Name)}
	if c.Complete && (c.Rewritten() || c.Settled(end)) {
		f.Size, f.Checksum, f.Complete, f.path = c.FileSize(), hex.EncodeToString(c.Footer.Checksum[:]), true, c.Name
		return f, nil
	}
	// Readers get another chunk for the same file when it is complete. That one may be replaced,
	// and its name removed, also while others hold this one.
	f.chunk, f.Size = c, c.DataEnd(end)
	defer chunkfile.GuardFaults(&err)()
	h := xxh3.New()
	if err := chunkfile.Hash(h, f.Size, c.Read); err != nil {
		return f, fmt.Errorf("read %s: %w", c.Name, err)
	}
	sum := h.Sum128().Bytes()
	f.Checksum = hex.EncodeToString(sum[:])
	return f, nil
}

func sumOf(b []byte) string {
	sum := xxh3.Hash128(b).Bytes()
	return hex.EncodeToString(sum[:])
}

// Files lists the files, in the order in which they are to be copied.
func (p *Pin) Files() []PinnedFile { return slices.Clone(p.files) }

// Open opens a file; fs.ErrNotExist says that the pin has none of the name. Closing the pin closes
// it.
func (p *Pin) Open(name string) (*PinnedReader, error) {
	f := p.byName[name]
	if f == nil {
		return nil, fmt.Errorf("open pinned file %q: %w", name, fs.ErrNotExist)
	}
	r := &PinnedReader{pin: p, f: f, file: f.file}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, event.ErrClosed
	}
	if f.path != "" {
		// Under its name as long as the pin holds it. A handle of its own reads ahead, and meets a
		// disk error as one.
		own, err := p.l.opts.FS.Open(f.path)
		if err != nil {
			return nil, fmt.Errorf("open pinned file: %w", err)
		}
		r.own, r.file = own, own
	}
	p.readers[r] = struct{}{}
	return r, nil
}

// ReadAt reads from a file.
func (p *Pin) ReadAt(name string, b []byte, offset int64) (n int, err error) {
	r, err := p.Open(name)
	if err != nil {
		return 0, err
	}
	n, err = r.ReadAt(b, offset)
	return n, errors.Join(err, r.Close())
}

// Replaced calls f with each of the files that are on disk for the pin alone, by what tells them
// apart from those of other pins.
func (p *Pin) Replaced(f func(file any, bytes int64)) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return
	}
	p.index.Replaced(f)
	if p.posted != nil {
		p.posted.Replaced(f)
	}
	now, err := p.l.view()
	if err != nil {
		return
	}
	defer now.release()
	used := make(map[string]bool, len(now.set.chunks))
	for _, c := range now.set.chunks {
		used[c.Name] = true
	}
	for _, c := range p.v.set.chunks {
		if !used[c.Name] {
			f(c.Name, p.byName[filepath.Base(c.Name)].Size)
		}
	}
}

// Close lets go of the files when running reads are done; later reads get event.ErrClosed. Replaced
// files are removed now. It is idempotent.
func (p *Pin) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	var err error
	for r := range p.readers {
		if r.own != nil {
			err = errors.Join(err, r.own.Close())
		}
	}
	clear(p.readers)
	if p.v.published != nil {
		p.v.release()
	}
	if p.posted != nil {
		err = errors.Join(err, p.posted.Close())
	}
	return errors.Join(err, p.index.Close())
}

// PinnedReader reads one file of a Pin. It is safe for concurrent use.
type PinnedReader struct {
	pin  *Pin
	f    *PinnedFile
	own  vfs.File // closed with the reader; nil: the pin's, or bytes
	file vfs.File
}

// Size is the length of the file, as of the pin.
func (r *PinnedReader) Size() int64 { return r.f.Size }

// ReadAt reads what the file had when it was pinned.
func (r *PinnedReader) ReadAt(b []byte, offset int64) (n int, err error) {
	if offset < 0 {
		return 0, fmt.Errorf("read %s at %d", r.f.Name, offset)
	}
	if offset >= r.f.Size {
		return 0, io.EOF
	}
	r.pin.mu.RLock()
	defer r.pin.mu.RUnlock()
	if _, open := r.pin.readers[r]; !open {
		return 0, event.ErrClosed
	}
	short := false
	if left := r.f.Size - offset; int64(len(b)) > left {
		b, short = b[:left], true
	}
	if err := r.read(b, offset); err != nil {
		return 0, fmt.Errorf("read %s at %d: %w", r.f.Name, offset, err)
	}
	if short {
		err = io.EOF
	}
	return len(b), err
}

// read fills b with bytes that the file has.
func (r *PinnedReader) read(b []byte, offset int64) (err error) {
	switch {
	case r.f.data != nil:
		copy(b, r.f.data[offset:])
		return nil
	case r.f.chunk != nil:
		defer chunkfile.GuardFaults(&err)()
		return r.f.chunk.Read(b, offset)
	}
	return vfs.ReadFull(r.file, b, offset)
}

// Close lets go of the reader. It is idempotent.
func (r *PinnedReader) Close() error {
	r.pin.mu.Lock()
	defer r.pin.mu.Unlock()
	if _, open := r.pin.readers[r]; !open {
		return nil
	}
	delete(r.pin.readers, r)
	if r.own != nil {
		return r.own.Close()
	}
	return nil
}
