package api

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/annalsdb/annals/event"
)

// Bounds of a Memory, in bytes unless they say something else.
const (
	// SmallRequest is how much of a request counts in a room of its own, so that large
	// requests never keep small ones from being served.
	SmallRequest = 16 << 10
	smallShare   = 8 // the room is this part of the whole

	maxWaiting = 256             // requests that wait for their turn
	patience   = 3 * time.Second // how long one waits
)

// Memory bounds the bytes of all requests together: bodies that are being received, messages that
// are unpacked, pages that are rendered and not taken by their client. A request that wants more
// than is left waits for its turn, and is event.ErrNoRoom if that does not come soon. Turns come in
// the order in which requests asked. The nil Memory has no bound.
//
// A request need not ask for exactly what it needs: what matters is that no client makes the node
// hold much that is not counted.
type Memory struct {
	most, mostSmall int64
	used, small     atomic.Int64

	waiters atomic.Int32 // those in line, and those about to be
	mu      sync.Mutex   // guards line
	line    []*turn
}

// turn is a request in line.
type turn struct {
	bytes int64
	come  chan struct{} // closed when the bytes are its own
}

// NewMemory returns a memory of so many bytes.
func NewMemory(bytes int64) *Memory {
	small := bytes / smallShare
	return &Memory{most: bytes - small, mostSmall: small}
}

// Most is how much a single request can claim at a time.
func (m *Memory) Most() int64 {
	if m == nil {
		return math.MaxInt64
	}
	return m.most
}

// Used is how many bytes are claimed.
func (m *Memory) Used() int64 { return m.used.Load() + m.small.Load() }

// take takes bytes, or waits for them.
func (m *Memory) take(ctx context.Context, n int64) error {
	if n > m.most {
		return event.ErrNoRoom
	}
	if m.waiters.Load() == 0 && m.try(n) {
		return nil
	}
	// Counted before it looks again: a request that gives memory back after that look sees it.
	if m.waiters.Add(1) > maxWaiting {
		m.waiters.Add(-1)
		return event.ErrNoRoom
	}
	t := &turn{n, make(chan struct{})}
	m.mu.Lock()
	m.line = append(m.line, t)
	m.callLocked()
	m.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-t.come:
		return nil
	case <-ctx.Done():
	case <-timer.C:
	}
	if !m.leave(t) {
		m.give(n)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return event.ErrNoRoom
}

// leave takes a request out of the line. It returns false when its turn has come.
func (m *Memory) leave(t *turn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, other := range m.line {
		if other == t {
			m.line = append(m.line[:i], m.line[i+1:]...)
			m.waiters.Add(-1)
			m.callLocked() // The next may want less.
			return true
		}
	}
	return false
}

// callLocked gives those in line their turn, as far as there is room.
func (m *Memory) callLocked() {
	for len(m.line) > 0 && m.try(m.line[0].bytes) {
		close(m.line[0].come)
		m.line[0] = nil
		m.line = m.line[1:]
		m.waiters.Add(-1)
	}
}

func (m *Memory) try(n int64) bool {
	if m.used.Add(n) <= m.most {
		return true
	}
	m.used.Add(-n)
	return false
}

func (m *Memory) give(n int64) {
	m.used.Add(-n)
	if m.waiters.Load() > 0 {
		m.mu.Lock()
		m.callLocked()
		m.mu.Unlock()
	}
}

func (m *Memory) trySmall(n int64) bool {
	if m.small.Add(n) <= m.mostSmall {
		return true
	}
	m.small.Add(-n)
	return false
}

// Claim is the part of a Memory that one request has. Its methods may be called from any goroutine,
// but only one at a time may let it grow. It must be released.
type Claim struct {
	memory      *Memory
	held, small atomic.Int64
}

// Use makes the claim, which is empty, one of a memory.
func (c *Claim) Use(m *Memory) { c.memory = m }

// Held is how much it is.
func (c *Claim) Held() int64 { return c.held.Load() + c.small.Load() }

// Grow claims more. It waits for its turn: event.ErrNoRoom when that does not come, and the
// context's error.
func (c *Claim) Grow(ctx context.Context, bytes int64) error {
	m := c.memory
	if m == nil || bytes <= 0 || c.growSmall(bytes) {
		return nil
	}
	if err := m.take(ctx, bytes); err != nil {
		return err
	}
	c.held.Add(bytes)
	return nil
}

// Try claims more if it is there at once.
func (c *Claim) Try(bytes int64) bool {
	m := c.memory
	if m == nil || bytes <= 0 || c.growSmall(bytes) {
		return true
	}
	if m.waiters.Load() > 0 || !m.try(bytes) {
		return false
	}
	c.held.Add(bytes)
	return true
}

// growSmall claims the memory of a small request.
func (c *Claim) growSmall(bytes int64) bool {
	if c.small.Load()+bytes > SmallRequest || !c.memory.trySmall(bytes) {
		return false
	}
	c.small.Add(bytes)
	return true
}

// Add claims what is held already, be there room or not: a few bytes at a time, after which
// Settle is called, or what another claim has given back.
func (c *Claim) Add(bytes int64) {
	if m := c.memory; m != nil && bytes > 0 && !c.growSmall(bytes) {
		m.used.Add(bytes)
		c.held.Add(bytes)
	}
}

// IsSettled reports whether Settle would not wait, whatever others hold.
func (c *Claim) IsSettled() bool { return c.memory == nil || c.held.Load() == 0 }

// Settle waits until there is room for the added bytes, with the errors of Grow.
func (c *Claim) Settle(ctx context.Context) error {
	if c.IsSettled() {
		return nil
	}
	return c.memory.take(ctx, 0)
}

// Shrink gives back bytes of the last claim.
func (c *Claim) Shrink(bytes int64) {
	if c.memory == nil || bytes <= 0 {
		return
	}
	if held := min(bytes, c.held.Load()); held > 0 {
		c.held.Add(-held)
		c.memory.give(held)
		bytes -= held
	}
	if small := min(bytes, c.small.Load()); small > 0 {
		c.small.Add(-small)
		c.memory.small.Add(-small)
	}
}

// Release gives all of it back.
func (c *Claim) Release() {
	if m := c.memory; m != nil {
		if held := c.held.Swap(0); held != 0 {
			m.give(held)
		}
		if small := c.small.Swap(0); small != 0 {
			m.small.Add(-small)
		}
	}
}

// RoomBytes is how many bytes the memory of a page takes.
func RoomBytes(r *event.Room) int64 {
	return int64(cap(r.Block)) + int64(cap(r.Events))*int64(unsafe.Sizeof(event.Resolved{}))
}

// queryMemory is how many bytes a query takes for one of its text: it is kept, parsed and compiled.
const queryMemory = 4

// KeepQuery claims the memory of a transient query, until the function that it returns is called,
// which calls gone as well. When there is no room gone has been called.
func (m *Memory) KeepQuery(ctx context.Context, text string, gone func()) (func(), error) {
	c := new(Claim)
	c.Use(m)
	if err := c.Grow(ctx, queryMemory*int64(len(text))); err != nil {
		gone()
		return nil, err
	}
	return func() {
		c.Release()
		gone()
	}, nil
}
