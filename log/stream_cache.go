package eventlog

import (
	"sync"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// streamCache keeps the facts of recently used streams: last number and
// metadata. What applies entries writes through it; readers fill it, unless
// something was applied meanwhile.
type streamCache struct {
	shards   [64]streamShard
	perShard int
}

type streamShard struct {
	mu      sync.Mutex
	streams map[uint64]*cachedStream
	changes uint64 // counts what was applied to streams of this shard
	bytes   int64  // that the streams take, about

	hits, misses uint64 // of get, by whether all was known
}

// cachedStreamBytes is what an entry takes besides the name and the metadata, about.
const cachedStreamBytes = 120

func (s *cachedStream) size() int64 { return cachedStreamBytes + int64(len(s.name)) }

// streamStatistics are the numbers of the cache.
type streamStatistics struct {
	hits, misses uint64
	entries      int
	bytes        int64
}

func (c *streamCache) metrics() (f streamStatistics) {
	for i := range c.shards {
		sh := &c.shards[i]
		sh.mu.Lock()
		f.hits += sh.hits
		f.misses += sh.misses
		f.entries += len(sh.streams)
		f.bytes += sh.bytes
		sh.mu.Unlock()
	}
	return f
}

func (c *streamCache) capacity() int { return c.perShard * len(c.shards) }

// cachedStream holds what is known of one stream. Of two names with one hash the later one is kept.
type cachedStream struct {
	name    string
	last    int64
	deleted bool // a tombstone was written

	metaKnown bool
	metaLast  int64
	metadata  *event.Metadata // nil: none
}

func newStreamCache(capacity int) *streamCache {
	c := &streamCache{perShard: max(1, capacity/64)}
	for i := range c.shards {
		c.shards[i].streams = make(map[uint64]*cachedStream)
	}
	return c
}

func (c *streamCache) shard(hash uint64) *streamShard { return &c.shards[hash>>58] }

// get returns what is cached of a stream, and the count of changes to hand to put.
func (c *streamCache) get(hash uint64, name string) (s cachedStream, ok bool, changes uint64) {
	sh := c.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if e := sh.streams[hash]; e != nil && e.name == name {
		if e.metaKnown {
			sh.hits++
		} else {
			sh.misses++
		}
		return *e, true, sh.changes
	}
	sh.misses++
	return cachedStream{}, false, sh.changes
}

// put stores what a reader found out, unless the shard changed since get.
func (c *streamCache) put(hash uint64, s cachedStream, changes uint64) {
	sh := c.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.changes == changes {
		sh.store(hash, &s, c.perShard)
	}
}

func (sh *streamShard) store(hash uint64, s *cachedStream, limit int) {
	old, ok := sh.streams[hash]
	switch {
	case ok:
		sh.bytes -= old.size()
	case len(sh.streams) >= limit:
		for victim := range sh.streams { // Map order is random enough to evict by.
			sh.forget(victim)
			break
		}
	}
	sh.streams[hash] = s
	sh.bytes += s.size()
}

func (sh *streamShard) forget(hash uint64) {
	sh.bytes -= sh.streams[hash].size()
	delete(sh.streams, hash)
}

// applied notes that the events of a stream from number to last were applied, and returns the
// number of the event before them if it is known. The name shares memory that may go away.
func (c *streamCache) applied(hash uint64, name []byte, number, last int64) (before int64, known bool) {
	sh := c.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.changes++
	e := sh.streams[hash]
	switch {
	case e == nil || e.name != string(name):
		if number == 0 { // A new stream: what follows will ask for it soon.
			sh.store(hash, &cachedStream{name: string(name), last: last}, c.perShard)
		} else if e != nil {
			sh.forget(hash)
		}
		return 0, false
	case number == event.TombstoneNumber:
		e.deleted = true
		return number - 1, true // It follows everything.
	}
	before, e.last = e.last, last
	return before, true
}

// metadataApplied notes that an event was applied to the metadata stream of a stream.
func (c *streamCache) metadataApplied(original []byte) {
	hash := chunkfile.HashStream(chunkfile.String(original))
	sh := c.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.changes++
	if e := sh.streams[hash]; e != nil && !e.deleted { // After a tombstone metadata has no effect.
		e.metaKnown = false
	}
}

// reset forgets everything, and keeps readers from storing what they found before.
func (c *streamCache) reset() {
	for i := range c.shards {
		sh := &c.shards[i]
		sh.mu.Lock()
		sh.changes++
		clear(sh.streams)
		sh.bytes = 0
		sh.mu.Unlock()
	}
}
