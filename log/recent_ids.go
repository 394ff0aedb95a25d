package eventlog

import (
	"cmp"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// recentIDsDefault is how many of the newest event ids are remembered.
const recentIDsDefault = 1 << 20

// unaskedDefault is far more than what comes between two questions where questions are
// usual. To make the table costs as much as to keep it for 400,000 entries.
const unaskedDefault = 1 << 18

// recentIDs remembers the ids of the newest events, so that a retried write is recognised without
// reading the log. It is a ring of entries with an open-addressing table of slots over it, about 40
// bytes an event.
//
// It is filled when entries are applied, and at start, in the background, by load. Only find needs
// what was loaded, and waits for it.
//
// Only a leader asks, and only about writes with a weak expected version. To keep the table up to
// date costs several cache misses for each entry. So the table is dropped after a long time without
// a question. The next question makes it again, in some 100 ms.
type recentIDs struct {
	capacity int
	seed     uint64
	unasked  int // the table goes after so many entries
	loaded   chan struct{}
	told     sync.Once // of closing it

	mu   sync.Mutex // guards the fields below
	ring []*idBlock // grows up to capacity, then the oldest entry is replaced
	held int        // entries in ring
	next int        // in ring: the oldest entry once it is full
	// slots: 1 + index in ring below, its entry's tag above, 0 = free; a power of two long, at most
	// half full; nil: there is none
	table   []uint64
	idle    int        // entries added since find was called
	early   []recentID // added while load has not finished
	touched uint64     // keeps the compiler from leaving out what touch reads
	loading bool
	unread  *unreadIDs // ids that are damaged
	err     error      // why the log's ids could not be loaded
}

type recentID struct {
	id     event.ID
	stream uint64 // hash
	number int64
}

// unreadIDs tells which ids cannot be read, and why. A nil one has none.
type unreadIDs struct {
	streams map[uint64]error // by the hash of their names, those of which some events are damaged
	removed error            // removed events are damaged: of which streams is not known
}

// of returns why ids of a stream may be missing.
func (u *unreadIDs) of(stream uint64) error {
	if u == nil {
		return nil
	}
	return cmp.Or(u.streams[stream], u.removed)
}

// any returns why ids are missing.
func (u *unreadIDs) any() error {
	if u == nil {
		return nil
	}
	if u.removed != nil {
		return fmt.Errorf("writes that are sent again cannot all be recognised: %w", u.removed)
	}
	for _, err := range u.streams {
		return fmt.Errorf("writes to %d streams that are sent again cannot be recognised: %w", len(u.streams), err)
	}
	return nil
}

// idBlock is a piece of the ring, which grows by such: to copy all of it into larger memory
// again and again would touch thrice as much.
type idBlock [1 << 12]recentID

// newRecentIDs returns a memory of the given capacity; load must be called before find returns.
func newRecentIDs(capacity int) *recentIDs {
	return &recentIDs{capacity: capacity, unasked: unaskedDefault, seed: rand.Uint64(), loading: true, loaded: make(chan struct{})}
}

// load sets what the log held at start, newest first and no more than there is room for, and
// releases the callers of find. With an error every find fails with it, since half a memory is
// useless. The list becomes the ring, so that the process does not keep two of that size for long.
//
// Where ids could not be read find fails, unless it finds what it is asked for.
func (r *recentIDs) load(newestFirst []recentID, unread *unreadIDs, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loading = false
	r.err, r.unread = err, unread
	slices.Reverse(newestFirst)
	for part := range slices.Chunk(newestFirst, len(idBlock{})) {
		block := new(idBlock)
		if len(part) == len(block) {
			block = (*idBlock)(part)
		} else {
			copy(block[:], part)
		}
		r.ring = append(r.ring, block)
	}
	r.held = len(newestFirst)
	r.build()
	r.addLocked(r.early)
	r.early = nil
	r.told.Do(func() { close(r.loaded) })
}

// failed returns why ids of the log are not known, nil when they are or are being loaded.
func (r *recentIDs) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.unread.any(), r.err)
}

// reload begins again if ids could not be loaded, and reports so; load must be called then. Until
// that has happened find keeps failing.
func (r *recentIDs) reload() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cmp.Or(r.err, r.unread.any()) == nil || r.loading {
		return false
	}
	r.loading, r.ring, r.held, r.table, r.next = true, nil, 0, nil, 0
	return true
}

func (r *recentIDs) add(batch []recentID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loading {
		r.early = append(r.early, batch...)
		return
	}
	r.addLocked(batch)
}

func (r *recentIDs) addLocked(batch []recentID) {
	if r.idle += len(batch); r.idle > r.unasked {
		r.table = nil
	}
	if r.table == nil {
		for i := range batch {
			r.put(&batch[i])
		}
		return
	}
	var tags [touchAhead]uint32
	for len(batch) > 0 {
		n := min(len(batch), touchAhead)
		r.touch(batch[:n], &tags)
		r.touchOldest(n)
		for i := range batch[:n] {
			if r.held == r.capacity {
				r.forget(r.next)
			}
			at := r.put(&batch[i])
			if len(r.table) < 2*r.held {
				r.grow()
			}
			r.name(at, tags[i])
		}
		batch = batch[n:]
	}
}

// build makes the table from the ring, oldest entry first.
func (r *recentIDs) build() {
	r.table = nil
	r.grow()
	var tags [touchAhead]uint32
	for _, part := range [2][2]int{{r.next, r.held}, {0, r.next}} {
		for at := part[0]; at < part[1]; {
			within := at % len(idBlock{})
			batch := r.ring[at/len(idBlock{})][within:min(within+part[1]-at, within+touchAhead, len(idBlock{}))]
			r.touch(batch, &tags)
			for i := range batch {
				r.name(at+i, tags[i])
			}
			at += len(batch)
		}
	}
}

// entry is one of the ring.
func (r *recentIDs) entry(at int) *recentID {
	return &r.ring[uint(at)/uint(len(idBlock{}))][uint(at)%uint(len(idBlock{}))]
}

// touchAhead is how many entries are asked for at a time before the first is needed.
const touchAhead = 64

// touch computes the tags of entries and lets the slots that adding them is
// going to need come from memory, all at the same time: waiting for one after the
// other would take nearly all of the time.
func (r *recentIDs) touch(batch []recentID, tags *[touchAhead]uint32) {
	for i := range batch {
		tags[i] = r.tag(&batch[i])
	}
	for i := range batch {
		r.touched ^= r.table[r.home(tags[i])]
	}
}

// touchOldest does the same for the oldest entries, which are about to go.
func (r *recentIDs) touchOldest(n int) {
	if r.held < r.capacity {
		return
	}
	for i := range n {
		r.touched ^= r.table[r.home(r.tag(r.entry((r.next+i)%r.capacity)))]
	}
}

// metrics says how many events are remembered, and the bytes that takes.
func (r *recentIDs) metrics() (events, bytes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held + len(r.early), (len(r.ring)*len(idBlock{})+cap(r.early))*recentIDBytes + 8*len(r.table)
}

// recentIDBytes is the size of a recentID.
const recentIDBytes = 32

// find returns the number under which the event was last written to the stream.
func (r *recentIDs) find(id event.ID, stream uint64) (int64, bool, error) {
	<-r.loaded
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return 0, false, r.err
	}
	if r.idle = 0; r.table == nil {
		r.build()
	}
	e := recentID{id: id, stream: stream}
	slot, ok := r.slot(&e, r.tag(&e))
	if !ok {
		return 0, false, r.unread.of(stream)
	}
	return r.entry(int(uint32(r.table[slot])) - 1).number, true, nil
}

// has reports whether the event was written to the stream under exactly a number.
// The table names the newest of the numbers of one event. Only if that is
// another one all entries are looked at: an event that is not known in the stream costs nothing.
func (r *recentIDs) has(id event.ID, stream uint64, number int64) (bool, error) {
	newest, known, err := r.find(id, stream)
	if err != nil || !known || newest <= number {
		return newest == number && known, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for at := range r.held {
		if *r.entry(at) == (recentID{id: id, stream: stream, number: number}) {
			return true, nil
		}
	}
	return false, nil
}

// slot returns the table slot of an entry, or the free one where it would go.
func (r *recentIDs) slot(e *recentID, tag uint32) (int, bool) {
	mask := len(r.table) - 1
	for i := r.home(tag); ; i = (i + 1) & mask {
		s := r.table[i]
		if s == 0 {
			return i, false
		}
		if uint32(s>>32) != tag {
			continue // Spares a look at the ring.
		}
		if o := r.entry(int(uint32(s)) - 1); o.id == e.id && o.stream == e.stream {
			return i, true
		}
	}
}

// tag mixes an entry. Clients choose the ids, often by counting: a seeded hash
// spreads them whatever they are.
func (r *recentIDs) tag(e *recentID) uint32 {
	var key [24]byte
	copy(key[:], e.id[:])
	chunkfile.Order.PutUint64(key[16:], e.stream)
	return uint32(xxh3.HashSeed(key[:], r.seed))
}

// home is where the search for a tag begins.
func (r *recentIDs) home(tag uint32) int { return int(uint64(tag) * uint64(len(r.table)) >> 32) }

// put puts an entry into the ring and returns where it is, in the place of the oldest once there is
// no more room. An event that was written again stays in the ring under its earlier number too,
// which the table no longer names: the ring holds the newest events, each of them.
func (r *recentIDs) put(e *recentID) int {
	at := r.held
	if at == r.capacity {
		at = r.next
		if r.next++; r.next == r.capacity {
			r.next = 0
		}
	} else if r.held++; at == len(r.ring)*len(idBlock{}) {
		r.ring = append(r.ring, new(idBlock))
	}
	*r.entry(at) = *e
	return at
}

// name lets the table name a ring entry, instead of an older one of the same event.
func (r *recentIDs) name(at int, tag uint32) {
	slot, _ := r.slot(r.entry(at), tag)
	r.table[slot] = uint64(tag)<<32 | uint64(at+1)
}

// forget removes a ring entry from the table, if the table still names it,
// moving up what follows it in its run.
func (r *recentIDs) forget(at int) {
	mask := len(r.table) - 1
	old := r.entry(at)
	hole, ok := r.slot(old, r.tag(old))
	if !ok || uint32(r.table[hole]) != uint32(at+1) {
		return
	}
	for i := (hole + 1) & mask; r.table[i] != 0; i = (i + 1) & mask {
		home := r.home(uint32(r.table[i] >> 32))
		if (i-home)&mask >= (i-hole)&mask {
			r.table[hole] = r.table[i]
			hole = i
		}
	}
	r.table[hole] = 0
}

// grow makes a larger table. The tags tell where each slot goes.
func (r *recentIDs) grow() {
	old := r.table
	entries := min(r.capacity, max(1024, 2*r.held))
	r.table = make([]uint64, 1<<bits.Len(uint(2*entries-1)))
	mask := len(r.table) - 1
	for _, s := range old {
		if s == 0 {
			continue
		}
		i := r.home(uint32(s >> 32))
		for r.table[i] != 0 {
			i = (i + 1) & mask
		}
		r.table[i] = s
	}
}
