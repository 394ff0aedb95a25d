package vfs

import (
	"io/fs"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// SetMappable lets files be mapped into memory from now on. A mapping is a copy, which follows what
// is written. It takes the memory of what was written, twice.
func (m *Mem) SetMappable() { m.mappable.Store(true) }

// memMapping is a file mapped into memory.
type memMapping struct {
	mem    *Mem
	node   *node
	name   string
	data   []byte
	closed atomic.Bool
}

func (f *memFile) Map(size int64) (Mapping, error) {
	if err := f.check("map", size); err != nil {
		return nil, err
	}
	if !f.mem.mappable.Load() {
		return nil, f.fail("map", ErrNotMappable)
	}
	if size > maxMemFile {
		return nil, f.fail("map", unix.ENOMEM)
	}
	v := &memMapping{mem: f.mem, node: f.node, name: f.name}
	if size > 0 {
		var err error
		// Pages that nothing was written to take no memory.
		v.data, err = unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
		if err != nil {
			return nil, f.fail("map", err)
		}
	}
	f.mem.mu.Lock()
	f.node.opens++ // A mapping outlives the handle.
	f.mem.mu.Unlock()
	f.node.show(v)
	return v, nil
}

func (v *memMapping) Bytes() []byte { return v.data }

func (v *memMapping) Close() error {
	if v.closed.Swap(true) {
		return &fs.PathError{Op: "unmap", Path: v.name, Err: fs.ErrClosed}
	}
	v.node.hide(v)
	data := v.data
	v.data = nil
	v.mem.letGo(v.node)
	if len(data) == 0 {
		return nil
	}
	if err := unix.Munmap(data); err != nil {
		return &fs.PathError{Op: "unmap", Path: v.name, Err: err}
	}
	return nil
}

// show fills a mapping and has it follow the file.
func (d *fileData) show(v *memMapping) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, b := range d.blocks {
		if at := i * blockSize; b != nil && at < len(v.data) {
			copy(v.data[at:], b.buf)
		}
	}
	d.views = append(d.views, v)
}

func (d *fileData) hide(v *memMapping) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.views = slices.DeleteFunc(d.views, func(other *memMapping) bool { return other == v })
}

// reflect has mappings follow a write. mu is held for writing.
func (d *fileData) reflect(p []byte, off int64) {
	for _, v := range d.views {
		if off < int64(len(v.data)) {
			copy(v.data[off:], p)
		}
	}
}

// forget has mappings follow the loss of bytes. mu is held for writing.
func (d *fileData) forget(from, to int64) {
	for _, v := range d.views {
		if from < int64(len(v.data)) {
			clear(v.data[from:min(to, int64(len(v.data)))])
		}
	}
}
