package vfs

import (
	"errors"
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
	case OpCreate, OpRemove, OpRemoveAll, OpRename, OpMkdirAll, OpSyncDir, OpLock, OpWrite, OpTruncate, OpSync:
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
	Len     int64  // bytes of OpRead, OpWrite and OpMap; the new size of OpTruncate
}

// call is an operation on its way through a hooked file system.
type call struct {
	Op
	handle uint64 // what is opened, used or closed: a file, lock or mapping; 0 for names
	closed bool   // the handle was closed before
}

// hooked passes operations on to another file system and tells its hooks of
// them. It holds no lock while they run, so they may use the file system.
type hooked struct {
	inner  FS
	before func(call) error // an error is returned in place of doing the operation
	after  func(call, error)
	last   atomic.Uint64 // the last handle given out
}

func (h *hooked) run(c call, do func() error) error {
	err := h.begin(c)
	if err == nil {
		err = do()
	}
	h.end(c, err)
	return err
}

// hook runs an operation that returns something.
func hook[T any](h *hooked, c call, do func() (T, error)) (v T, err error) {
	err = h.run(c, func() (err error) {
		v, err = do()
		return err
	})
	return v, err
}

// release is run for what gives something back: that is done even when a hook
// fails it, so that an injected error does not leak a descriptor or a lock.
func (h *hooked) release(c call, do func() error) error {
	err := h.begin(c)
	if doErr := do(); err == nil {
		err = doErr
	}
	h.end(c, err)
	return err
}

func (h *hooked) begin(c call) error {
	if h.before == nil {
		return nil
	}
	err := h.before(c)
	if _, ok := errors.AsType[*fs.PathError](err); ok || err == nil {
		return err
	}
	return &fs.PathError{Op: string(c.Kind), Path: c.Name, Err: err}
}

func (h *hooked) end(c call, err error) {
	if h.after != nil {
		h.after(c, err)
	}
}

func (h *hooked) open(kind Kind, name string, open func(string) (File, error)) (File, error) {
	f := &hookedFile{fs: h, handle: h.last.Add(1)}
	var err error
	f.File, err = hook(h, call{Op: Op{Kind: kind, Name: name}, handle: f.handle}, func() (File, error) { return open(name) })
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (h *hooked) Create(name string) (File, error) { return h.open(OpCreate, name, h.inner.Create) }
func (h *hooked) Open(name string) (File, error)   { return h.open(OpOpen, name, h.inner.Open) }

func (h *hooked) OpenReadWrite(name string) (File, error) {
	return h.open(OpOpenReadWrite, name, h.inner.OpenReadWrite)
}

func (h *hooked) named(kind Kind, name string, do func(string) error) error {
	return h.run(call{Op: Op{Kind: kind, Name: name}}, func() error { return do(name) })
}

func (h *hooked) Remove(name string) error    { return h.named(OpRemove, name, h.inner.Remove) }
func (h *hooked) RemoveAll(name string) error { return h.named(OpRemoveAll, name, h.inner.RemoveAll) }
func (h *hooked) MkdirAll(dir string) error   { return h.named(OpMkdirAll, dir, h.inner.MkdirAll) }
func (h *hooked) SyncDir(dir string) error    { return h.named(OpSyncDir, dir, h.inner.SyncDir) }

func (h *hooked) Rename(oldName, newName string) error {
	return h.run(call{Op: Op{Kind: OpRename, Name: oldName, NewName: newName}}, func() error {
		return h.inner.Rename(oldName, newName)
	})
}

func (h *hooked) List(dir string) ([]string, error) {
	return hook(h, call{Op: Op{Kind: OpList, Name: dir}}, func() ([]string, error) { return h.inner.List(dir) })
}

func (h *hooked) Stat(name string) (fs.FileInfo, error) {
	return hook(h, call{Op: Op{Kind: OpStat, Name: name}}, func() (fs.FileInfo, error) { return h.inner.Stat(name) })
}

func (h *hooked) Free(dir string) (int64, error) {
	return hook(h, call{Op: Op{Kind: OpFree, Name: dir}}, func() (int64, error) { return h.inner.Free(dir) })
}

func (h *hooked) Lock(name string) (io.Closer, error) {
	l := &hookedLock{fs: h, name: name, handle: h.last.Add(1)}
	var err error
	l.inner, err = hook(h, call{Op: Op{Kind: OpLock, Name: name}, handle: l.handle}, func() (io.Closer, error) { return h.inner.Lock(name) })
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
	c := call{Op: Op{Kind: OpUnlock, Name: l.name}, handle: l.handle, closed: l.closed.Swap(true)}
	return l.fs.release(c, l.inner.Close)
}

type hookedFile struct {
	File
	fs     *hooked
	handle uint64
	closed atomic.Bool
}

func (f *hookedFile) call(kind Kind, off, length int64) call {
	return call{
		Op:     Op{Kind: kind, Name: f.Name(), Offset: off, Len: length},
		handle: f.handle,
		closed: f.closed.Load(),
	}
}

func (f *hookedFile) ReadAt(p []byte, off int64) (int, error) {
	return hook(f.fs, f.call(OpRead, off, int64(len(p))), func() (int, error) { return f.File.ReadAt(p, off) })
}

func (f *hookedFile) WriteAt(p []byte, off int64) (n int, err error) {
	c := f.call(OpWrite, off, int64(len(p)))
	err = f.fs.begin(c)
	if err == nil {
		n, err = f.File.WriteAt(p, off)
	} else if short, ok := errors.AsType[*ShortWrite](err); ok {
		var innerErr error
		n, innerErr = f.File.WriteAt(p[:max(0, min(short.N, len(p)))], off)
		if innerErr != nil {
			err = innerErr
		}
	}
	f.fs.end(c, err)
	return n, err
}

func (f *hookedFile) Size() (int64, error) { return hook(f.fs, f.call(OpSize, 0, 0), f.File.Size) }

func (f *hookedFile) Truncate(size int64) error {
	return f.fs.run(f.call(OpTruncate, 0, size), func() error { return f.File.Truncate(size) })
}

func (f *hookedFile) Sync() error { return f.fs.run(f.call(OpSync, 0, 0), f.File.Sync) }

func (f *hookedFile) Uncache() {
	_ = f.fs.run(f.call(OpUncache, 0, 0), func() error {
		f.File.Uncache()
		return nil
	})
}

func (f *hookedFile) Close() error {
	c := f.call(OpClose, 0, 0)
	c.closed = f.closed.Swap(true)
	return f.fs.release(c, f.File.Close)
}

func (f *hookedFile) Map(size int64) (Mapping, error) {
	m := &hookedMapping{fs: f.fs, name: f.Name(), size: size, handle: f.fs.last.Add(1)}
	c := f.call(OpMap, 0, size)
	c.handle = m.handle
	var err error
	m.inner, err = hook(f.fs, c, func() (Mapping, error) { return f.File.Map(size) })
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

func (m *hookedMapping) call(kind Kind) call {
	return call{Op: Op{Kind: kind, Name: m.name, Len: m.size}, handle: m.handle}
}

// Bytes tells the hooks only when it comes too late: it cannot fail, and is called often.
func (m *hookedMapping) Bytes() []byte {
	if m.closed.Load() {
		c := m.call(OpMapBytes)
		c.closed = true
		m.fs.end(c, fs.ErrClosed)
	}
	return m.inner.Bytes()
}

func (m *hookedMapping) Close() error {
	c := m.call(OpUnmap)
	c.closed = m.closed.Swap(true)
	return m.fs.release(c, m.inner.Close)
}
