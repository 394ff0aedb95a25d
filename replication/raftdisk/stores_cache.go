package raftdisk

import (
	"sync"

	"github.com/hashicorp/raft"
)

const (
	cacheEntries = 512
	cacheBytes   = 4 << 20 // the newest entry stays, however large it is
)

// entryCache keeps the newest entries of the Raft log in memory for followers
// that lag a little and for applying. Unlike raft's own cache it is bounded by
// bytes too: 512 joined entries could be half a gigabyte.
type entryCache struct {
	mu     sync.RWMutex
	ring   [cacheEntries]raft.Log // by index modulo its length; index 0 is an empty slot
	oldest uint64                 // no slot holds a lower index
	newest uint64
	bytes  int
}

func (c *entryCache) get(index uint64, log *raft.Log) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	slot := &c.ring[index%cacheEntries]
	if index == 0 || slot.Index != index {
		return false
	}
	*log = *slot
	return true
}

func (c *entryCache) put(logs []*raft.Log) {
	if len(logs) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, log := range logs {
		slot := &c.ring[log.Index%cacheEntries]
		c.bytes += len(log.Data) - len(slot.Data)
		*slot = *log
	}
	c.newest = logs[len(logs)-1].Index
	if c.newest-c.oldest >= cacheEntries {
		c.oldest = c.newest - min(c.newest, cacheEntries-1)
	}
	for ; c.bytes > cacheBytes && c.oldest < c.newest; c.oldest++ {
		c.clear(c.oldest)
	}
}

// drop forgets the entries from low to high. They are about to be deleted, perhaps to be erased.
func (c *entryCache) drop(low, high uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.ring {
		if index := c.ring[i].Index; index != 0 && low <= index && index <= high {
			c.clear(index)
		}
	}
}

func (c *entryCache) clear(index uint64) {
	slot := &c.ring[index%cacheEntries]
	if slot.Index == index {
		c.bytes -= len(slot.Data)
		*slot = raft.Log{}
	}
}

// entrySizes remembers how large the newest entries are, so that the number of entries kept at a
// snapshot can follow from a bound in bytes.
type entrySizes struct {
	mu    sync.Mutex
	index []uint64 // by index modulo the length
	bytes []int
}

// unknownEntrySize is assumed of entries stored before this start: the usual bound of an entry.
const unknownEntrySize = 1 << 20

func newEntrySizes(entries int) *entrySizes {
	return &entrySizes{index: make([]uint64, entries), bytes: make([]int, entries)}
}

// put records the sizes and returns their sum.
func (e *entrySizes) put(logs []*raft.Log) (sum int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, log := range logs {
		at := log.Index % uint64(len(e.index))
		e.index[at], e.bytes[at] = log.Index, len(log.Data)
		sum += len(log.Data)
	}
	return sum
}

// trailing returns how many entries, counted back from last, carry at most the
// given bytes together; at least one, at most as many as are remembered.
func (e *entrySizes) trailing(last uint64, maxBytes int64) uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, sum := uint64(0), int64(0)
	for n < uint64(len(e.index)) && n < last {
		index := last - n
		size := unknownEntrySize
		if at := index % uint64(len(e.index)); e.index[at] == index {
			size = e.bytes[at]
		}
		if sum += int64(size); sum > maxBytes {
			break
		}
		n++
	}
	return max(n, 1)
}
