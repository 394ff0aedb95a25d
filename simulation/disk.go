package simulation

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"

	"github.com/annalsdb/annals/internal/vfs"
)

// diskSize is how many bytes a disk holds. It takes the memory of what is used of it.
const diskSize = 1 << 30

// errEnded is what a process gets from its disk after its end.
var errEnded = errors.New("this process has ended")

// gate is the way of one process to its disk. It is shut when the process ends, so that nothing of
// it reaches the disk of the next one.
type gate struct {
	ended chan struct{} // closed by shut
	once  sync.Once

	broken func() bool // by chance

	mu     sync.Mutex
	frozen chan struct{} // closed when the disk works again; nil while it does
}

// files returns the disk as the process sees it.
func (g *gate) files(disk *vfs.Mem) vfs.FS {
	return vfs.NewFaulty(disk, func(op vfs.Op) error {
		select {
		case <-g.ended:
			return dead()
		default:
		}
		if op.Kind != vfs.OpClose && op.Kind != vfs.OpUnlock && g.broken() {
			return syscall.EIO
		}
		if !op.Kind.Mutates() {
			return nil
		}
		g.mu.Lock()
		frozen := g.frozen
		g.mu.Unlock()
		if frozen == nil {
			return nil
		}
		select {
		case <-frozen:
			return nil
		case <-g.ended:
			return dead()
		}
	})
}

// dead is where a goroutine gets that learns of the end of its process. Raft's main one is no more,
// because it panics when it cannot store a term; others get an error.
func dead() error {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function == "github.com/hashicorp/raft.(*Raft).run" {
			runtime.Goexit()
		}
	}
	return errEnded
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
