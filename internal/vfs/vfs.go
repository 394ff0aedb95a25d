// Package vfs is the file system as the database sees it: an interface, the
// real one, and in-memory ones for tests and for databases that live in memory.
package vfs

import (
	"errors"
	"io"
	"io/fs"
)

// ErrLocked says that another holder has the lock.
var ErrLocked = errors.New("locked by another process")

// ErrNotMappable says that a file system cannot map files into memory. Callers fall back to ReadAt.
var ErrNotMappable = errors.New("file cannot be mapped into memory")

// ErrShared says that a file does not belong to this process's user alone.
var ErrShared = errors.New("the file is not private to its user")

// DirectAlign is the alignment in bytes of writes after Direct.
const DirectAlign = 4096

// FS is a file system. Names are paths as package filepath understands them.
// Missing files are reported by errors for which errors.Is(err, fs.ErrNotExist) holds.
type FS interface {
	// Create makes an empty file for reading and writing, truncating one that exists.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenReadWrite opens an existing file for reading and writing.
	OpenReadWrite(name string) (File, error)
	// CreatePrivate makes a file that no other user may read or write, for reading and writing. It
	// fails with fs.ErrExist if there is anything of that name.
	CreatePrivate(name string) (File, error)
	// OpenPrivate opens an existing file for reading. It follows no link, and fails with ErrShared
	// if the file is another user's, or if another user may read or write it.
	OpenPrivate(name string) (File, error)
	Remove(name string) error
	// RemoveAll removes a file or folder with all it holds. It is not an error if there is none.
	RemoveAll(name string) error
	// Rename replaces newName if it exists. It is durable only after SyncDir.
	Rename(oldName, newName string) error
	MkdirAll(dir string) error
	// List returns the names (not paths) in a folder, sorted.
	List(dir string) ([]string, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes creations, removals and renames in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock, creating the file if need be, or fails with ErrLocked. Close
	// releases it.
	Lock(name string) (io.Closer, error)
	// Free returns the bytes that can still be written to the volume of dir.
	Free(dir string) (int64, error)
}

// File is an open file. Reads and writes at distinct ranges may run concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Name returns the name the file was opened with.
	Name() string
	Size() (int64, error)
	Truncate(size int64) error
	// Sync makes the file's data, and the metadata needed to read it back, durable.
	Sync() error
	// Uncache says that the durable part of the file is not expected to be read soon, so that it
	// need not take memory.
	Uncache()
	// Direct has what is written from now on go past the memory that the system keeps of files,
	// where it can do so. Each write, in memory and in the file, must begin and end at a multiple
	// of DirectAlign then, and the file must not be read through this handle.
	Direct()
	// Map maps the first size bytes for reading; size may lie beyond the end of the
	// file, then only bytes that the file has by then may be touched. The mapping
	// shows later writes. It fails with ErrNotMappable where that is not offered.
	Map(size int64) (Mapping, error)
}

// Mapping is a file mapped into memory. Its bytes must not be touched after Close.
type Mapping interface {
	Bytes() []byte
	Close() error
}

// ReadFile returns the content of a whole file.
func ReadFile(fsys FS, name string) (data []byte, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data = make([]byte, size)
	return data, ReadFull(f, data, 0)
}

// ReadFull fills b with the bytes of a file at an offset. It is an error if there are fewer.
func ReadFull(f io.ReaderAt, b []byte, at int64) error {
	n, err := f.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// IsOS reports whether the files of a file system are those of the operating system, under the same
// names, whatever is done to operations on their way there.
func IsOS(fsys FS) bool {
	for {
		h, ok := fsys.(interface{ within() FS })
		if !ok {
			return fsys == OS
		}
		fsys = h.within()
	}
}

// ErrNoLinks says that a file system gives files one name only.
var ErrNoLinks = errors.New("files cannot have a second name here")

// Link gives a file a second name, where the file system can. It is durable only
// after SyncDir. A caller copies the file when it cannot.
func Link(fsys FS, oldName, newName string) error {
	if l, ok := fsys.(interface {
		Link(oldName, newName string) error
	}); ok {
		return l.Link(oldName, newName)
	}
	return ErrNoLinks
}
