package eventlog

import (
	"math/bits"
	"math/rand/v2"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
)

// recentIDsDefault is how many of the newest event ids are remembered.
const recentIDsDefault = 1 << 20

// recentIDs remembers the ids of the newest events, so that a write that is
// tried again is recognised without reading the log. It is a ring of entries
// with an open-addressing table of slots over it, about 40 bytes an event.
//
// It is filled by whoever applies entries, and at start, in the background, by
// load. Only find needs what was loaded, and waits for it.
type recentIDs struct {
	capacity int
	seed     uint64
	loaded   chan struct{}

	mu      sync.Mutex // guards the fields below
	ring    []recentID // grows up to capacity, then the oldest is replaced
	next    int        // in ring: the oldest entry once it is full
	table   []uint32   // slots: 1 + index in ring, 0 = free; a power of two long, at most half full
	early   []recentID // added while load has not finished
	loading bool
	err     error // why the log's ids could not be loaded
}

type recentID struct {
	id     event.ID
	stream uint64 // hash
	number int64
}

// newRecentIDs returns a memory of the given capacity; load must be called before find returns.
func newRecentIDs(capacity int) *recentIDs {
	return &recentIDs{capacity: capacity, seed: rand.Uint64(), loading: true, loaded: make(chan struct{})}
}

// load sets what the log held at start, newest first, and lets find go on. With
// an error every find fails with it: nobody may rely on half a memory.
func (r *recentIDs) load(newestFirst []recentID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loading = false
	r.err = err
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
func (r *recentIDs) find(id event.ID, stream uint64) (int64, bool, error) {
	<-r.loaded
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || len(r.table) == 0 {
		return 0, false, r.err
	}
	slot, ok := r.slot(id, stream)
	if !ok {
		return 0, false, nil
	}
	return r.ring[r.table[slot]-1].number, true, nil
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

// home is where the search for an entry begins. Clients choose the ids, often by
// counting: a seeded hash spreads them whatever they are.
func (r *recentIDs) home(id event.ID, stream uint64) int {
	var key [24]byte
	copy(key[:], id[:])
	order.PutUint64(key[16:], stream)
	return int(xxh3.HashSeed(key[:], r.seed) & uint64(len(r.table)-1))
}

// addLocked puts an entry into the ring and lets the table name it. An event
// that was written again stays in the ring under its earlier number too, which
// the table no longer names: the ring holds the newest events, each of them.
func (r *recentIDs) addLocked(e recentID) {
	at := len(r.ring)
	if at < r.capacity {
		if at == cap(r.ring) {
			grown := make([]recentID, at, min(r.capacity, max(1024, at+at/2)))
			copy(grown, r.ring)
			r.ring = grown
		}
		r.ring = append(r.ring, e)
		if len(r.table) < 2*len(r.ring) {
			r.grow() // Enters the new one too.
			return
		}
	} else {
		at = r.next
		r.next = (r.next + 1) % r.capacity
		r.forget(at)
		r.ring[at] = e
	}
	slot, _ := r.slot(e.id, e.stream)
	r.table[slot] = uint32(at + 1)
}

// forget removes a ring entry from the table, if the table still names it,
// moving up what follows it in its run.
func (r *recentIDs) forget(at int) {
	mask := len(r.table) - 1
	hole, ok := r.slot(r.ring[at].id, r.ring[at].stream)
	if !ok || r.table[hole] != uint32(at+1) {
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

// grow makes a larger table of all entries, from the oldest to the newest: the ring is not full before.
func (r *recentIDs) grow() {
	entries := min(r.capacity, max(1024, 2*len(r.ring)))
	r.table = make([]uint32, 1<<bits.Len(uint(2*entries-1)))
	for at := range r.ring {
		slot, _ := r.slot(r.ring[at].id, r.ring[at].stream)
		r.table[slot] = uint32(at + 1)
	}
}
