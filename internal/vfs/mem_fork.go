package vfs

import "slices"

// Fork returns the file system as the end of a process leaves it: its locks are free and no file is
// open. All writes are in it, and those that were not synced are not durable in it either. The
// receiver does not change and can still be used.
//
// It panics unless the receiver was made by NewCrashMem.
func (m *Mem) Fork() *Mem {
	if !m.tracking {
		panic("vfs: Fork of a file system that does not track what is durable")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	f := &forker{mem: NewCrashMem(), nodes: map[*node]*node{}}
	f.mem.root = f.node(m.root)
	for _, op := range m.pending {
		forked := &dirOp{changes: slices.Clone(op.changes), barrier: op.barrier}
		for i := range forked.changes {
			c := &forked.changes[i]
			c.dir, c.to = f.node(c.dir), f.node(c.to)
		}
		f.mem.pending = append(f.mem.pending, forked)
	}
	f.mem.capacity.Store(m.capacity.Load())
	f.mem.mappable.Store(m.mappable.Load())
	return f.mem
}

// forker makes one fork.
type forker struct {
	mem   *Mem
	nodes map[*node]*node // the new one of each old one
}

// node returns the new node, nil for nil.
func (f *forker) node(old *node) *node {
	if old == nil {
		return nil
	}
	if forked := f.nodes[old]; forked != nil {
		return forked
	}
	if !old.isDir() {
		forked := f.file(old)
		f.nodes[old] = forked
		return forked
	}
	dir := newDir(true)
	dir.links = old.links
	f.nodes[old] = dir
	for name, n := range old.entries {
		dir.entries[name] = f.node(n)
	}
	for name, n := range old.durable {
		dir.durable[name] = f.node(n)
	}
	return dir
}

// file shares the blocks with the old file. One without a name is only what a power cut may bring
// back: no one has it open any more.
func (f *forker) file(old *node) *node {
	old.mu.Lock()
	defer old.mu.Unlock()
	forked := &node{links: old.links, private: old.private}
	forked.synced = snapshot{blocks: slices.Clone(old.synced.blocks), size: old.synced.size}
	forked.pending, forked.forgot = slices.Clone(old.pending), old.forgot
	if old.links == 0 {
		forked.freed = true
		return forked
	}
	now := old.snapshot()
	forked.blocks, forked.size = now.blocks, now.size
	for _, b := range forked.blocks {
		if b != nil {
			f.mem.reserve(int64(len(b.buf)))
		}
	}
	return forked
}
