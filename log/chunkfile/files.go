package chunkfile

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// Whole returns the first size bytes of a file, mapped if that can be.
func Whole(f vfs.File, size int64) (data []byte, release func() error, err error) {
	m, err := f.Map(size)
	if err == nil {
		return m.Bytes(), m.Close, nil
	}
	if !errors.Is(err, vfs.ErrNotMappable) {
		return nil, nil, err
	}
	data = make([]byte, size)
	if err := vfs.ReadFull(f, data, 0); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return data, func() error { return nil }, nil
}

// Hash hashes the first size bytes of a file that is read in pieces.
func Hash(sum *xxh3.Hasher, size int64, read func(b []byte, at int64) error) error {
	return Pieces(0, size, func(b []byte, at int64) error {
		err := read(b, at)
		if err == nil {
			_, err = sum.Write(b)
		}
		return err
	})
}

// Pieces calls f with room for each piece of the bytes from one offset up to another.
func Pieces(from, to int64, f func(b []byte, at int64) error) error {
	buf := make([]byte, max(0, min(1<<20, to-from)))
	for ; from < to; from += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), to-from)]
		if err := f(buf, from); err != nil {
			return err
		}
	}
	return nil
}

func Sync(fsys vfs.FS, path string) (err error) {
	file, err := fsys.OpenReadWrite(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return file.Sync()
}

// GuardFaults turns a fault while reading mapped memory (the disk did not
// deliver, or the file was cut from outside) into a corruption error instead of
// the end of the process. Use: defer guardFaults(&err)().
func GuardFaults(err *error) func() {
	old := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		if fault, ok := r.(interface {
			error
			Addr() uintptr
		}); ok {
			*err = &Fault{&event.Corruption{File: "a mapped chunk or index file", Offset: -1, Detail: "reading it faulted: " + fault.Error()}, fault.Addr()}
			return
		}
		panic(r)
	}
}

// Fault is a corruption met where the system could not deliver mapped memory.
type Fault struct {
	*event.Corruption
	Addr uintptr
}

func (e *Fault) Unwrap() error { return e.Corruption }
