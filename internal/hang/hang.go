// Package hang finds operations on a disk that do not return. A disk that hangs gives
// no error: the goroutine that waits for it waits for ever, and cannot say so itself.
package hang

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Op is an operation on a file. One is made for all of a kind on the same file.
type Op struct {
	Doing string // "sync"
	File  string
	// Slow is how many times as long as usual the operation may take, because it writes much and
	// delays no client. 0: once.
	Slow int
}

// slots bounds how many operations are watched at once. Operations that find no place are not
// watched: when so many hang, one more says nothing new.
const slots = 128

// Watch knows which operations are running. The zero value works, and a nil one watches nothing.
type Watch struct {
	slots [slots]slot
}

type slot struct {
	begun atomic.Int64 // 0: free; else when it began, after epoch
	op    atomic.Pointer[Op]
}

// epoch makes times numbers that follow the monotonic clock.
var epoch = time.Now().Add(-time.Nanosecond)

// Begin notes that an operation begins. What it returns goes to End. It takes no lock:
// it stands before every write of the node.
func (w *Watch) Begin(op *Op) int {
	if w == nil {
		return -1
	}
	now := int64(time.Since(epoch))
	first := rand.IntN(slots)
	for i := range slots {
		at := (first + i) % slots
		if s := &w.slots[at]; s.begun.Load() == 0 && s.begun.CompareAndSwap(0, now) {
			s.op.Store(op)
			return at
		}
	}
	return -1
}

// End notes that the operation has returned.
func (w *Watch) End(at int) {
	if at >= 0 {
		w.slots[at].begun.Store(0)
	}
}

// Overdue returns the operation that has run for longer than it may, counted in times of patience,
// the worst of them; nil when there is none.
func (w *Watch) Overdue(patience time.Duration) (op *Op, since time.Duration) {
	now := int64(time.Since(epoch))
	worst := 1.0
	for i := range w.slots {
		s := &w.slots[i]
		begun := s.begun.Load()
		if begun == 0 || time.Duration(now-begun) < patience {
			continue
		}
		// Another operation may take the place at any moment: what was read belongs together if the
		// place has not changed in the meantime.
		one := s.op.Load()
		if one == nil || s.begun.Load() != begun {
			continue
		}
		took := time.Duration(now - begun)
		if times := float64(took) / float64(patience*time.Duration(max(one.Slow, 1))); times >= worst {
			op, since, worst = one, took, times
		}
	}
	return op, since
}
