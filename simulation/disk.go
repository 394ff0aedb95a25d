package simulation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/annalsdb/annals/internal/vfs"
)

// diskSize is how many bytes a disk holds. It takes the memory of what is used of it.
const diskSize = 4 << 30

// gate is the way of one process to its disk, where faults of the disk strike. After the end of the
// process none does: it has a disk of its own then, so that all that it still does succeeds and
// changes nothing. That matters because raft panics when it cannot store a term.
type gate struct {
	ended chan struct{} // closed by shut
	once  sync.Once
	// failed is set by an error after which the process cannot continue, and lost closed when raft
	// would have panicked.
	failed atomic.Bool
	lost   chan struct{}
	losing sync.Once

	breaks *atomic.Int64 // of a million operations on the disk
	sync   time.Duration // how long one takes, on the average
	note   func(op vfs.Op, err error)
	fatal  func(error) // ends the process by an error; set before it begins
	// changes hears of each change just before it: nil, or the error of the change.
	changes func(op vfs.Op) error

	mu     sync.Mutex // guards what follows
	rng    *rand.Rand
	frozen chan struct{} // closed when the disk works again; nil while it does
}

// newGate makes the gate of the next process.
func (c *cluster) newGate(host string, breaks *atomic.Int64) *gate {
	g := &gate{ended: make(chan struct{}), lost: make(chan struct{}), breaks: breaks, sync: c.plan.sync}
	g.changes = func(vfs.Op) error { return nil }
	g.note = func(op vfs.Op, err error) { c.trace.operation(host, op, err) }
	g.rng = rand.New(rand.NewPCG(c.plan.seed, 11<<32+uint64(len(c.gates))))
	c.gates = append(c.gates, g)
	return g
}

// broken says whether an operation fails, and syncs how long a sync takes.
func (g *gate) broken() bool {
	breaks := g.breaks.Load()
	return breaks > 0 && g.chance(1e6) < breaks
}

func (g *gate) syncs() time.Duration { return g.sync/2 + time.Duration(g.chance(int64(g.sync))) }

func (g *gate) chance(n int64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rng.Int64N(n)
}

// files returns the disk as the process sees it.
func (g *gate) files(disk *vfs.Mem) vfs.FS {
	return vfs.NewFaulty(disk, func(op vfs.Op) error {
		err := g.operation(op)
		if err != nil && op.Kind == vfs.OpSync {
			err = errors.Join(err, disk.Forget(op.Name))
		}
		return err
	})
}

// operation lets an operation take its time, or fail.
func (g *gate) operation(op vfs.Op) error {
	select {
	case <-g.ended:
		return nil
	default:
	}
	if op.Kind != vfs.OpClose && op.Kind != vfs.OpUnmap && op.Kind != vfs.OpUnlock && g.broken() {
		g.note(op, syscall.EIO)
		return syscall.EIO
	}
	if !op.Kind.Mutates() {
		return nil
	}
	g.note(op, nil)
	if op.Kind == vfs.OpSync || op.Kind == vfs.OpSyncDir {
		done := time.NewTimer(g.syncs())
		defer done.Stop()
		select {
		case <-done.C:
		case <-g.ended:
		}
	}
	g.mu.Lock()
	frozen := g.frozen
	g.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-g.ended:
		}
	}
	select {
	case <-g.ended:
		return nil
	default:
		return g.changes(op)
	}
}

// lose ends raft's main goroutine, if this is the one: raft panics when it cannot store a term or
// read an entry. Others wait for it for ever, so the process ends with the simulation.
func (g *gate) lose(in ...string) {
	if within(in...) {
		g.losing.Do(func() { close(g.lost) })
		runtime.Goexit()
	}
}

// within reports whether one of some methods of raft runs in this goroutine.
func within(in ...string) bool {
	var callers [48]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); slices.Contains(in, strings.TrimPrefix(f.Function, "github.com/hashicorp/raft.(*Raft).")) {
			return true
		}
	}
	return false
}

func (g *gate) shut() { g.once.Do(func() { close(g.ended) }) }

// freeze makes all changes wait, or lets them continue.
func (g *gate) freeze(frozen bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case frozen && g.frozen == nil:
		g.frozen = make(chan struct{})
	case !frozen && g.frozen != nil:
		close(g.frozen)
		g.frozen = nil
	}
}

// leave limits a disk so that so many bytes are free.
func leave(disk *vfs.Mem, bytes int64) error {
	disk.SetCapacity(1 << 50)
	free, err := disk.Free("/")
	if err != nil {
		return fmt.Errorf("free space of a disk: %w", err)
	}
	disk.SetCapacity(max(1, 1<<50-free+bytes))
	return nil
}
