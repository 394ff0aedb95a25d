package subscription

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// Pause says who paused a group, and when.
type Pause struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// delays are the messages of a group that wait before they are tried again.
type delays struct {
	due dueHeap
	// those of each bucket by number, where the strategy keeps an order: they hold back what comes
	// after them
	held map[int16][]*message
}

// delay has a message that is in no list by its place handed out at a time or later.
func (c *core) delay(m *message, due time.Time) {
	m.state, m.due = delayed, due
	heap.Push(&c.due, m)
	if m.replayed { // It lost its place in the order when it was parked.
		return
	}
	if bucket := c.strategy.bucket(m); bucket >= 0 {
		if c.held == nil {
			c.held = map[int16][]*message{}
		}
		all := c.held[bucket]
		at, _ := slices.BinarySearchFunc(all, m, inOrderOfNumbers)
		c.held[bucket] = slices.Insert(all, at, m)
	}
}

func inOrderOfNumbers(a, b *message) int { return cmp.Compare(a.number, b.number) }

// holder returns the delayed message that must go out before another one; nil: there is none.
func (c *core) holder(m *message) *message {
	if len(c.held) == 0 || m.replayed {
		return nil
	}
	if all := c.held[c.strategy.bucket(m)]; len(all) > 0 && all[0].number < m.number {
		return all[0]
	}
	return nil
}

// isHeld reports whether a message that waits to be handed out must not be, because an earlier one
// is delayed. If it is to be handed out again, it is delayed as well.
func (c *core) isHeld(m *message) bool {
	first := c.holder(m)
	if first != nil && m.state == waiting {
		c.retry.remove(m)
		c.delay(m, first.due)
	}
	return first != nil
}

// release puts the messages back whose delay is over.
func (c *core) release(now time.Time) {
	for len(c.due) > 0 && !c.due[0].due.After(now) {
		m := c.due[0]
		if first := c.holder(m); first != nil { // That one is due later.
			m.due = first.due
			heap.Fix(&c.due, 0)
			continue
		}
		heap.Pop(&c.due)
		if all := c.held[m.bucket]; len(all) > 0 && all[0] == m {
			if c.held[m.bucket] = slices.Delete(all, 0, 1); len(all) == 1 {
				delete(c.held, m.bucket)
			}
		}
		c.wait(m)
	}
}

// letGo forgets the messages that a reset let go.
func (d *delays) letGo() {
	d.due = slices.DeleteFunc(d.due, func(m *message) bool { return m.state == done })
	heap.Init(&d.due)
	d.held = nil
}

// pause is the input that nothing is to be handed out; nil: no more. What consumers were given and
// have not received comes back as it was.
func (c *core) pause(p *Pause, now time.Time) {
	c.paused = p
	if p == nil {
		return
	}
	for _, to := range c.consumers {
		for _, m := range slices.Clone(to.unread) {
			if m.state == outstanding { // Else it is not tracked, and would be lost.
				c.takeBack(m, now)
				c.wait(m)
			}
		}
	}
}

// dueHeap has the message in front that is due first; of those due at the same time the one with
// the lowest number.
type dueHeap []*message

func (h dueHeap) Len() int      { return len(h) }
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h dueHeap) Less(i, j int) bool {
	if h[i].due.Equal(h[j].due) {
		return h[i].number < h[j].number
	}
	return h[i].due.Before(h[j].due)
}

// Push and Pop are those of container/heap.
func (h *dueHeap) Push(m any) { *h = append(*h, m.(*message)) }

func (h *dueHeap) Pop() any {
	all := *h
	m := all[len(all)-1]
	all[len(all)-1] = nil
	*h = all[:len(all)-1]
	return m
}
