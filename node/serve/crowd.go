package serve

import (
	"container/heap"
	"net"
	"net/netip"
	"sync"

	"github.com/annalsdb/annals/api"
)

// crowd is a bounded set of connections. Where it is full one of those that are in it gives way
// to the next: of the address that has most of them the one that was used the longest time ago.
//
// So an address has no fixed share. Alone it may have all, as a proxy or the one
// host of an application does; once there is no room left, none that has less than others loses
// anything to them, however many they open.
//
// What was used when is looked up only where the order of two depends on it: a connection's place
// goes by what was noted last, which is never later than what is true, and is corrected when it
// comes to the front.
type crowd struct {
	most int

	// guards the fields below, members included; nothing is called within it but used
	mu      sync.Mutex
	sources map[netip.Addr]*crowdSource
	order   sourceHeap
	size    int
}

// member is a connection of a crowd.
type member struct {
	used func() int64 // when it was used last; it rises
	end  func()       // ends it; may be called more than once

	from  *crowdSource // nil: it is in no crowd
	noted int64        // used, as of some time
	at    int          // its place in from
}

// crowdSource are the members of one address.
type crowdSource struct {
	addr    netip.Addr
	members memberHeap
	at      int // its place in the order of the sources
}

// add takes a connection in, and ends others for which there is no room. It returns how many.
func (c *crowd) add(m *member, from net.Addr) (ended int) {
	addr := api.Source(from.String())
	var out []*member
	c.mu.Lock()
	for c.size >= max(c.most, 1) {
		out = append(out, c.takeIdlest())
	}
	s := c.sources[addr]
	if s == nil {
		if c.sources == nil {
			c.sources = map[netip.Addr]*crowdSource{}
		}
		s = &crowdSource{addr: addr}
		c.sources[addr] = s
	}
	m.from, m.noted = s, m.used()
	heap.Push(&s.members, m)
	if c.size++; len(s.members) == 1 {
		heap.Push(&c.order, s)
	} else {
		heap.Fix(&c.order, s.at)
	}
	c.mu.Unlock()
	for _, m := range out {
		m.end()
	}
	return len(out)
}

// remove takes a connection out, if it is in.
func (c *crowd) remove(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.from != nil {
		c.take(m)
	}
}

// giveWay ends the connection that would give way to a new one, if there are more than so many.
func (c *crowd) giveWay(least int) bool {
	c.mu.Lock()
	var m *member
	if c.size > least {
		m = c.takeIdlest()
	}
	c.mu.Unlock()
	if m == nil {
		return false
	}
	m.end()
	return true
}

// takeIdlest takes out the one that gives way. The crowd is not empty.
func (c *crowd) takeIdlest() *member {
	for {
		s := c.order[0]
		m := s.members[0]
		used := m.used()
		if used == m.noted {
			c.take(m)
			return m
		}
		m.noted = used
		heap.Fix(&s.members, 0)
		heap.Fix(&c.order, 0)
	}
}

func (c *crowd) take(m *member) {
	s := m.from
	heap.Remove(&s.members, m.at)
	m.from = nil
	if c.size--; len(s.members) > 0 {
		heap.Fix(&c.order, s.at)
		return
	}
	heap.Remove(&c.order, s.at)
	delete(c.sources, s.addr)
}

// memberHeap has the member that was used the longest time ago first.
type memberHeap []*member

func (h memberHeap) Len() int           { return len(h) }
func (h memberHeap) Less(i, j int) bool { return h[i].noted < h[j].noted }
func (h memberHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *memberHeap) Push(m any) {
	one := m.(*member)
	one.at = len(*h)
	*h = append(*h, one)
}
func (h *memberHeap) Pop() any {
	last := len(*h) - 1
	m := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return m
}

// sourceHeap has the source with the most members first, and of several the one with the idlest.
type sourceHeap []*crowdSource

func (h sourceHeap) Len() int { return len(h) }
func (h sourceHeap) Less(i, j int) bool {
	a, b := h[i].members, h[j].members
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return len(a) > 0 && a[0].noted < b[0].noted
}
func (h sourceHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}
func (h *sourceHeap) Push(s any) {
	one := s.(*crowdSource)
	one.at = len(*h)
	*h = append(*h, one)
}
func (h *sourceHeap) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return s
}
