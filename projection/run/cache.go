package run

// entry is the state of one partition.
type entry struct {
	name          string
	state, result []byte // without a transformation result is state
	known         bool   // it has or had a state, so that it is listed
	// changed says that the state is not in a snapshot yet, saving that it is in one
	// that is being written. Without both the entry can be loaded from its stream, and
	// is among those that may be dropped: prev was used later, next earlier.
	changed, saving bool
	prev, next      *entry
}

func (e *entry) bytes() int64 {
	n := int64(len(e.state))
	if len(e.result) > 0 && (len(e.state) == 0 || &e.result[0] != &e.state[0]) {
		n += int64(len(e.result))
	}
	return n
}

// cache holds states of partitions: those that changed since the last checkpoint,
// and so many others that there are limit of them, the ones used last.
type cache struct {
	limit   int
	entries map[string]*entry
	changed []*entry // in the order in which they changed first
	idle    entry    // idle.next was used last, idle.prev first
	bytes   int64    // of all states
	// all holds the entries in the order in which they appeared, if keepsAll says that none is ever
	// dropped.
	keepsAll bool
	all      []*entry
}

func newCache(limit int, keepsAll bool) *cache {
	c := &cache{limit: limit, keepsAll: keepsAll, entries: map[string]*entry{}}
	c.idle.prev, c.idle.next = &c.idle, &c.idle
	return c
}

// get returns an entry and takes note that it is used.
func (c *cache) get(name string) *entry {
	e := c.entries[name]
	if e != nil && e.next != nil && c.idle.next != e {
		c.unlink(e)
		c.link(e)
	}
	return e
}

// add takes an entry in that is going to be used, as one that did not change.
func (c *cache) add(e *entry) {
	c.entries[e.name] = e
	c.bytes += e.bytes()
	if c.keepsAll {
		c.all = append(c.all, e)
		return
	}
	c.link(e)
	c.trim(e)
}

// set changes an entry.
func (c *cache) set(e *entry, state, result []byte) {
	c.bytes -= e.bytes()
	e.state, e.result, e.known = state, result, true
	c.bytes += e.bytes()
	if e.changed {
		return
	}
	if e.next != nil {
		c.unlink(e)
	}
	e.changed = true
	c.changed = append(c.changed, e)
}

// take returns what changed, as part of a snapshot that is going to be written.
func (c *cache) take() []*entry {
	taken := c.changed
	c.changed = nil
	for _, e := range taken {
		e.changed, e.saving = false, true
	}
	return taken
}

// saved says that the entries of a snapshot are stored. in is the entry in use.
func (c *cache) saved(taken []*entry, in *entry) {
	for _, e := range taken {
		e.saving = false
		if !e.changed && !c.keepsAll {
			c.link(e)
		}
	}
	c.trim(in)
}

// full says that there are more entries than the limit, and none can be dropped.
func (c *cache) full() bool {
	return !c.keepsAll && len(c.entries) > c.limit && c.idle.next == &c.idle
}

// trim drops the entries beyond the limit, but not the one in use.
func (c *cache) trim(in *entry) {
	for e := c.idle.prev; len(c.entries) > c.limit && e != &c.idle; {
		before := e.prev
		if e != in {
			c.unlink(e)
			delete(c.entries, e.name)
			c.bytes -= e.bytes()
		}
		e = before
	}
}

func (c *cache) link(e *entry) {
	e.prev, e.next = &c.idle, c.idle.next
	e.prev.next, e.next.prev = e, e
}

func (c *cache) unlink(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}
