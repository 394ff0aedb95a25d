package vfs

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/annalsdb/annals/internal/clock"
)

// TooManyOpen reports whether an operation could not open anything because the process, or the
// whole system, has too many files open. That passes, and nothing was done.
func TooManyOpen(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Patience says how a file system waits while too many files are open.
type Patience struct {
	Context context.Context // no operation waits after its end
	// Waiting gets the error of each failed try, before the pause. It may close something. May be
	// nil.
	Waiting func(err error)
}

// do does what opens something, again and again while too many files are open.
func (p *Patience) do(open func() error) error {
	pauses := clock.Pauses{Least: time.Millisecond, Most: 500 * time.Millisecond}
	for {
		err := open()
		if !TooManyOpen(err) {
			return err
		}
		if p.Waiting != nil {
			p.Waiting(err)
		}
		if !pauses.Wait(p.Context) {
			return err
		}
	}
}

// patient is a file system that waits while too many files are open. Only opening is repeated: what
// it opens for itself, as SyncDir does, fails before anything else was done. Writes and syncs
// of files need no descriptor, so none of them is ever repeated.
type patient struct {
	hooked
	patience Patience
}

// NewPatient returns a file system on which what opens something waits while too many files are
// open. Without it a process that ran out of descriptors for a moment would take that for
// a broken disk, and end.
func NewPatient(inner FS, p Patience) FS {
	return &patient{patience: p, hooked: hooked{inner: inner, filesPass: true, hook: func(c *call, do func() error) error {
		switch c.Kind {
		// Secrets are also read for those who connect, and they do not wait.
		case OpCreate, OpOpen, OpOpenReadWrite, OpList, OpLock, OpRemoveAll, OpSyncDir:
			return p.do(do)
		default:
			return do()
		}
	}}}
}

// Patiently does what opens files past the file system, as patiently as that is.
func Patiently(fsys FS, open func() error) error {
	if p, ok := fsys.(*patient); ok {
		return p.patience.do(open)
	}
	return open()
}

// Link gives a file a second name, where the file system within can.
func (p *patient) Link(oldName, newName string) error { return Link(p.inner, oldName, newName) }
