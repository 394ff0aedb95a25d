//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the file system of the operating system.
var OS FS = osFS{}

// What new files and folders allow, before the umask takes its part. The group
// may read, so that backups can run as another user; others may not, because
// the log holds password hashes.
const (
	filePerm = 0o640
	dirPerm  = 0o750
	// of what is for this process's user alone
	privatePerm = 0o600
)

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func (osFS) OpenReadWrite(name string) (File, error) { return openOS(name, os.O_RDWR) }

func openOS(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, flags, filePerm)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

func (osFS) CreatePrivate(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, privatePerm)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

// OpenPrivate looks at what there is before it opens it: opening something that is not a file may
// have effects. It does not wait where the name means a pipe by then, and judges what it has open.
func (osFS) OpenPrivate(name string) (_ File, err error) {
	info, err := os.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer Undo(&err, f.Close)
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := private(info); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", name, ErrShared, err)
	}
	return &osFile{f: f}, nil
}

// private says why a file that is open is not this process's user's alone.
func private(info fs.FileInfo) error {
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok || !info.Mode().IsRegular():
		return errors.New("is not a file")
	case owner.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("belongs to user %d, and this process to user %d", owner.Uid, os.Geteuid())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("can be read by others: its permissions are %v", info.Mode().Perm())
	}
	return nil
}

func (osFS) Remove(name string) error             { return os.Remove(name) }
func (osFS) RemoveAll(name string) error          { return os.RemoveAll(name) }
func (osFS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }
func (osFS) MkdirAll(dir string) error            { return os.MkdirAll(dir, dirPerm) }
func (osFS) Stat(name string) (fs.FileInfo, error) {
	return os.Stat(name)
}

func (osFS) List(dir string) (names []string, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	names, err = d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) SyncDir(dir string) (err error) {
	d, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}

// Lock leaves the file in place when it is released: removing it would let two
// processes hold locks on two files of the same name.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, filePerm)
	if err != nil {
		return nil, err
	}
	err = withDescriptor(f, func(fd int) error {
		return retryEINTR(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	})
	if err == nil {
		return f, nil
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	return nil, errors.Join(&fs.PathError{Op: "lock", Path: name, Err: err}, f.Close())
}

func (osFS) Free(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	blocks, size := uint64(st.Bavail), uint64(st.Bsize)
	if size != 0 && blocks > math.MaxInt64/size {
		return math.MaxInt64, nil
	}
	return int64(blocks * size), nil
}

type osFile struct {
	f      *os.File
	direct atomic.Bool
}

func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }
func (f *osFile) Close() error                            { return f.f.Close() }
func (f *osFile) Name() string                            { return f.f.Name() }
func (f *osFile) Truncate(size int64) error               { return f.f.Truncate(size) }

// WriteAt leaves direct writing if the file system takes no such write: some want a larger
// alignment, or say so only here.
func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	if errors.Is(err, unix.EINVAL) && f.direct.Swap(false) {
		if err := withDescriptor(f.f, func(fd int) error { return direct(fd, false) }); err != nil {
			return n, &fs.PathError{Op: "write", Path: f.f.Name(), Err: err}
		}
		return f.f.WriteAt(p, off)
	}
	return n, err
}

func (f *osFile) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Sync is never repeated after an error: the kernel may have dropped the pages
// it could not write, and a second call would then succeed without them.
func (f *osFile) Sync() error {
	if err := withDescriptor(f.f, datasync); err != nil {
		return &fs.PathError{Op: "sync", Path: f.f.Name(), Err: err}
	}
	return nil
}

// Uncache is a hint: an error means no more than that the memory stays in use.
func (f *osFile) Uncache() { _ = withDescriptor(f.f, uncache) }

// Direct is a hint as well.
func (f *osFile) Direct() {
	f.direct.Store(withDescriptor(f.f, func(fd int) error { return direct(fd, true) }) == nil)
}

func (f *osFile) Map(size int64) (Mapping, error) {
	if size < 0 || size > math.MaxInt {
		return nil, &fs.PathError{Op: "map", Path: f.f.Name(), Err: fmt.Errorf("size %d: %w", size, fs.ErrInvalid)}
	}
	m := new(osMapping)
	if size == 0 {
		return m, nil
	}
	err := withDescriptor(f.f, func(fd int) (err error) {
		m.data, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "map", Path: f.f.Name(), Err: err}
	}
	m.name = f.f.Name()
	return m, nil
}

type osMapping struct {
	data   []byte
	name   string
	closed atomic.Bool
}

func (m *osMapping) Bytes() []byte { return m.data }

func (m *osMapping) Close() error {
	if m.closed.Swap(true) {
		return &fs.PathError{Op: "unmap", Path: m.name, Err: fs.ErrClosed}
	}
	data := m.data
	m.data = nil
	if data == nil {
		return nil
	}
	if err := unix.Munmap(data); err != nil {
		return &fs.PathError{Op: "unmap", Path: m.name, Err: err}
	}
	return nil
}

// withDescriptor calls do with the file's descriptor, which a concurrent Close
// does not give back to the system before do has returned.
func withDescriptor(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var doErr error
	if conn.Control(func(fd uintptr) { doErr = do(int(fd)) }) != nil {
		return fs.ErrClosed // the one reason there is, given as an error that only package os knows
	}
	return doErr
}

func retryEINTR(do func() error) error {
	for {
		if err := do(); err != unix.EINTR {
			return err
		}
	}
}

// Link gives a file a second name.
func (osFS) Link(oldName, newName string) error { return os.Link(oldName, newName) }
