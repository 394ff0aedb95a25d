package vfs

import (
	"io"
	"io/fs"
	"sync/atomic"
)

// Kind is the kind of an operation, in lower case and in one word.
type Kind string

// The operations of FS, File, Mapping and of a lock.
const (
	OpCreate        Kind = "create"
	OpOpen          Kind = "open"
	OpOpenReadWrite Kind = "openreadwrite"
	OpCreatePrivate Kind = "createprivate"
	OpOpenPrivate   Kind = "openprivate"
	OpRemove        Kind = "remove"
	OpRemoveAll     Kind = "removeall"
	OpRename        Kind = "rename"
	OpMkdirAll      Kind = "mkdirall"
	OpList          Kind = "list"
	OpStat          Kind = "stat"
	OpSyncDir       Kind = "syncdir"
	OpLock          Kind = "lock"
	OpUnlock        Kind = "unlock"
	OpFree          Kind = "free"
	OpRead          Kind = "read"
	OpWrite         Kind = "write"
	OpSize          Kind = "size"
	OpTruncate      Kind = "truncate"
	OpSync          Kind = "sync"
	OpUncache       Kind = "uncache"
	OpMap           Kind = "map"
	OpMapBytes      Kind = "mapbytes" // only after the mapping was closed
	OpUnmap         Kind = "unmap"
	OpClose         Kind = "close"
)

// Mutates reports whether the operation changes files or names, or makes changes durable.
func (k Kind) Mutates() bool {
	switch k {
	case OpCreate, OpCreatePrivate, OpRemove, OpRemoveAll, OpRename, OpMkdirAll, OpSyncDir, OpLock, OpWrite, OpTruncate, OpSync:
		return true
	default:
		return false
	}
}

// Op is one operation on a file system.
type Op struct {
	Kind    Kind
	Name    string // the file or folder, as the caller named it
	NewName string // OpRename only
	Offset  int64  // OpRead and OpWrite
	// bytes of OpRead, OpWrite (of which no more are written) and OpMap; the new size of OpTruncate
	Len int64
}

// call is an operation on its way through a hooked file system.
type call struct {
	Op
	handle uint64 // what is opened, used or closed: a file, lock or mapping; 0 for names
	closed bool   // the handle was closed before
}

// hooked passes operations on to another file system through its hook. It holds no lock while they
// run, so the hook may use the file system.
type hooked struct {
	inner FS
	hook  func(c *call, do func() error) error // does the operation, once, often, or not at all
	last  atomic.Uint64                        // the last handle given out
	// what passes the hook by: reads of files, and all that is done with an open file
	readsPass, filesPass bool
	// asks is asked in place of the hook for reads of files, of which there are many: nil or the
	// error of the read
	asks func(Op) error
}

// through runs an operation that returns something.
func through[T any](h *hooked, c *call, do func() (T, error)) (v T, err error) {
	err = h.hook(c, func() (err error) {
		v, err = do()
		return err
	})
	return v, err
}

func (h *hooked) open(kind Kind, name string, open func(string) (File, error)) (File, error) {
	f := &hookedFile{fs: h, handle: h.last.Add(1)}
	var err error
	f.File, err = through(h, &call{Op: Op{Kind: kind, Name: name}, handle: f.handle}, func() (File, error) { return open(name) })
	if err != nil {
		return nil, err
	}
	if h.filesPass {
		return f.File, nil
	}
	return f, nil
}

func (h *hooked) Create(name string) (File, error) { return h.open(OpCreate, name, h.inner.Create) }
func (h *hooked) Open(name string) (File, error)   { return h.open(OpOpen, name, h.inner.Open) }

func (h *hooked) OpenReadWrite(name string) (File, error) {
	return h.open(OpOpenReadWrite, name, h.inner.OpenReadWrite)
}

func (h *hooked) CreatePrivate(name string) (File, error) {
	return h.open(OpCreatePrivate, name, h.inner.CreatePrivate)
}

func (h *hooked) OpenPrivate(name string) (File, error) {
	return h.open(OpOpenPrivate, name, h.inner.OpenPrivate)
}

// within is the file system below.
func (h *hooked) within() FS { return h.inner }

func (h *hooked) named(kind Kind, name string, do func(string) error) error {
	return h.hook(&call{Op: Op{Kind: kind, Name: name}}, func() error { return do(name) })
}

func (h *hooked) Remove(name string) error    { return h.named(OpRemove, name, h.inner.Remove) }
func (h *hooked) RemoveAll(name string) error { return h.named(OpRemoveAll, name, h.inner.RemoveAll) }
func (h *hooked) MkdirAll(dir string) error   { return h.named(OpMkdirAll, dir, h.inner.MkdirAll) }
func (h *hooked) SyncDir(dir string) error    { return h.named(OpSyncDir, dir, h.inner.SyncDir) }

func (h *hooked) Rename(oldName, newName string) error {
	return h.hook(&call{Op: Op{Kind: OpRename, Name: oldName, NewName: newName}}, func() error {
		return h.inner.Rename(oldName, newName)
	})
}

func (h *hooked) List(dir string) ([]string, error) {
	return through(h, &call{Op: Op{Kind: OpList, Name: dir}}, func() ([]string, error) { return h.inner.List(dir) })
}

func (h *hooked) Stat(name string) (fs.FileInfo, error) {
	return through(h, &call{Op: Op{Kind: OpStat, Name: name}}, func() (fs.FileInfo, error) { return h.inner.Stat(name) })
}

func (h *hooked) Free(dir string) (int64, error) {
	return through(h, &call{Op: Op{Kind: OpFree, Name: dir}}, func() (int64, error) { return h.inner.Free(dir) })
}

func (h *hooked) Lock(name string) (io.Closer, error) {
	l := &hookedLock{fs: h, name: name, handle: h.last.Add(1)}
	var err error
	l.inner, err = through(h, &call{Op: Op{Kind: OpLock, Name: name}, handle: l.handle}, func() (io.Closer, error) { return h.inner.Lock(name) })
	if err != nil {
		return nil, err
	}
	return l, nil
}

type hookedLock struct {
	fs     *hooked
	inner  io.Closer
	name   string
	handle uint64
	closed atomic.Bool
}

func (l *hookedLock) Close() error {
	return l.fs.hook(&call{Op: Op{Kind: OpUnlock, Name: l.name}, handle: l.handle, closed: l.closed.Swap(true)}, l.inner.Close)
}

type hookedFile struct {
	File
	fs     *hooked
	handle uint64
	closed atomic.Bool
}

func (f *hookedFile) call(kind Kind, off, length int64) *call {
	return &call{
		Op:     Op{Kind: kind, Name: f.Name(), Offset: off, Len: length},
		handle: f.handle,
		closed: f.closed.Load(),
	}
}

func (f *hookedFile) ReadAt(p []byte, off int64) (int, error) {
	if f.fs.readsPass {
		return f.File.ReadAt(p, off)
	}
	if f.fs.asks != nil {
		if err := f.fs.asks(Op{Kind: OpRead, Name: f.Name(), Offset: off, Len: int64(len(p))}); err != nil {
			return 0, err
		}
		return f.File.ReadAt(p, off)
	}
	return through(f.fs, f.call(OpRead, off, int64(len(p))), func() (int, error) { return f.File.ReadAt(p, off) })
}

func (f *hookedFile) WriteAt(p []byte, off int64) (int, error) {
	c := f.call(OpWrite, off, int64(len(p)))
	return through(f.fs, c, func() (int, error) { return f.File.WriteAt(p[:c.Len], off) })
}

func (f *hookedFile) Size() (int64, error) { return through(f.fs, f.call(OpSize, 0, 0), f.File.Size) }

func (f *hookedFile) Truncate(size int64) error {
	return f.fs.hook(f.call(OpTruncate, 0, size), func() error { return f.File.Truncate(size) })
}

func (f *hookedFile) Sync() error { return f.fs.hook(f.call(OpSync, 0, 0), f.File.Sync) }

func (f *hookedFile) Uncache() {
	_ = f.fs.hook(f.call(OpUncache, 0, 0), func() error {
		f.File.Uncache()
		return nil
	})
}

func (f *hookedFile) Close() error {
	c := f.call(OpClose, 0, 0)
	c.closed = f.closed.Swap(true)
	return f.fs.hook(c, f.File.Close)
}

func (f *hookedFile) Map(size int64) (Mapping, error) {
	m := &hookedMapping{fs: f.fs, name: f.Name(), size: size, handle: f.fs.last.Add(1)}
	c := f.call(OpMap, 0, size)
	c.handle = m.handle
	var err error
	m.inner, err = through(f.fs, c, func() (Mapping, error) { return f.File.Map(size) })
	if err != nil {
		return nil, err
	}
	return m, nil
}

type hookedMapping struct {
	fs     *hooked
	inner  Mapping
	name   string
	size   int64
	handle uint64
	closed atomic.Bool
}

func (m *hookedMapping) call(kind Kind, closed bool) *call {
	return &call{Op: Op{Kind: kind, Name: m.name, Len: m.size}, handle: m.handle, closed: closed}
}

// Bytes tells the hook only when it comes too late: it cannot fail, and is called often.
func (m *hookedMapping) Bytes() []byte {
	if m.closed.Load() {
		_ = m.fs.hook(m.call(OpMapBytes, true), func() error { return fs.ErrClosed })
	}
	return m.inner.Bytes()
}

func (m *hookedMapping) Close() error {
	return m.fs.hook(m.call(OpUnmap, m.closed.Swap(true)), m.inner.Close)
}
