package vfs

import (
	"io"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	blockSize = 64 << 10
	// maxMemFile bounds the list of blocks that a wild offset can ask for.
	maxMemFile = 1 << 40
)

// block is a piece of a file. Bytes after the end of buf are zero.
type block struct {
	buf []byte // at most blockSize
	// shared blocks also belong to what is durable or to another file system: they
	// are copied before they change. Set once, before a second owner exists; only
	// tracking file systems share.
	shared bool
}

// fileData is the content of a file.
type fileData struct {
	mu     sync.RWMutex // guards all of it
	blocks []*block     // nil: a hole
	size   int64
	freed  bool
	views  []*memMapping // of those who have mapped it

	synced  snapshot // tracking: what is durable
	pending []edit   // tracking: what changed since, oldest first
	// tracking: a sync failed. Changes that pending lacks need not be durable either.
	forgot bool
}

// snapshot is a state of a file. All its blocks are shared.
type snapshot struct {
	blocks []*block
	size   int64
}

func (d *fileData) readAt(p []byte, off int64) (int, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.freed {
		return 0, fs.ErrClosed
	}
	if off >= d.size {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	want := len(p)
	p = p[:min(int64(want), d.size-off)]
	for rest := p; len(rest) > 0; {
		at := int(off % blockSize)
		piece := rest[:min(len(rest), blockSize-at)]
		n := 0
		if i := int(off / blockSize); i < len(d.blocks) && d.blocks[i] != nil {
			n = copy(piece, d.blocks[i].buf[min(at, len(d.blocks[i].buf)):])
		}
		clear(piece[n:])
		rest, off = rest[len(piece):], off+int64(len(piece))
	}
	if len(p) < want {
		return len(p), io.EOF
	}
	return len(p), nil
}

func (d *fileData) writeAt(m *Mem, p []byte, off int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if off > maxMemFile-int64(len(p)) {
		return 0, syscall.EFBIG
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.freed {
		return 0, fs.ErrClosed
	}
	n := d.fill(m, p, off)
	if n > 0 {
		d.size = max(d.size, off+int64(n))
		d.reflect(p[:n], off)
		if m.tracking {
			d.pending = append(d.pending, edit{off: off, data: slices.Clone(p[:n])})
		}
	}
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// own returns a block, which belongs to this file alone from then on. mu must be held for writing.
func (d *fileData) own(i int) *block {
	if missing := i + 1 - len(d.blocks); missing > 0 {
		d.blocks = slices.Grow(d.blocks, missing)[:i+1]
	}
	switch b := d.blocks[i]; {
	case b == nil:
		d.blocks[i] = new(block)
		if i > 0 {
			// A writer past the first block is likely to fill this one too.
			d.blocks[i].buf = make([]byte, 0, blockSize)
		}
	case b.shared:
		d.blocks[i] = &block{buf: append(make([]byte, 0, cap(b.buf)), b.buf...)}
	}
	return d.blocks[i]
}

// fill copies bytes into blocks, as many as the capacity allows.
func (d *fileData) fill(m *Mem, p []byte, off int64) int {
	done := 0
	for done < len(p) {
		at := int(off % blockSize)
		piece := p[done:min(len(p), done+blockSize-at)]
		n := d.own(int(off/blockSize)).write(m, piece, at)
		done, off = done+n, off+int64(n)
		if n < len(piece) {
			break
		}
	}
	return done
}

func (b *block) write(m *Mem, p []byte, at int) int {
	old := len(b.buf)
	if grow := at + len(p) - old; grow > 0 {
		got := m.reserve(int64(grow))
		if got < int64(grow) {
			fits := old + int(got) - at
			if fits <= 0 {
				m.release(got)
				return 0
			}
			p = p[:fits]
		}
		b.extend(at + len(p))
		if at > old {
			clear(b.buf[old:at]) // left over from before a Truncate
		}
	}
	return copy(b.buf[at:], p)
}

func (b *block) extend(length int) {
	if length <= cap(b.buf) {
		b.buf = b.buf[:length]
		return
	}
	room := max(256, 2*cap(b.buf))
	for room < length {
		room *= 2
	}
	buf := make([]byte, length, min(room, blockSize))
	copy(buf, b.buf)
	b.buf = buf
}

func (d *fileData) truncate(m *Mem, size int64) error {
	if size < 0 {
		return syscall.EINVAL
	}
	if size > maxMemFile {
		return syscall.EFBIG
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.freed {
		return fs.ErrClosed
	}
	if size == d.size {
		return nil
	}
	if m.tracking {
		d.pending = append(d.pending, edit{resize: true, off: size, shrinks: size < d.size})
	}
	if size < d.size {
		d.cut(m, size)
		d.forget(size, d.size)
	}
	d.size = size
	return nil
}

// cut drops all bytes from size on.
func (d *fileData) cut(m *Mem, size int64) {
	keep := int((size + blockSize - 1) / blockSize)
	if keep < len(d.blocks) {
		for i, b := range d.blocks[keep:] {
			if b != nil {
				m.release(int64(len(b.buf)))
			}
			d.blocks[keep+i] = nil
		}
		d.blocks = d.blocks[:keep]
	}
	at := int(size % blockSize)
	if at == 0 || keep > len(d.blocks) {
		return
	}
	b := d.blocks[keep-1]
	if b == nil || len(b.buf) <= at {
		return
	}
	m.release(int64(len(b.buf) - at))
	b = d.own(keep - 1)
	b.buf = b.buf[:at]
}

func (d *fileData) free(m *Mem) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cut(m, 0)
	d.blocks, d.size, d.freed = nil, 0, true
}

func (d *fileData) length() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.size
}

// memFile is a handle of a file.
type memFile struct {
	mem      *Mem
	node     *node
	name     string
	writable bool
	closed   atomic.Bool
}

func (f *memFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

func (f *memFile) check(op string, off int64) error {
	if f.closed.Load() {
		return f.fail(op, fs.ErrClosed)
	}
	if off < 0 {
		return f.fail(op, syscall.EINVAL)
	}
	return nil
}

func (f *memFile) Name() string { return f.name }

// change changes the content of the file, or makes it durable, at no moment of a CrashClone.
func (f *memFile) change(do func() error) error {
	if f.mem.tracking {
		f.mem.mu.RLock()
		defer f.mem.mu.RUnlock()
	}
	return do()
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", off); err != nil {
		return 0, err
	}
	n, err := f.node.readAt(p, off)
	if err != nil && err != io.EOF {
		err = f.fail("read", err)
	}
	return n, err
}

func (f *memFile) WriteAt(p []byte, off int64) (n int, err error) {
	if err := f.check("write", off); err != nil {
		return 0, err
	}
	if !f.writable {
		return 0, f.fail("write", syscall.EBADF)
	}
	err = f.change(func() (err error) {
		n, err = f.node.writeAt(f.mem, p, off)
		return err
	})
	if err != nil {
		err = f.fail("write", err)
	}
	return n, err
}

func (f *memFile) Size() (int64, error) {
	if err := f.check("stat", 0); err != nil {
		return 0, err
	}
	return f.node.length(), nil
}

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate", size); err != nil {
		return err
	}
	if !f.writable {
		return f.fail("truncate", syscall.EINVAL)
	}
	if err := f.change(func() error { return f.node.truncate(f.mem, size) }); err != nil {
		return f.fail("truncate", err)
	}
	return nil
}

func (f *memFile) Sync() error {
	if err := f.check("sync", 0); err != nil {
		return err
	}
	if !f.mem.tracking {
		return nil
	}
	return f.change(func() error {
		f.node.sync()
		return nil
	})
}

// Uncache does nothing: the memory is all there is.
func (f *memFile) Uncache() {}

// Direct does nothing either.
func (f *memFile) Direct() {}

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return f.fail("close", fs.ErrClosed)
	}
	f.mem.letGo(f.node)
	return nil
}
