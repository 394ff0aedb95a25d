package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// unlimitedFree is what Free reports without a capacity: far above any
// threshold, and safe to add to.
const unlimitedFree = math.MaxInt64 / 2

// Mem is a file system in memory, safe for concurrent use. Relative names start
// at its root, so "a" and "/a" are the same file. Times of modification are
// not kept, and files cannot be mapped before SetMappable.
//
// One made by NewCrashMem also knows what a power cut would leave of it.
//
// Locks nest in this order: Mem.mu, node.mu.
type Mem struct {
	tracking bool // made by NewCrashMem

	// mu guards the tree: entries, durable, links, opens, locked, pending. Who changes
	// the content of a file that is tracked holds it for reading, so that CrashClone, which
	// holds it for writing, sees all files at one moment.
	mu      sync.RWMutex
	root    *node
	pending []*dirOp // tracking: changes of names that are not durable, oldest first

	capacity atomic.Int64 // 0: unlimited
	used     atomic.Int64 // bytes that the files hold, holes left out
	mappable atomic.Bool
}

// NewMem returns an empty file system in memory.
func NewMem() *Mem { return &Mem{root: newDir(false)} }

// NewCrashMem returns an empty file system in memory that keeps track of what
// was made durable, so that CrashClone can tell what a power cut leaves. That
// costs memory for every write until it is synced.
func NewCrashMem() *Mem { return &Mem{tracking: true, root: newDir(true)} }

// node is a file or a folder. It outlives its name while it is open, and while
// the removal of its name is not durable.
type node struct {
	entries map[string]*node // folders: what it holds now; nil for a file
	// folders, tracking: what a power cut leaves when nothing unsynced survives
	durable map[string]*node

	links  int  // 1 while the node has a name
	opens  int  // handles and locks
	locked bool // by Lock
	// made by CreatePrivate; does not change
	private bool

	fileData
}

func newDir(tracking bool) *node {
	d := &node{entries: make(map[string]*node)}
	if tracking {
		d.durable = make(map[string]*node)
	}
	return d
}

func (n *node) isDir() bool { return n.entries != nil }

// SetCapacity limits the bytes that all files together may hold; 0 means no
// limit. A write beyond fails with an error for which
// errors.Is(err, syscall.ENOSPC) holds, after writing what still fits.
func (m *Mem) SetCapacity(bytes int64) { m.capacity.Store(max(0, bytes)) }

// Free reports the rest of the capacity.
func (m *Mem) Free(string) (int64, error) {
	limit := m.capacity.Load()
	if limit == 0 {
		return unlimitedFree, nil
	}
	return max(0, limit-m.used.Load()), nil
}

// reserve takes up to want bytes of the capacity and returns how many it got.
func (m *Mem) reserve(want int64) int64 {
	for {
		used, limit := m.used.Load(), m.capacity.Load()
		got := want
		if limit > 0 {
			got = max(0, min(want, limit-used))
		}
		if m.used.CompareAndSwap(used, used+got) {
			return got
		}
	}
}

func (m *Mem) release(bytes int64) { m.used.Add(-bytes) }

// components splits a name into the names on the way from the root. The root itself has none.
func components(name string) []string {
	clean := path.Clean("/" + filepath.ToSlash(name))
	if clean == "/" {
		return nil
	}
	return strings.Split(clean[1:], "/")
}

// walk finds a node by its components.
func (m *Mem) walk(parts []string) (*node, error) {
	n := m.root
	for _, part := range parts {
		if !n.isDir() {
			return nil, syscall.ENOTDIR
		}
		child := n.entries[part]
		if child == nil {
			return nil, syscall.ENOENT
		}
		n = child
	}
	return n, nil
}

// parent finds the folder that holds, or would hold, the given name.
func (m *Mem) parent(name string) (dir *node, base string, err error) {
	parts := components(name)
	if len(parts) == 0 {
		return nil, "", syscall.EINVAL
	}
	last := len(parts) - 1
	dir, err = m.walk(parts[:last])
	if err == nil && !dir.isDir() {
		err = syscall.ENOTDIR
	}
	return dir, parts[last], err
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findOrMake(name)
	if err == nil {
		err = n.truncate(m, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return m.handle(n, name, true), nil
}

func (m *Mem) findOrMake(name string) (*node, error) {
	dir, base, err := m.parent(name)
	if err != nil {
		return nil, err
	}
	n := dir.entries[base]
	switch {
	case n == nil:
		n = new(node)
		m.apply(&dirOp{changes: []nameChange{{dir: dir, name: base, to: n}}})
	case n.isDir():
		return nil, syscall.EISDIR
	}
	return n, nil
}

// CreatePrivate implements FS.
func (m *Mem) CreatePrivate(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err == nil && dir.entries[base] != nil {
		err = syscall.EEXIST
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	n := &node{private: true}
	m.apply(&dirOp{changes: []nameChange{{dir: dir, name: base, to: n}}})
	return m.handle(n, name, true), nil
}

// OpenPrivate implements FS. There is one user.
func (m *Mem) OpenPrivate(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(components(name))
	switch {
	case err != nil:
	case n.isDir():
		return nil, fmt.Errorf("%s is not a file", name)
	case !n.private:
		err = ErrShared
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return m.handle(n, name, false), nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, false) }

// OpenReadWrite implements FS.
func (m *Mem) OpenReadWrite(name string) (File, error) { return m.open(name, true) }

func (m *Mem) open(name string, writable bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(components(name))
	if err == nil && n.isDir() {
		err = syscall.EISDIR
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return m.handle(n, name, writable), nil
}

func (m *Mem) handle(n *node, name string, writable bool) *memFile {
	n.opens++
	return &memFile{mem: m, node: n, name: name, writable: writable}
}

// letGo gives up one handle of a node.
func (m *Mem) letGo(n *node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n.opens--
	m.collect(n)
}

// collect frees what a file holds once it has neither name nor handle.
func (m *Mem) collect(n *node) {
	if n.links == 0 && n.opens == 0 && !n.isDir() {
		n.free(m)
	}
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err == nil {
		switch n := dir.entries[base]; {
		case n == nil:
			err = syscall.ENOENT
		case len(n.entries) > 0:
			err = syscall.ENOTEMPTY
		default:
			m.unlink(dir, base)
		}
	}
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

func (m *Mem) unlink(dir *node, base string) {
	m.apply(&dirOp{
		changes: []nameChange{{dir: dir, name: base}},
		barrier: dir.entries[base].isDir(),
	})
}

// RemoveAll implements FS. It is one operation to concurrent users, but a power
// cut may leave any part of it undone.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(components(name)) == 0 {
		m.empty(m.root)
		return nil
	}
	dir, base, err := m.parent(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return &fs.PathError{Op: "remove", Path: name, Err: err}
	}
	if n := dir.entries[base]; n != nil {
		m.empty(n)
		m.unlink(dir, base)
	}
	return nil
}

func (m *Mem) empty(dir *node) {
	for _, name := range slices.Sorted(maps.Keys(dir.entries)) {
		m.empty(dir.entries[name])
		m.unlink(dir, name)
	}
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.rename(oldName, newName); err != nil {
		return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
	}
	return nil
}

func (m *Mem) rename(oldName, newName string) error {
	oldDir, oldBase, err := m.parent(oldName)
	if err != nil {
		return err
	}
	n := oldDir.entries[oldBase]
	if n == nil {
		return syscall.ENOENT
	}
	newDir, newBase, err := m.parent(newName)
	if err != nil {
		return err
	}
	switch target := newDir.entries[newBase]; {
	case target == nil:
	case target.isDir():
		return syscall.EEXIST
	case n.isDir():
		return syscall.ENOTDIR
	case target == n:
		return nil
	}
	if n.isDir() {
		from, to := components(oldName), components(newName)
		if len(to) > len(from) && slices.Equal(from, to[:len(from)]) {
			return syscall.EINVAL // into itself
		}
	}
	m.apply(&dirOp{
		changes: []nameChange{
			{dir: oldDir, name: oldBase},
			{dir: newDir, name: newBase, to: n},
		},
		barrier: n.isDir(),
	})
	return nil
}

// apply changes names and, when tracking, remembers that the change is not durable.
func (m *Mem) apply(op *dirOp) {
	for i := range op.changes {
		c := &op.changes[i]
		if old := c.dir.entries[c.name]; old != nil {
			old.links--
		}
		if c.to != nil {
			c.to.links++
		}
	}
	// All links are counted by now, so that a node being renamed is not taken for one without a
	// name.
	for i := range op.changes {
		c := &op.changes[i]
		old := c.dir.entries[c.name]
		c.set(c.dir.entries)
		if old != nil {
			m.collect(old)
		}
	}
	if m.tracking {
		m.pending = append(m.pending, op)
	}
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, part := range components(dir) {
		child := n.entries[part]
		if child == nil {
			child = newDir(m.tracking)
			m.apply(&dirOp{changes: []nameChange{{dir: n, name: part, to: child}}})
		}
		if !child.isDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		n = child
	}
	return nil
}

// List implements FS.
func (m *Mem) List(dir string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.folder(dir)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

func (m *Mem) folder(dir string) (*node, error) {
	n, err := m.walk(components(dir))
	if err == nil && !n.isDir() {
		err = syscall.ENOTDIR
	}
	return n, err
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, err := m.walk(components(name))
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	info := &memInfo{name: filepath.Base(name), mode: filePerm}
	switch {
	case n.isDir():
		info.mode = fs.ModeDir | dirPerm
	case n.private:
		info.mode = privatePerm
		fallthrough
	default:
		info.size = n.length()
	}
	return info, nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.folder(dir)
	if err != nil {
		return &fs.PathError{Op: "sync", Path: dir, Err: err}
	}
	if m.tracking {
		m.commitNames(n)
	}
	return nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findOrMake(name)
	if err == nil && n.locked {
		err = ErrLocked
	}
	if err != nil {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	n.locked = true
	n.opens++
	return &memLock{mem: m, node: n, name: name}, nil
}

type memLock struct {
	mem    *Mem
	node   *node
	name   string
	closed atomic.Bool
}

func (l *memLock) Close() error {
	if l.closed.Swap(true) {
		return &fs.PathError{Op: "close", Path: l.name, Err: fs.ErrClosed}
	}
	l.mem.mu.Lock()
	l.node.locked = false
	l.mem.mu.Unlock()
	l.mem.letGo(l.node)
	return nil
}

type memInfo struct {
	name string
	size int64
	mode fs.FileMode
}

func (i *memInfo) Name() string       { return i.name }
func (i *memInfo) Size() int64        { return i.size }
func (i *memInfo) Mode() fs.FileMode  { return i.mode }
func (i *memInfo) ModTime() time.Time { return time.Time{} }
func (i *memInfo) IsDir() bool        { return i.mode.IsDir() }
func (i *memInfo) Sys() any           { return nil }
