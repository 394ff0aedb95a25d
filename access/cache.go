package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"sync"
	"sync/atomic"
)

// cacheSize is how many principals are remembered.
const cacheSize = 1000

// digest is an HMAC of credentials under the cache's key.
type digest [sha256.Size]byte

// cache remembers successful logins. Reading takes no lock and no allocation:
// the map is immutable and replaced as a whole on every change. A change copies
// it, and looks for the entry to evict among all, which is nothing next to the
// hashing that goes before.
type cache struct {
	entries atomic.Pointer[map[string]*cached]
	clock   atomic.Uint64 // counts uses

	mu         sync.Mutex    // serialises changes of entries
	generation atomic.Uint64 // changed under mu by every forgetting
}

// cached is one login. All but used is immutable.
type cached struct {
	principal Principal
	digest    digest
	used      atomic.Uint64 // the cache's clock when it was last used
}

// get returns the principal if the login is cached with these credentials.
func (c *cache) get(login []byte, d *digest) (Principal, bool) {
	entries := c.entries.Load()
	if entries == nil {
		return Principal{}, false
	}
	e := (*entries)[string(login)]
	if e == nil || subtle.ConstantTimeCompare(e.digest[:], d[:]) != 1 {
		return Principal{}, false
	}
	// The latest user of the cache need not be stamped again: one busy client does not fight over the clock.
	if e.used.Load() != c.clock.Load() {
		e.used.Store(c.clock.Add(1))
	}
	return e.principal, true
}

// put remembers a login, unless something was forgotten since the caller took
// the generation: what it verified may have changed in between.
func (c *cache) put(login string, d *digest, p Principal, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation.Load() != generation {
		return
	}
	next := c.clone()
	if _, ok := next[login]; !ok && len(next) >= cacheSize {
		delete(next, leastUsed(next))
	}
	e := &cached{principal: p, digest: *d}
	e.used.Store(c.clock.Add(1))
	next[login] = e
	c.entries.Store(&next)
}

// forget drops one login.
func (c *cache) forget(login string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation.Add(1)
	entries := c.entries.Load()
	if entries == nil || (*entries)[login] == nil {
		return
	}
	next := c.clone()
	delete(next, login)
	c.entries.Store(&next)
}

// forgetAll drops every login.
func (c *cache) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation.Add(1)
	c.entries.Store(nil)
}

// clone returns a copy of the entries that may be changed. The caller holds mu.
func (c *cache) clone() map[string]*cached {
	entries := c.entries.Load()
	if entries == nil {
		return make(map[string]*cached)
	}
	return maps.Clone(*entries)
}

func leastUsed(entries map[string]*cached) (login string) {
	lowest := ^uint64(0)
	for l, e := range entries {
		if u := e.used.Load(); u <= lowest {
			login, lowest = l, u
		}
	}
	return login
}
