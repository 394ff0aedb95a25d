package vfs

import (
	"io/fs"
	"slices"
)

// pageSize is what a system writes to a disk at a time.
const pageSize = 4096

// Forget is what a sync of a file leaves that failed: the system takes all pages for written, shows
// their content, and no later sync writes a page that does not change again. So does Linux:
// "Can Applications Recover from fsync Failures?", USENIX ATC 2020.
//
// It panics unless the receiver was made by NewCrashMem.
func (m *Mem) Forget(name string) error {
	if !m.tracking {
		panic("vfs: Forget in a file system that does not track what is durable")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.walk(components(name))
	if err != nil {
		return &fs.PathError{Op: "forget", Path: name, Err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending, n.forgot = nil, true
	return nil
}

// syncPages makes the size durable, and the pages that pending changes. mu must be held for
// writing.
func (d *fileData) syncPages() {
	scratch := NewCrashMem() // whose capacity and books are of no interest
	durable := &node{fileData: fileData{blocks: slices.Clone(d.synced.blocks), size: d.synced.size}}
	copier := cloner{mem: scratch}
	for _, e := range d.pending {
		if e.resize {
			copier.resize(durable, e.off)
			continue
		}
		from := e.off - e.off%pageSize
		to := min(d.size, (e.off+int64(len(e.data))+pageSize-1)/pageSize*pageSize)
		if from < to {
			copier.write(durable, d.content(from, to), from)
		}
	}
	copier.resize(durable, d.size)
	d.synced = durable.snapshot()
}

// content returns a part of the file. mu must be held.
func (d *fileData) content(from, to int64) []byte {
	p := make([]byte, to-from)
	for at := from; at < to; {
		rest := p[at-from:]
		within := int(at % blockSize)
		rest = rest[:min(len(rest), blockSize-within)]
		if i := int(at / blockSize); i < len(d.blocks) && d.blocks[i] != nil && within < len(d.blocks[i].buf) {
			copy(rest, d.blocks[i].buf[within:])
		}
		at += int64(len(rest))
	}
	return p
}
