package vfs

import "fmt"

// ShortWrite, returned by an injector for an OpWrite, lets the first N bytes be
// written before the write fails with Err.
type ShortWrite struct {
	N   int
	Err error
}

func (e *ShortWrite) Error() string { return fmt.Sprintf("short write of %d bytes: %v", e.N, e.Err) }

func (e *ShortWrite) Unwrap() error { return e.Err }

// NewFaulty returns a file system that asks inject before each operation, and
// returns its error, if any, in place of doing the operation. Close, and the
// release of mappings and locks, are done even then. An error that is not an
// *fs.PathError is wrapped in one with the operation and the name.
//
// inject is called from whichever goroutine does the operation, with no lock
// held. It sees the inner file system as the operations before left it, which is
// where a test clones a Mem as after a power cut.
func NewFaulty(inner FS, inject func(op Op) error) FS {
	return &hooked{inner: inner, before: func(c call) error { return inject(c.Op) }}
}
