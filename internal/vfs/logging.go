package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Logging is a file system that reports what changes it.
type Logging struct {
	hooked
	root string
}

// NewLogging returns a file system that calls log with one line for each
// operation that changes something or makes a change durable, after it was done:
//
//	create a
//	write a 4096+512
//	truncate a 8192
//	sync a
//	rename a b
//	sync a: input/output error
//
// The numbers of a write are its offset and length. log is called from
// whichever goroutine does the operation.
func NewLogging(inner FS, log func(line string)) *Logging {
	l := &Logging{hooked: hooked{inner: inner}}
	l.hook = func(c *call, do func() error) error {
		err := do()
		if c.Kind.Mutates() {
			log(l.line(c.Op, err))
		}
		return err
	}
	return l
}

// RelativeTo shortens names at or below root to what follows it; root itself is
// shown as ".". It must be called before the file system is used, and returns
// its receiver.
func (l *Logging) RelativeTo(root string) *Logging {
	l.root = filepath.Clean(root)
	return l
}

func (l *Logging) name(name string) string {
	clean := filepath.Clean(name)
	if l.root != "" {
		if rel, err := filepath.Rel(l.root, clean); err == nil && filepath.IsLocal(rel) {
			clean = rel
		}
	}
	return filepath.ToSlash(clean)
}

func (l *Logging) line(op Op, err error) string {
	line := string(op.Kind) + " " + l.name(op.Name)
	switch op.Kind {
	case OpRename:
		line += " " + l.name(op.NewName)
	case OpWrite:
		line += fmt.Sprintf(" %d+%d", op.Offset, op.Len)
	case OpTruncate:
		line += fmt.Sprint(" ", op.Len)
	}
	if err != nil {
		line += ": " + cause(err).Error()
	}
	return line
}

// cause strips the names that differ from run to run.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
