package vfs

import (
	"maps"
	"slices"
	"sync"
)

// Counting is a file system that knows what is open.
type Counting struct {
	hooked

	mu     sync.Mutex        // guards the fields below; nothing is called with it held
	open   map[uint64]string // by handle
	misuse []string
}

// NewCounting returns a file system that knows which files, locks and mappings
// were not given back.
func NewCounting(inner FS) *Counting {
	c := &Counting{hooked: hooked{inner: inner}, open: make(map[uint64]string)}
	c.hook = func(op *call, do func() error) error {
		err := do()
		c.note(op, err)
		return err
	}
	return c
}

func (c *Counting) note(op *call, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch op.Kind {
	case OpCreate, OpOpen, OpOpenReadWrite, OpCreatePrivate, OpOpenPrivate:
		if err == nil {
			c.open[op.handle] = op.Name
		}
		return
	case OpLock:
		if err == nil {
			c.open[op.handle] = "lock of " + op.Name
		}
		return
	case OpClose, OpUnlock, OpUnmap:
		delete(c.open, op.handle)
		return
	case OpMap:
		if err == nil {
			c.open[op.handle] = "mapping of " + op.Name
		}
	}
	if op.closed {
		c.misuse = append(c.misuse, string(op.Kind)+" "+op.Name)
	}
}

// OpenFiles names what was opened and not closed, sorted: a file by its name,
// a mapping as "mapping of name" and a lock as "lock of name".
func (c *Counting) OpenFiles() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Values(c.open))
}

// UsedAfterClose names the operations on files and mappings that were already
// closed, in their order, as "read name". Closing twice is not among them.
func (c *Counting) UsedAfterClose() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.misuse)
}
