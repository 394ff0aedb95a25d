package vfs

import (
	"strings"

	"github.com/annalsdb/annals/internal/hang"
)

// watched is a file system that notices changes which never return. It does not watch reads: most
// are of mapped memory, which cannot be watched.
type watched struct {
	FS
	watch *hang.Watch
}

// slow is how many times as long as a write a sync may take, and everything done to a temporary
// file. The files of the log and the index are synced and made in large parts, and clients do not
// wait for them: the kernel slows down a process that writes much.
const slow = 10

// patience is how many times as long as usual an operation on a file may take.
func patience(name string) int {
	if strings.HasSuffix(name, TempSuffix) {
		return slow
	}
	return 0
}

// NewWatched returns a file system that notes with watch which of its operations are running, if
// they change something or make a change durable.
func NewWatched(inner FS, watch *hang.Watch) FS { return watched{inner, watch} }

func (w watched) do(doing, name string, do func() error) error {
	defer w.watch.End(w.watch.Begin(&hang.Op{Doing: doing, File: name, Slow: patience(name)}))
	return do()
}

func (w watched) open(doing, name string, open func(string) (File, error)) (File, error) {
	defer w.watch.End(w.watch.Begin(&hang.Op{Doing: doing, File: name, Slow: patience(name)}))
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &watchedFile{
		File: f, watch: w.watch,
		write: hang.Op{Doing: "write", File: name, Slow: patience(name)}, sync: hang.Op{Doing: "sync", File: name, Slow: slow},
	}, nil
}

func (w watched) Create(name string) (File, error) { return w.open("create", name, w.FS.Create) }

func (w watched) OpenReadWrite(name string) (File, error) {
	return w.open("open", name, w.FS.OpenReadWrite)
}

func (w watched) Remove(name string) error {
	return w.do("remove", name, func() error { return w.FS.Remove(name) })
}

func (w watched) Rename(oldName, newName string) error {
	return w.do("rename", oldName, func() error { return w.FS.Rename(oldName, newName) })
}

func (w watched) SyncDir(dir string) error {
	defer w.watch.End(w.watch.Begin(&hang.Op{Doing: "sync", File: dir, Slow: slow}))
	return w.FS.SyncDir(dir)
}

type watchedFile struct {
	File
	watch       *hang.Watch
	write, sync hang.Op
}

func (f *watchedFile) WriteAt(p []byte, off int64) (int, error) {
	defer f.watch.End(f.watch.Begin(&f.write))
	return f.File.WriteAt(p, off)
}

func (f *watchedFile) Truncate(size int64) error {
	defer f.watch.End(f.watch.Begin(&f.write))
	return f.File.Truncate(size)
}

func (f *watchedFile) Sync() error {
	defer f.watch.End(f.watch.Begin(&f.sync))
	return f.File.Sync()
}
