package state

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/ncruces/go-sqlite3"
	sqlitevfs "github.com/ncruces/go-sqlite3/vfs"

	"github.com/annalsdb/annals/internal/vfs"
)

// sectorBytes is what SQLite may assume that a disk writes at once. It keeps
// transactions from sharing a sector of the write-ahead log, so that a write
// torn by a power cut never hits one committed before.
const sectorBytes = 4096

// registered numbers the file systems that SQLite knows, of all databases of the process.
var registered atomic.Int64

// bridge lets SQLite work on a folder of a vfs.FS. SQLite knows files by their
// names in the folder. There are no locks: the folder belongs to a data
// directory, and that is locked by the process.
//
// It is used by one connection, thus by one goroutine at a time.
type bridge struct {
	name string
	fs   vfs.FS
	dir  string

	last error // of the operation that failed last, since it was asked for
	// a sync failed; what is on the disk is not known any more, nothing is written after it
	broken error
	temps  int // names given to temporary files
}

func newBridge(fsys vfs.FS, dir string) *bridge {
	return &bridge{name: "annals-scavenging-" + strconv.FormatInt(registered.Add(1), 10), fs: fsys, dir: dir}
}

func (b *bridge) path(name string) string { return filepath.Join(b.dir, name) }

// fail remembers an error, because SQLite keeps only a number of it.
func (b *bridge) fail(err error) error {
	if err != nil && err != io.EOF {
		b.last = err
	}
	return err
}

// cause returns the error remembered last, and forgets it.
func (b *bridge) cause() error {
	err := b.last
	b.last = nil
	return err
}

// durable makes changes durable. After a failure it is not known what is on the disk, and a second
// sync may succeed without the data: it is never repeated.
func (b *bridge) durable(sync func() error) error {
	return b.write(func() error {
		err := sync()
		b.broken = err
		return err
	})
}

func (b *bridge) write(do func() error) error {
	if b.broken != nil {
		return b.fail(b.broken)
	}
	return b.fail(do())
}

func (b *bridge) syncDir() error { return b.durable(func() error { return b.fs.SyncDir(b.dir) }) }

// FullPathname implements sqlitevfs.VFS.
func (b *bridge) FullPathname(name string) (string, error) { return name, nil }

// Open implements sqlitevfs.VFS.
func (b *bridge) Open(name string, flags sqlitevfs.OpenFlag) (sqlitevfs.File, sqlitevfs.OpenFlag, error) {
	if name == "" {
		b.temps++
		name = "sqlite-" + strconv.Itoa(b.temps) + tempSuffix
	}
	f, err := b.open(b.path(name), flags)
	if err != nil {
		return nil, 0, b.fail(err)
	}
	return &bridgeFile{b: b, f: f, remove: flags&sqlitevfs.OPEN_DELETEONCLOSE != 0}, flags, nil
}

func (b *bridge) open(path string, flags sqlitevfs.OpenFlag) (vfs.File, error) {
	if flags&sqlitevfs.OPEN_READWRITE == 0 {
		return b.fs.Open(path)
	}
	f, err := b.fs.OpenReadWrite(path)
	if !errors.Is(err, fs.ErrNotExist) || flags&sqlitevfs.OPEN_CREATE == 0 {
		return f, err
	}
	err = b.write(func() (err error) {
		f, err = b.fs.Create(path)
		return err
	})
	if err != nil || flags&sqlitevfs.OPEN_DELETEONCLOSE != 0 {
		return f, err
	}
	// The name has to be durable before anything relies on what the file says.
	if err := b.syncDir(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Delete implements sqlitevfs.VFS. It makes the removal durable whether SQLite
// wants that or not: a journal that came back would be one file too many.
func (b *bridge) Delete(name string, _ bool) error {
	err := b.write(func() error { return b.fs.Remove(b.path(name)) })
	if errors.Is(err, fs.ErrNotExist) {
		b.last = nil
		return sqlite3.IOERR_DELETE_NOENT
	}
	if err != nil {
		return err
	}
	return b.syncDir()
}

// Access implements sqlitevfs.VFS. As on Unix an empty journal counts as none.
func (b *bridge) Access(name string, _ sqlitevfs.AccessFlag) (bool, error) {
	info, err := b.fs.Stat(b.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, b.fail(err)
	}
	return info.IsDir() || info.Size() > 0, nil
}

// bridgeFile is a file of SQLite.
type bridgeFile struct {
	b      *bridge
	f      vfs.File
	remove bool // when it is closed
}

func (f *bridgeFile) Close() error {
	err := f.f.Close()
	if f.remove {
		err = errors.Join(err, f.b.fs.Remove(f.f.Name()))
	}
	return f.b.fail(err)
}

func (f *bridgeFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.f.ReadAt(p, off)
	return n, f.b.fail(err)
}

func (f *bridgeFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.b.write(func() (err error) {
		n, err = f.f.WriteAt(p, off)
		return err
	})
	return n, err
}

func (f *bridgeFile) Truncate(size int64) error {
	return f.b.write(func() error { return f.f.Truncate(size) })
}

func (f *bridgeFile) Sync(sqlitevfs.SyncFlag) error { return f.b.durable(f.f.Sync) }

func (f *bridgeFile) Size() (int64, error) {
	size, err := f.f.Size()
	return size, f.b.fail(err)
}

func (f *bridgeFile) Lock(sqlitevfs.LockLevel) error   { return nil }
func (f *bridgeFile) Unlock(sqlitevfs.LockLevel) error { return nil }

func (f *bridgeFile) CheckReservedLock() (bool, error) { return false, nil }

func (f *bridgeFile) SectorSize() int { return sectorBytes }

func (f *bridgeFile) DeviceCharacteristics() sqlitevfs.DeviceCharacteristic { return 0 }
