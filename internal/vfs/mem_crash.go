package vfs

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// sectorSize is what a disk writes whole or not at all.
const sectorSize = 512

// CrashOptions chooses what a power cut leaves.
type CrashOptions struct {
	// Rand chooses what survives of the things not yet durable. Nil: none of them does.
	// The same seed after the same operations gives the same outcome.
	Rand *rand.Rand
}

// nameChange lets a name in a folder mean another node, or none when to is nil.
type nameChange struct {
	dir    *node
	name   string
	to     *node
	synced bool // SyncDir was called for dir since
}

func (c *nameChange) set(entries map[string]*node) {
	if c.to == nil {
		delete(entries, c.name)
	} else {
		entries[c.name] = c.to
	}
}

// nameKey identifies a name in a folder.
type nameKey struct {
	dir  *node
	name string
}

func (c *nameChange) key() nameKey { return nameKey{c.dir, c.name} }

// dirOp is a change of one name, or of two for a rename; it survives whole or not at all.
//
// An operation on a name cannot survive when an earlier one on the same name
// did not: a file system that lost the renaming of "a" cannot show a new file
// "a" created afterwards, for the old one would be gone without a trace. For the
// same reason the removal or renaming of a folder, a barrier, survives only
// when everything before it did.
type dirOp struct {
	changes []nameChange
	barrier bool
}

func (op *dirOp) durable() bool {
	for i := range op.changes {
		if !op.changes[i].synced {
			return false
		}
	}
	return true
}

// touches reports whether any of the names is among the keys.
func (op *dirOp) touches(keys map[nameKey]struct{}) bool {
	for i := range op.changes {
		if _, ok := keys[op.changes[i].key()]; ok {
			return true
		}
	}
	return false
}

func (op *dirOp) addTo(keys map[nameKey]struct{}) {
	for i := range op.changes {
		keys[op.changes[i].key()] = struct{}{}
	}
}

// commitNames makes the changes in a folder durable. A rename between folders
// waits until both are synced, unless a later durable operation builds on it.
func (m *Mem) commitNames(dir *node) {
	for _, op := range m.pending {
		for i := range op.changes {
			if c := &op.changes[i]; c.dir == dir {
				c.synced = true
			}
		}
	}
	// From the last to the first, so that what a durable operation builds on is known when it is
	// reached.
	all := false
	needed := make(map[nameKey]struct{})
	commit := make([]bool, len(m.pending))
	for i, op := range slices.Backward(m.pending) {
		if all || op.durable() || op.touches(needed) {
			commit[i] = true
			all = all || op.barrier
			op.addTo(needed)
		}
	}
	// What stays pending shares no name with a later durable operation, so the order between the
	// two is free.
	var rest []*dirOp
	for i, op := range m.pending {
		if !commit[i] {
			rest = append(rest, op)
			continue
		}
		for j := range op.changes {
			c := &op.changes[j]
			c.set(c.dir.durable)
		}
	}
	m.pending = rest
}

// edit is a change of a file that is not durable.
type edit struct {
	resize  bool  // by Truncate; else a write of data at off
	off     int64 // the new size of a resize
	shrinks bool
	data    []byte
}

// sync makes the content durable.
func (d *fileData) sync() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.pending) == 0 || d.freed {
		return
	}
	if d.forgot {
		d.syncPages()
	} else {
		d.synced = d.snapshot()
	}
	d.pending = nil
}

// snapshot must be called with mu held for writing.
func (d *fileData) snapshot() snapshot {
	for _, b := range d.blocks {
		if b != nil && !b.shared {
			b.shared = true
		}
	}
	return snapshot{blocks: slices.Clone(d.blocks), size: d.size}
}

// CrashClone returns the file system as it is found after a power cut at this moment, made of what
// is durable and of such other things as the options choose. What it holds is durable in it, its
// locks are free and no file is open. The receiver does not change and can still be used.
//
// Durable is the content of a file since its last Sync, and a name since the last SyncDir of its
// folder: neither implies the other, so a synced file whose name was not is lost, and so is
// everything in a folder whose own name was not synced in its parent. Of the rest, with Rand:
//   - each creation, removal and rename survives or not, within the bounds that dirOp names;
//   - each write survives wholly, in some of its sectors, or not at all; a sector
//     that lost one write also loses all later ones, as the disk holds one of
//     the states it went through;
//   - each change of size survives or not, also without the data that caused it;
//     when a shrinking did not, then nothing past its end that was done later.
//
// It panics unless the receiver was made by NewCrashMem.
func (m *Mem) CrashClone(opts CrashOptions) *Mem {
	if !m.tracking {
		panic("vfs: CrashClone of a file system that does not track what is durable")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &cloner{mem: NewCrashMem(), rand: opts.Rand, dirs: make(map[*node]map[string]*node)}
	for _, op := range c.survivors(m.pending) {
		for i := range op.changes {
			change := &op.changes[i]
			dir := change.dir
			if c.dirs[dir] == nil {
				c.dirs[dir] = maps.Clone(dir.durable)
			}
			change.set(c.dirs[dir])
		}
	}
	c.mem.root = c.node(m.root)
	c.mem.capacity.Store(m.capacity.Load())
	c.mem.mappable.Store(m.mappable.Load())
	return c.mem
}

// cloner makes one clone.
type cloner struct {
	mem  *Mem
	rand *rand.Rand
	dirs map[*node]map[string]*node // folders that differ from what is durable
}

// How the unsynced changes of one file, or of all names, fare. The extremes are
// chosen as such, because single coins would hardly ever show them.
type fate int

const (
	allLost fate = iota
	allKept
	mixed
)

func (c *cloner) fate() fate {
	if c.rand == nil {
		return allLost
	}
	return fate(min(c.rand.IntN(4), int(mixed)))
}

func (c *cloner) coin() bool { return c.rand.IntN(2) == 0 }

func (c *cloner) survivors(pending []*dirOp) []*dirOp {
	if len(pending) == 0 {
		return nil
	}
	switch c.fate() {
	case allLost:
		return nil
	case allKept:
		return pending
	}
	var kept []*dirOp
	lost := make(map[nameKey]struct{})
	for _, op := range pending {
		if op.touches(lost) || op.barrier && len(lost) > 0 || c.coin() {
			op.addTo(lost)
		} else {
			kept = append(kept, op)
		}
	}
	return kept
}

// node clones a node with all below it, in the order of names, so that one seed always means the
// same.
func (c *cloner) node(n *node) *node {
	if !n.isDir() {
		return c.file(n)
	}
	entries, changed := c.dirs[n]
	if !changed {
		entries = n.durable
	}
	dir := newDir(true)
	dir.links = 1
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		dir.entries[name] = c.node(entries[name])
	}
	dir.durable = maps.Clone(dir.entries)
	return dir
}

func (c *cloner) file(n *node) *node {
	n.mu.Lock()
	base := snapshot{blocks: slices.Clone(n.synced.blocks), size: n.synced.size}
	edits := n.pending
	n.mu.Unlock()

	f := &node{links: 1, private: n.private}
	f.blocks = base.blocks
	f.size = base.size
	for _, b := range f.blocks {
		if b != nil {
			c.mem.reserve(int64(len(b.buf)))
		}
	}
	if len(edits) > 0 {
		switch c.fate() {
		case allLost:
		case allKept:
			for _, e := range edits {
				if e.resize {
					c.resize(f, e.off)
				} else {
					c.write(f, e.data, e.off)
				}
			}
		case mixed:
			c.replay(f, edits)
		}
	}
	f.synced = f.snapshot()
	f.pending = nil
	return f
}

// replay applies what survives of edits to a file.
func (c *cloner) replay(f *node, edits []edit) {
	lost := make(map[int64]struct{}) // sectors that lost a write
	// where a lost shrinking would have cut: nothing later survives past it
	end := int64(math.MaxInt64)
	for _, e := range edits {
		if e.resize {
			switch {
			case end < math.MaxInt64 || c.coin():
				if e.shrinks {
					end = min(end, e.off-e.off%sectorSize)
				}
			default:
				c.resize(f, e.off)
			}
			continue
		}
		grows := c.coin()
		keep := c.tear(e)
		for from := e.off; from < e.off+int64(len(e.data)); {
			sector := from / sectorSize
			to := min((sector+1)*sectorSize, e.off+int64(len(e.data)))
			if _, gone := lost[sector]; gone || to > end || !keep(sector) {
				lost[sector] = struct{}{}
			} else {
				c.write(f, e.data[from-e.off:to-e.off], from)
			}
			from = to
		}
		if size := e.off + int64(len(e.data)); grows && end == math.MaxInt64 && size > f.size {
			c.resize(f, size)
		}
	}
}

// tear chooses which sectors of a write survive.
func (c *cloner) tear(e edit) func(sector int64) bool {
	first := e.off / sectorSize
	count := (e.off+int64(len(e.data))-1)/sectorSize - first + 1
	switch c.rand.IntN(5) {
	case 0:
		return func(int64) bool { return false }
	case 1: // the front
		until := first + c.rand.Int64N(count+1)
		return func(s int64) bool { return s < until }
	case 2: // the back
		from := first + c.rand.Int64N(count+1)
		return func(s int64) bool { return s >= from }
	case 3: // any
		return func(int64) bool { return c.coin() }
	default:
		return func(int64) bool { return true }
	}
}

// The clone has no capacity while it is made and its files are far below the
// largest size, as those they come from were: neither can fail.

func (c *cloner) write(f *node, p []byte, off int64) {
	if _, err := f.writeAt(c.mem, p, off); err != nil {
		panic(err)
	}
}

func (c *cloner) resize(f *node, size int64) {
	if err := f.truncate(c.mem, size); err != nil {
		panic(err)
	}
}
