package index

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"
	"sort"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/annalsdb/annals/event"
)

const (
	slabBits = 10 // of blocks
	slabSize = 1 << slabBits
	slabMask = slabSize - 1

	rowsBits = 12
	rowsSize = 1 << rowsBits
	rowsMask = rowsSize - 1

	largestBlock = 8 // The logarithm of the most entries of a block in memory.
	firstSlots   = 1024
)

// row is an entry without its hash.
type row struct{ number, position int64 }

// memBlock is entries of one hash that were added one after another, in memory: the first block of
// a hash has one, each further one twice as many as the one before, up to 256. The first entry is
// in the block, the others are rows of their own. An entry is written once, before count says that
// it is there, and never changed; nor is anything else of a block that a slot has published.
//
// References are the block's place plus one, so that 0 means none. The blocks of one hash form a
// random-access list: depth counts from 1 at the oldest; jump leads as far back as the skew-binary
// decomposition of depth allows, which bounds every search by O(log depth) steps.
type memBlock struct {
	hash   uint64
	first  row
	rest   uint32 // the place of the other rows
	before uint32 // entries of older blocks
	prev   uint32
	jump   uint32
	flags  uint32 // depth, and disordered
	count  atomic.Uint32
}

// disordered is set in flags where the numbers from this block back may not strictly fall (streams
// with the same hash).
const disordered = 1 << 31

func (b *memBlock) depth() uint32      { return b.flags &^ disordered }
func (b *memBlock) isDisordered() bool { return b.flags&disordered != 0 }

// room is how many entries the block can have.
func (b *memBlock) room() uint32 { return 1 << min(b.depth()-1, largestBlock) }

// total is how many entries of the hash there are up to the newest of this block.
func (b *memBlock) total() int { return int(b.before + b.count.Load()) }

// slabs is memory for many things of one kind, in pieces that never move.
type slabs[S any] struct{ folder atomic.Pointer[[]*S] }

func (s *slabs[S]) all() []*S { return *s.folder.Load() }

// grow adds a piece. A reader's folder may share the array, but ends before the new place.
func (s *slabs[S]) grow() {
	folder := append(s.all(), new(S))
	s.folder.Store(&folder)
}

// slotTable is an open-addressing table with linear probing: each slot refers to the newest block
// of one hash. It is at most three quarters full and only ever gains slots. The lower half of a
// slot refers to the block, the upper half is 32 bits of the mixed hash. With them a search skips
// blocks of other hashes, and a larger table places the slot.
type slotTable struct {
	slots []atomic.Uint64
}

func newSlotTable(size int) *slotTable { return &slotTable{slots: make([]atomic.Uint64, size)} }

func slotTag(hash uint64) uint32 { return uint32(hash * 0x9e3779b97f4a7c15 >> 32) }

// home returns where the search for a tag begins.
func (t *slotTable) home(tag uint32) int { return int(uint64(tag) * uint64(len(t.slots)) >> 32) }

func (t *slotTable) after(at int) int {
	if at++; at < len(t.slots) {
		return at
	}
	return 0
}

// memTable holds entries in memory. One goroutine adds; readers need no lock: whatever reference a
// reader finds in a slot leads to blocks that were complete before the slot was stored, and to
// slabs whose folder was stored before that.
type memTable struct {
	blockSlabs slabs[[slabSize]memBlock]
	rowSlabs   slabs[[rowsSize]row]
	slots      atomic.Pointer[slotTable]

	// Written by the adding goroutine; others read them once the table is frozen.
	count   int
	streams int // slots in use
	blocks  int
	rows    int // places in use, or left empty at the end of a slab

	shown       atomic.Int64 // count, as others may read it
	shownBlocks atomic.Int64
	shares      [len(Shares{})]struct{ entries, hashes atomic.Int64 }

	upTo   int64       // log position that the entries reach; guarded by Index.mu until frozen
	chain  event.Chain // of the log there; like upTo
	seq    uint64      // number of the freeze, given under Index.mu
	frozen time.Time   // when; given with seq
	taken  bool        // by the flusher, or for good; guarded by Index.mu
}

func newMemTable() *memTable {
	t := &memTable{}
	t.blockSlabs.folder.Store(&[]*[slabSize]memBlock{})
	t.rowSlabs.folder.Store(&[]*[rowsSize]row{})
	t.slots.Store(newSlotTable(firstSlots))
	return t
}

const (
	blockBytes = int64(unsafe.Sizeof(memBlock{}))
	rowBytes   = int64(unsafe.Sizeof(row{}))
	slotBytes  = 8
)

// bytes is the memory that it takes.
func (t *memTable) bytes() int64 {
	return int64(len(t.blockSlabs.all()))*slabSize*blockBytes + int64(len(t.rowSlabs.all()))*rowsSize*rowBytes + slotBytes*int64(len(t.slots.Load().slots))
}

// full reports whether it has as much as the options allow. The adding goroutine may ask.
func (t *memTable) full(o *Options) bool {
	if o.MaxMemory > 0 {
		return int64(t.blocks)*blockBytes+int64(t.rows)*rowBytes+2*int64(t.streams)*slotBytes >= o.MaxMemory
	}
	return t.count >= o.MaxMemTable || t.rows >= math.MaxInt32
}

// block returns the block of a reference other than 0.
func (t *memTable) block(r uint32) *memBlock {
	return &t.blockSlabs.all()[(r-1)>>slabBits][(r-1)&slabMask]
}

// entry returns one of the entries of a block.
func (t *memTable) entry(b *memBlock, i uint32) Entry {
	r := &b.first
	if i > 0 {
		at := b.rest + i - 1
		r = &t.rowSlabs.all()[at>>rowsBits][at&rowsMask]
	}
	return Entry{Hash: b.hash, Number: r.number, Position: r.position}
}

// others are the entries of a block but the first.
func (t *memTable) others(b *memBlock) []row {
	n := b.count.Load() - 1
	if n == 0 {
		return nil
	}
	return t.rowSlabs.all()[b.rest>>rowsBits][b.rest&rowsMask:][:n]
}

// add appends an entry. Before the first one of a hash becomes visible, announce is called.
func (t *memTable) add(e Entry, announce func(hash uint64)) {
	slots := t.slots.Load()
	tag := slotTag(e.Hash)
	at, head := t.find(slots, e.Hash, tag)
	t.count++
	share := &t.shares[e.Hash>>shareShift]
	share.entries.Store(share.entries.Load() + 1) // One goroutine adds.
	next := memBlock{hash: e.Hash, first: row{e.Number, e.Position}, flags: 1}
	if head == 0 {
		announce(e.Hash)
		share.hashes.Store(share.hashes.Load() + 1)
	} else {
		b := t.block(head)
		n := b.count.Load()
		falls := e.Number <= t.entry(b, n-1).Number
		if n < b.room() && (!falls || b.isDisordered()) {
			place := b.rest + n - 1
			t.rowSlabs.all()[place>>rowsBits][place&rowsMask] = next.first
			b.count.Store(n + 1)
			return
		}
		t.link(&next, head, b)
		if falls {
			next.flags |= disordered
		}
	}
	slots.slots[at].Store(uint64(tag)<<32 | uint64(t.append(&next)))
	if head == 0 {
		t.streams++
		if t.streams*4 > len(slots.slots)*3 {
			t.grow(slots)
		}
	}
}

// append takes a block over, with memory for all that it can have, and returns its reference.
func (t *memTable) append(b *memBlock) uint32 {
	if t.blocks&slabMask == 0 {
		t.blockSlabs.grow()
	}
	if others := int(b.room()) - 1; others > 0 {
		if left := -t.rows & rowsMask; left < others {
			t.rows += left
			t.rowSlabs.grow()
		}
		b.rest = uint32(t.rows)
		t.rows += others
	}
	t.blocks++
	to := t.block(uint32(t.blocks))
	to.hash, to.first, to.rest, to.before, to.prev, to.jump, to.flags = b.hash, b.first, b.rest, b.before, b.prev, b.jump, b.flags
	to.count.Store(1)
	return uint32(t.blocks)
}

// link makes n the block after p, the newest of its hash so far.
func (t *memTable) link(n *memBlock, head uint32, p *memBlock) {
	n.prev, n.jump, n.flags, n.before = head, head, p.flags+1, uint32(p.total())
	if p.jump != 0 {
		// Two equal skips before this block become one: the carry of skew-binary counting.
		if j := t.block(p.jump); j.jump != 0 && p.depth()-j.depth() == j.depth()-t.block(j.jump).depth() {
			n.jump = j.jump
		}
	}
}

// find returns the slot of a hash and its newest block, or the empty slot where the hash belongs.
func (t *memTable) find(slots *slotTable, hash uint64, tag uint32) (at int, head uint32) {
	for at = slots.home(tag); ; at = slots.after(at) {
		slot := slots.slots[at].Load()
		head = uint32(slot)
		if head == 0 || uint32(slot>>32) == tag && t.block(head).hash == hash {
			return at, head
		}
	}
}

// grow adds half as many slots. Readers that hold the old ones see the table as it was.
func (t *memTable) grow(old *slotTable) {
	bigger := newSlotTable(len(old.slots) + len(old.slots)/2)
	for i := range old.slots {
		slot := old.slots[i].Load()
		if slot == 0 {
			continue
		}
		at := bigger.home(uint32(slot >> 32))
		for bigger.slots[at].Load() != 0 {
			at = bigger.after(at)
		}
		bigger.slots[at].Store(slot)
	}
	t.slots.Store(bigger)
}

// show lets others see how much was added.
func (t *memTable) show() {
	t.shownBlocks.Store(int64(t.blocks))
	t.shown.Store(int64(t.count))
}

// entries gives all that was shown, in any order.
func (t *memTable) entries() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		for r := range uint32(t.shownBlocks.Load()) {
			b := t.block(r + 1)
			for i := range b.count.Load() {
				if !yield(t.entry(b, i)) {
					return
				}
			}
		}
	}
}

// head returns the newest block of a hash, or nil.
func (t *memTable) head(hash uint64) *memBlock {
	if _, r := t.find(t.slots.Load(), hash, slotTag(hash)); r != 0 {
		return t.block(r)
	}
	return nil
}

// back returns the block before b of the same hash, or nil.
func (t *memTable) back(b *memBlock) *memBlock {
	if b.prev == 0 {
		return nil
	}
	return t.block(b.prev)
}

// descendTo returns the newest block, from b to the oldest, for which the predicate holds, or nil.
// Once it holds it must hold for all older blocks.
func (t *memTable) descendTo(b *memBlock, holds func(*memBlock) bool) *memBlock {
	for b != nil && !holds(b) {
		if b.jump != 0 {
			if j := t.block(b.jump); !holds(j) {
				b = j
				continue
			}
		}
		b = t.back(b)
	}
	return b
}

// countUpTo counts the entries with numbers up to one, of a list in order.
func (t *memTable) countUpTo(head *memBlock, number int64) int {
	b := t.descendTo(head, func(b *memBlock) bool { return b.first.number <= number })
	if b == nil {
		return 0
	}
	others := t.others(b)
	return int(b.before) + 1 + sort.Search(len(others), func(i int) bool { return others[i].number > number })
}

// window returns the places in the list of the entries numbered from..to, of a list in order.
func (t *memTable) window(head *memBlock, from, to int64) (begin, end int) {
	if from > math.MinInt64 {
		begin = t.countUpTo(head, from-1)
	}
	return begin, max(begin, t.countUpTo(head, to))
}

// down gives the entries at some places in the list of a hash, from the newest to the oldest.
func (t *memTable) down(head *memBlock, begin, end int) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		b := t.descendTo(head, func(b *memBlock) bool { return int(b.before) < end })
		for at := end - 1; at >= begin; at-- {
			if at < int(b.before) {
				b = t.back(b)
			}
			if !yield(t.entry(b, uint32(at)-b.before)) {
				return
			}
		}
	}
}

// last returns the entry with the highest number of a hash.
func (t *memTable) last(hash uint64) (best Entry, ok bool) {
	head := t.head(hash)
	if head == nil {
		return Entry{}, false
	}
	best = t.entry(head, head.count.Load()-1)
	if head.isDisordered() {
		for e := range t.down(head, 0, head.total()) {
			if best.less(e) {
				best = e
			}
		}
	}
	return best, true
}

// disorderedWindow collects the entries numbered from..to of a list that is not ordered, sorted
// upwards. It walks the whole list: only streams that share a hash pay for it.
func (t *memTable) disorderedWindow(dst []Entry, head *memBlock, from, to int64) []Entry {
	start := len(dst)
	for e := range t.down(head, 0, head.total()) {
		if from <= e.Number && e.Number <= to {
			dst = append(dst, e)
		}
	}
	slices.SortFunc(dst[start:], compareEntries)
	return dst
}

// ascend appends the lowest max entries numbered from..to, upwards.
func (t *memTable) ascend(dst []Entry, hash uint64, from, to int64, max int) []Entry {
	head := t.head(hash)
	start := len(dst)
	switch {
	case head == nil:
		return dst
	case head.isDisordered():
		dst = t.disorderedWindow(dst, head, from, to)
		return dst[:min(len(dst), start+max)]
	}
	begin, end := t.window(head, from, to)
	n := min(max, end-begin)
	dst = slices.Grow(dst, n)[:start+n]
	i := len(dst)
	for e := range t.down(head, begin, begin+n) {
		i--
		dst[i] = e
	}
	return dst
}

// descend appends the highest max entries numbered downTo..from, downwards.
func (t *memTable) descend(dst []Entry, hash uint64, from, downTo int64, max int) []Entry {
	head := t.head(hash)
	start := len(dst)
	switch {
	case head == nil:
		return dst
	case head.isDisordered():
		dst = t.disorderedWindow(dst, head, downTo, from)
		slices.Reverse(dst[start:])
		return dst[:min(len(dst), start+max)]
	}
	begin, end := t.window(head, downTo, from)
	for e := range t.down(head, end-min(max, end-begin), end) {
		dst = append(dst, e)
	}
	return dst
}

// sorted gives emit all entries as a plain table has them, some of one hash at a time. The table
// must be frozen. Blocks are first spread over buckets by the top of their hash, as references, and
// then sorted bucket by bucket: little memory beyond the table's.
func (t *memTable) sorted(emit func(rows []byte) error) error {
	bucketBits := min(16, max(0, bits.Len(uint(t.blocks))-4))
	shift := 64 - bucketBits // a shift by 64 gives 0: one bucket
	ends := make([]uint32, 1<<bucketBits+1)
	all := t.blockSlabs.all()
	for i := range t.blocks {
		ends[all[i>>slabBits][i&slabMask].hash>>shift+1]++
	}
	for b := 1; b < len(ends); b++ {
		ends[b] += ends[b-1]
	}
	refs := make([]uint32, t.blocks)
	for i := range t.blocks {
		b := all[i>>slabBits][i&slabMask].hash >> shift
		refs[ends[b]] = uint32(i)
		ends[b]++
	}
	var bucket []*memBlock
	var rows [entrySize << largestBlock]byte
	var begin uint32
	for b := range 1 << bucketBits {
		bucket = bucket[:0]
		for _, i := range refs[begin:ends[b]] {
			bucket = append(bucket, &all[i>>slabBits][i&slabMask])
		}
		begin = ends[b]
		slices.SortFunc(bucket, func(a, b *memBlock) int {
			return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.before, b.before))
		})
		for list := range lists(bucket) {
			if newest := list[len(list)-1]; newest.isDisordered() {
				if err := t.emitSorted(newest, rows[:0], emit); err != nil {
					return err
				}
				continue
			}
			for _, b := range list {
				putEntry(rows[:], t.entry(b, 0))
				n := entrySize
				for _, r := range t.others(b) {
					putEntry(rows[n:], Entry{Hash: b.hash, Number: r.number, Position: r.position})
					n += entrySize
				}
				if err := emit(rows[:n]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// emitSorted gives emit the entries of a list that is not in order.
func (t *memTable) emitSorted(newest *memBlock, rows []byte, emit func(rows []byte) error) error {
	entries := t.disorderedWindow(nil, newest, math.MinInt64, math.MaxInt64)
	for part := range slices.Chunk(entries, cap(rows)/entrySize) {
		rows = rows[:len(part)*entrySize]
		for i, e := range part {
			putEntry(rows[i*entrySize:], e)
		}
		if err := emit(rows); err != nil {
			return err
		}
	}
	return nil
}

// lists gives the blocks of each hash, of blocks in the order of their hashes.
func lists(blocks []*memBlock) iter.Seq[[]*memBlock] {
	return func(yield func([]*memBlock) bool) {
		for len(blocks) > 0 {
			n := 1
			for n < len(blocks) && blocks[n].hash == blocks[0].hash {
				n++
			}
			if !yield(blocks[:n]) {
				return
			}
			blocks = blocks[n:]
		}
	}
}
