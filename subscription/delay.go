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

// delays are the messages of a group that wait before they are tried again. held has those of due
// that were added with a bucket, and no others; of one bucket they come out by number, whenever
// they are due.
type delays struct {
	due  dueHeap
	held map[int16][]*message // by bucket and number: they hold back what comes after them
}

// add delays a message of a bucket; below 0: it keeps no order.
func (d *delays) add(m *message, bucket int16) {
	heap.Push(&d.due, m)
	if bucket < 0 {
		return
	}
	if d.held == nil {
		d.held = map[int16][]*message{}
	}
	all := d.held[bucket]
	at, _ := slices.BinarySearchFunc(all, m, inOrderOfNumbers)
	d.held[bucket] = slices.Insert(all, at, m)
}

func inOrderOfNumbers(a, b *message) int { return cmp.Compare(a.number, b.number) }

// before returns the delayed message of a bucket that must go out before one with a number; nil:
// there is none.
func (d *delays) before(bucket int16, number int64) *message {
	if all := d.held[bucket]; len(all) > 0 && all[0].number < number {
		return all[0]
	}
	return nil
}

// pop takes out a message whose delay is over; nil: there is none.
func (d *delays) pop(now time.Time) *message {
	for len(d.due) > 0 && !d.due[0].due.After(now) {
		m := d.due[0]
		if !m.replayed {
			if first := d.before(m.bucket, m.number); first != nil { // That one is due later.
				m.due = first.due
				heap.Fix(&d.due, 0)
				continue
			}
		}
		heap.Pop(&d.due)
		if all := d.held[m.bucket]; len(all) > 0 && all[0] == m {
			if d.held[m.bucket] = slices.Delete(all, 0, 1); len(all) == 1 {
				delete(d.held, m.bucket)
			}
		}
		return m
	}
	return nil
}

// letGo forgets the messages that a reset let go.
func (d *delays) letGo() {
	d.due = slices.DeleteFunc(d.due, func(m *message) bool { return m.state == done })
	heap.Init(&d.due)
	d.held = nil
}

// delay has a message that is in no list by its place handed out at a time or later.
func (c *core) delay(m *message, due time.Time) {
	m.state, m.due = delayed, due
	bucket := int16(-1)
	if !m.replayed { // It lost its place in the order when it was parked.
		bucket = c.strategy.bucket(m)
	}
	c.delays.add(m, bucket)
}

// isHeld reports whether a message that waits to be handed out must not be, because an earlier one
// is delayed. If it is to be handed out again, it is delayed as well.
func (c *core) isHeld(m *message) bool {
	if len(c.held) == 0 || m.replayed {
		return false
	}
	first := c.delays.before(c.strategy.bucket(m), m.number)
	if first != nil && m.state == waiting {
		c.retry.remove(m)
		c.delay(m, first.due)
	}
	return first != nil
}

// release puts the messages back whose delay is over.
func (c *core) release(now time.Time) {
	for m := c.delays.pop(now); m != nil; m = c.delays.pop(now) {
		c.wait(m)
	}
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
