// Package powercut keeps what a disk holds before each operation that changes it, so that a test
// can start from each of these states as after a power cut at that moment.
package powercut

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/annalsdb/annals/internal/vfs"
)

// Options say which cuts a disk keeps. The zero value keeps one before each operation.
type Options[N any] struct {
	Mem   *vfs.Mem     // what the disk holds at first; nil for an empty disk
	Off   bool         // it keeps none until On
	Every int          // it keeps each of so many operations,
	First int          // from this one on, as testkit.Sample has them
	See   func(vfs.Op) // it sees each operation before its cut
	Note  func() N     // what is promised by now; it comes before the copy

	// Each cut has a copy of what was synced, and every so many of them have More copies in which
	// some of the rest survives too.
	More, MoreEvery int
	Seed            uint64
}

// A Cut is what the disk holds after one power cut.
type Cut[N any] struct {
	FS   *vfs.Mem
	What string
	Note N
}

// A Disk is a file system in memory that keeps cuts.
type Disk[N any] struct {
	vfs.FS
	Mem *vfs.Mem
	o   Options[N]

	mu         sync.Mutex
	off        bool
	operations int
	places     int
	cuts       []Cut[N]
}

// New returns a disk.
func New[N any](o Options[N]) *Disk[N] {
	if o.Mem == nil {
		o.Mem = vfs.NewCrashMem()
	}
	d := &Disk[N]{Mem: o.Mem, o: o, off: o.Off, operations: o.First}
	d.FS = vfs.NewFaulty(d.Mem, func(op vfs.Op) error {
		if op.Kind.Mutates() {
			d.before(op)
		}
		return nil
	})
	return d
}

// On begins to keep cuts.
func (d *Disk[N]) On() { d.turn(false) }

// Off ends it.
func (d *Disk[N]) Off() { d.turn(true) }

func (d *Disk[N]) turn(off bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = off
}

func (d *Disk[N]) before(op vfs.Op) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return
	}
	if d.o.See != nil {
		d.o.See(op)
	}
	if d.operations++; d.operations%max(1, d.o.Every) == 0 {
		d.keep(fmt.Sprintf("before %s %s", op.Kind, op.Name))
	}
}

// Cut keeps one cut now, on or off.
func (d *Disk[N]) Cut(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keep(what)
}

func (d *Disk[N]) keep(what string) {
	var note N
	if d.o.Note != nil {
		note = d.o.Note()
	}
	what = fmt.Sprintf("cut %d, %s", d.places, what)
	d.cuts = append(d.cuts, Cut[N]{d.Mem.CrashClone(vfs.CrashOptions{}), what, note})
	if d.places++; (d.places-1)%max(1, d.o.MoreEvery) != 0 {
		return
	}
	for range d.o.More {
		seed := d.o.Seed + uint64(len(d.cuts))
		left := d.Mem.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, 1))})
		d.cuts = append(d.cuts, Cut[N]{left, fmt.Sprintf("%s, with more, seed %d", what, seed), note})
	}
}

// Cuts returns the cuts since the last call, in their order.
func (d *Disk[N]) Cuts() []Cut[N] {
	d.mu.Lock()
	defer d.mu.Unlock()
	cuts := d.cuts
	d.cuts = nil
	return cuts
}
