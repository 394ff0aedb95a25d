package eventlog

import (
	"sync"

	"github.com/annalsdb/annals/event"
)

// recentIDsMin is how many of the newest event ids are remembered at least (and at most).
const recentIDsMin = 1 << 20

// recentIDs remembers the ids of the newest events, so that a write that is
// tried again is recognised without reading the log. It is a ring of entries
// with an open-addressing table of slots over it, about 40 bytes an event.
//
// It is filled by whoever applies entries, and at start, in the background, by
// load. Only find needs what was loaded, and waits for it.
type recentIDs struct {
	mu      sync.Mutex
	ring    []recentID // grows up to capacity, then the oldest is replaced
	next    int        // in ring: where the next entry goes once it is full
	table   []uint32   // slots: 1 + index in ring, 0 = free; a power of two long
	cap     int
	early   []recentID // added while load has not finished
	loading bool
	loaded  chan struct{}
}

type recentID struct {
	id     event.ID
	stream uint64 // hash
	number int64
}

// newRecentIDs returns a memory of the given capacity; load must be called before find returns.
func newRecentIDs(capacity int) *recentIDs {
	return &recentIDs{cap: capacity, loading: true, loaded: make(chan struct{})}
}

// load sets what the log held at start, newest first, and lets find go on.
func (r *recentIDs) load(newestFirst []recentID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loading = false
	for i := len(newestFirst) - 1; i >= 0; i-- {
		r.addLocked(newestFirst[i])
	}
	for _, e := range r.early {
		r.addLocked(e)
	}
	r.early = nil
	close(r.loaded)
}

func (r *recentIDs) add(batch []recentID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loading {
		r.early = append(r.early, batch...)
		return
	}
	for _, e := range batch {
		r.addLocked(e)
	}
}

// find returns the number under which the event was last written to the stream.
func (r *recentIDs) find(id event.ID, stream uint64) (int64, bool) {
	<-r.loaded
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.table) == 0 {
		return 0, false
	}
	slot, ok := r.slot(id, stream)
	if !ok {
		return 0, false
	}
	return r.ring[r.table[slot]-1].number, true
}

// slot returns the table slot of an entry, or the free one where it would go.
func (r *recentIDs) slot(id event.ID, stream uint64) (int, bool) {
	mask := len(r.table) - 1
	for i := r.home(id, stream); ; i = (i + 1) & mask {
		at := r.table[i]
		if at == 0 {
			return i, false
		}
		if e := &r.ring[at-1]; e.id == id && e.stream == stream {
			return i, true
		}
	}
}

func (r *recentIDs) home(id event.ID, stream uint64) int {
	h := (order.Uint64(id[:8]) ^ stream) * 0x9e3779b97f4a7c15
	h = (h ^ order.Uint64(id[8:])) * 0xff51afd7ed558ccd
	return int((h ^ h>>32) & uint64(len(r.table)-1))
}

func (r *recentIDs) addLocked(e recentID) {
	if len(r.table) < 2*(len(r.ring)+1) && len(r.table) < 2*r.cap {
		r.grow()
	}
	if slot, ok := r.slot(e.id, e.stream); ok {
		// Written again under a later number: the newest counts. Its place in the ring stays.
		r.ring[r.table[slot]-1].number = e.number
		return
	}
	at := len(r.ring)
	if at < r.cap {
		if at == cap(r.ring) {
			grown := make([]recentID, at, min(r.cap, max(1024, at+at/2)))
			copy(grown, r.ring)
			r.ring = grown
		}
		r.ring = append(r.ring, e)
	} else {
		at = r.next
		r.next = (r.next + 1) % r.cap
		r.forget(at)
		r.ring[at] = e
	}
	slot, _ := r.slot(e.id, e.stream)
	r.table[slot] = uint32(at + 1)
}

// forget removes a ring entry from the table, moving up what follows it in its run.
func (r *recentIDs) forget(at int) {
	mask := len(r.table) - 1
	hole, ok := r.slot(r.ring[at].id, r.ring[at].stream)
	if !ok {
		return
	}
	for i := (hole + 1) & mask; r.table[i] != 0; i = (i + 1) & mask {
		e := &r.ring[r.table[i]-1]
		home := r.home(e.id, e.stream)
		if (i-home)&mask >= (i-hole)&mask {
			r.table[hole] = r.table[i]
			hole = i
		}
	}
	r.table[hole] = 0
}

func (r *recentIDs) grow() {
	size := 2048
	for size < 4*(len(r.ring)+1) {
		size *= 2
	}
	for size > 2*r.cap && size > 4 {
		size /= 2
	}
	if size <= len(r.table) {
		return
	}
	r.table = make([]uint32, size)
	for at := range r.ring {
		slot, _ := r.slot(r.ring[at].id, r.ring[at].stream)
		r.table[slot] = uint32(at + 1)
	}
}
