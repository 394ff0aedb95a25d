package vfs

import (
	"errors"
	"fmt"
	"io/fs"
)

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
	asks := func(op Op) error {
		if err := inject(op); err != nil {
			return injected(op, err)
		}
		return nil
	}
	return &hooked{inner: inner, asks: asks, hook: func(c *call, do func() error) error {
		err := inject(c.Op)
		if err == nil {
			return do()
		}
		short, isShort := errors.AsType[*ShortWrite](err)
		switch {
		case isShort:
			c.Len = max(0, min(int64(short.N), c.Len))
			if innerErr := do(); innerErr != nil {
				return innerErr
			}
		case c.Kind == OpClose || c.Kind == OpUnlock || c.Kind == OpUnmap:
			_ = do() // An injected error leaks no descriptor and no lock.
		}
		return injected(c.Op, err)
	}}
}

// injected is the error of an operation that fails by an injected one.
func injected(op Op, err error) error {
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	return &fs.PathError{Op: string(op.Kind), Path: op.Name, Err: err}
}
