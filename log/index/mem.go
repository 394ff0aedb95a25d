package index

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/annalsdb/annals/event"
)

const (
	slabBits = 10
	slabSize = 1 << slabBits
	slabMask = slabSize - 1

	firstSlots = 1024
)

// memEntry is an entry in memory with its links to older entries of the same
// hash. An entry is written once, before a slot publishes it, and never changed.
//
// References are the entry's place plus one, so that 0 means none. The entries
// of one hash form a random-access list: depth counts from 1 at the oldest;
// jump leads as far back as the skew-binary decomposition of depth allows, which
// bounds every search by O(log depth) steps.
type memEntry struct {
	hash     uint64
	number   int64
	position int64
	prev     uint32
	jump     uint32
	depth    uint32
	// 1: the numbers from here back do not strictly fall (streams with the same hash)
	disordered uint32
}

func (e *memEntry) entry() Entry { return Entry{Hash: e.hash, Number: e.number, Position: e.position} }

type slab [slabSize]memEntry

// slotTable is an open-addressing table with linear probing: each slot refers to the newest entry
// of one hash. It is at most three quarters full and only ever gains slots. The lower half of a
// slot refers to the entry, the upper half is 32 bits of the mixed hash. With them a search skips
// entries of other hashes, and a larger table places the slot.
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

// memTable holds entries in memory. One goroutine adds; readers need no lock:
// whatever reference a reader finds in a slot leads to entries that were complete
// before the slot was stored, and to slabs whose folder was stored before that.
type memTable struct {
	slabs atomic.Pointer[[]*slab]
	slots atomic.Pointer[slotTable]

	// Written by the adding goroutine; others read them once the table is frozen.
	count   int
	streams int // slots in use

	shown  atomic.Int64 // count, as others may read it
	shares [len(Shares{})]struct{ entries, hashes atomic.Int64 }

	upTo   int64       // log position that the entries reach; guarded by Index.mu until frozen
	chain  event.Chain // of the log there; like upTo
	seq    uint64      // number of the freeze, given under Index.mu
	frozen time.Time   // when; given with seq
	taken  bool        // by the flusher, or for good; guarded by Index.mu
}

func newMemTable() *memTable {
	t := &memTable{}
	t.slabs.Store(&[]*slab{})
	t.slots.Store(newSlotTable(firstSlots))
	return t
}

// bytes is the memory that it takes.
func (t *memTable) bytes() int64 {
	return int64(len(*t.slabs.Load()))*int64(unsafe.Sizeof(slab{})) + 8*int64(len(t.slots.Load().slots))
}

// ref returns the entry of a reference other than 0.
func (t *memTable) ref(r uint32) *memEntry {
	return &(*t.slabs.Load())[(r-1)>>slabBits][(r-1)&slabMask]
}

// add appends an entry. Before the first one of a hash becomes visible, announce is called.
func (t *memTable) add(e Entry, announce func(hash uint64)) {
	slots := t.slots.Load()
	tag := slotTag(e.Hash)
	at, head := t.find(slots, e.Hash, tag)
	if t.count&slabMask == 0 {
		// A reader's folder may share the array, but ends before the new place.
		folder := append(*t.slabs.Load(), new(slab))
		t.slabs.Store(&folder)
	}
	t.count++
	ref := uint32(t.count)
	n := t.ref(ref)
	*n = memEntry{hash: e.Hash, number: e.Number, position: e.Position, depth: 1}
	share := &t.shares[e.Hash>>shareShift]
	share.entries.Store(share.entries.Load() + 1) // One goroutine adds.
	if head != 0 {
		t.link(n, head)
	} else {
		announce(e.Hash)
		share.hashes.Store(share.hashes.Load() + 1)
	}
	slots.slots[at].Store(uint64(tag)<<32 | uint64(ref))
	if head == 0 {
		t.streams++
		if t.streams*4 > len(slots.slots)*3 {
			t.grow(slots)
		}
	}
}

func (t *memTable) link(n *memEntry, head uint32) {
	p := t.ref(head)
	n.prev, n.jump, n.depth = head, head, p.depth+1
	if p.jump != 0 {
		// Two equal skips before this entry become one: the carry of skew-binary counting.
		if j := t.ref(p.jump); j.jump != 0 && p.depth-j.depth == j.depth-t.ref(j.jump).depth {
			n.jump = j.jump
		}
	}
	if p.disordered != 0 || n.number <= p.number {
		n.disordered = 1
	}
}

// find returns the slot of a hash and its newest entry, or the empty slot where the hash belongs.
func (t *memTable) find(slots *slotTable, hash uint64, tag uint32) (at int, head uint32) {
	for at = slots.home(tag); ; at = slots.after(at) {
		slot := slots.slots[at].Load()
		head = uint32(slot)
		if head == 0 || uint32(slot>>32) == tag && t.ref(head).hash == hash {
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

// head returns the newest entry of a hash, or nil.
func (t *memTable) head(hash uint64) *memEntry {
	if _, r := t.find(t.slots.Load(), hash, slotTag(hash)); r != 0 {
		return t.ref(r)
	}
	return nil
}

// back returns the entry before e of the same hash, or nil.
func (t *memTable) back(e *memEntry) *memEntry {
	if e.prev == 0 {
		return nil
	}
	return t.ref(e.prev)
}

// descendTo returns the newest entry, from e to the oldest, for which the predicate holds, or nil.
// Once it holds it must hold for all older entries.
func (t *memTable) descendTo(e *memEntry, holds func(*memEntry) bool) *memEntry {
	for e != nil && !holds(e) {
		if e.jump != 0 {
			if j := t.ref(e.jump); !holds(j) {
				e = j
				continue
			}
		}
		e = t.back(e)
	}
	return e
}

// last returns the entry with the highest number of a hash.
func (t *memTable) last(hash uint64) (Entry, bool) {
	e := t.head(hash)
	if e == nil {
		return Entry{}, false
	}
	best := e.entry()
	if e.disordered != 0 {
		for e = t.back(e); e != nil; e = t.back(e) {
			if c := e.entry(); best.less(c) {
				best = c
			}
		}
	}
	return best, true
}

// window returns the newest and the lowest depth of the entries with numbers
// from..to of an ordered chain; nil when there are none.
func (t *memTable) window(head *memEntry, from, to int64) (newest *memEntry, lowest uint32) {
	newest = t.descendTo(head, func(e *memEntry) bool { return e.number <= to })
	if newest == nil || newest.number < from {
		return nil, 0
	}
	below := t.descendTo(newest, func(e *memEntry) bool { return e.number < from })
	if below == nil {
		return newest, 1
	}
	return newest, below.depth + 1
}

// disorderedWindow collects the entries numbered from..to of a chain that is
// not ordered, sorted upwards. It walks the whole chain: only streams that share
// a hash pay for it.
func (t *memTable) disorderedWindow(dst []Entry, head *memEntry, from, to int64) []Entry {
	start := len(dst)
	for e := head; e != nil; e = t.back(e) {
		if from <= e.number && e.number <= to {
			dst = append(dst, e.entry())
		}
	}
	slices.SortFunc(dst[start:], compareEntries)
	return dst
}

// ascend appends the lowest max entries numbered from..to, upwards.
func (t *memTable) ascend(dst []Entry, hash uint64, from, to int64, max int) []Entry {
	head := t.head(hash)
	if head == nil {
		return dst
	}
	if head.disordered != 0 {
		start := len(dst)
		dst = t.disorderedWindow(dst, head, from, to)
		return dst[:min(len(dst), start+max)]
	}
	e, lowest := t.window(head, from, to)
	if e == nil {
		return dst
	}
	n := int(e.depth - lowest + 1)
	if n > max {
		n = max
		limit := lowest + uint32(max) - 1
		e = t.descendTo(e, func(e *memEntry) bool { return e.depth <= limit })
	}
	dst = slices.Grow(dst, n)
	dst = dst[:len(dst)+n]
	for i := len(dst) - 1; n > 0; i, n = i-1, n-1 {
		dst[i] = e.entry()
		e = t.back(e)
	}
	return dst
}

// descend appends the highest max entries numbered downTo..from, downwards.
func (t *memTable) descend(dst []Entry, hash uint64, from, downTo int64, max int) []Entry {
	head := t.head(hash)
	if head == nil {
		return dst
	}
	if head.disordered != 0 {
		start := len(dst)
		dst = t.disorderedWindow(dst, head, downTo, from)
		slices.Reverse(dst[start:])
		return dst[:min(len(dst), start+max)]
	}
	e := t.descendTo(head, func(e *memEntry) bool { return e.number <= from })
	for ; e != nil && e.number >= downTo && max > 0; max-- {
		dst = append(dst, e.entry())
		e = t.back(e)
	}
	return dst
}

// sorted gives emit all entries as a plain table has them, some of one hash at a
// time. The table must be frozen. Entries are first spread over buckets by the top of their hash, as
// references, and then sorted bucket by bucket: little memory beyond the table's.
func (t *memTable) sorted(emit func(rows []byte) error) error {
	bucketBits := min(16, max(0, bits.Len(uint(t.count))-4))
	shift := 64 - bucketBits // a shift by 64 gives 0: one bucket
	ends := make([]uint32, 1<<bucketBits+1)
	slabs := *t.slabs.Load()
	for i := range t.count {
		ends[slabs[i>>slabBits][i&slabMask].hash>>shift+1]++
	}
	for b := 1; b < len(ends); b++ {
		ends[b] += ends[b-1]
	}
	refs := make([]uint32, t.count)
	for i := range t.count {
		b := slabs[i>>slabBits][i&slabMask].hash >> shift
		refs[ends[b]] = uint32(i)
		ends[b]++
	}
	var bucket []Entry
	rows := make([]byte, 0, blockEntries*entrySize)
	var begin uint32
	for b := range 1 << bucketBits {
		bucket = bucket[:0]
		for _, i := range refs[begin:ends[b]] {
			bucket = append(bucket, slabs[i>>slabBits][i&slabMask].entry())
		}
		begin = ends[b]
		slices.SortFunc(bucket, compareEntries)
		for i := range bucket {
			rows = rows[:len(rows)+entrySize]
			putEntry(rows[len(rows)-entrySize:], bucket[i])
			if i+1 < len(bucket) && bucket[i+1].Hash == bucket[i].Hash && len(rows) < cap(rows) {
				continue
			}
			if err := emit(rows); err != nil {
				return err
			}
			rows = rows[:0]
		}
	}
	return nil
}
