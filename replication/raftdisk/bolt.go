package raftdisk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/annalsdb/annals/internal/vfs"
)

// A second process on the same directory is kept out by the data directory's
// own lock; the timeout only keeps a mistake from hanging for ever.
const boltLockTimeout = 5 * time.Second

// logMmap is mapped at once; otherwise bbolt would stop all readers to map the file again as it
// grows.
const logMmap = 1 << 30

// boltStore is a bbolt file, which holds votes or a Raft log.
type boltStore interface {
	Backing
	raft.StableStore
}

// bbolt opens its files itself and maps them, by the operating system: what is asked of a bbolt
// file by name goes past the file system that the rest of raft/ is given. Only the patience is that
// of files. On a file system that is not the operating system's bbolt works on a boltCopy.
//
// openBolt opens or makes a bbolt file. A file is made only within a folder or
// under a name that a crash leaves unfinished as a whole: bbolt cannot tell a
// half-made file from a damaged one.
func openBolt(files vfs.FS, path string, mmap int) (boltStore, error) {
	if !vfs.IsOS(files) {
		file, err := files.Create(path)
		if err != nil {
			return nil, err
		}
		return openCopy(file)
	}
	store, err := newBolt(path, mmap, false, func(name string, flag int, mode os.FileMode) (f *os.File, err error) {
		err = vfs.Patiently(files, func() (err error) {
			f, err = os.OpenFile(name, flag, mode)
			return err
		})
		return f, err
	})
	if err != nil {
		return nil, err
	}
	return store, nil
}

func newBolt(path string, mmap int, noSync bool, open func(string, int, os.FileMode) (*os.File, error)) (*raftboltdb.BoltStore, error) {
	store, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout: boltLockTimeout,
			// With the defaults a file that once grew stays slow for ever: each
			// commit would write the list of free pages, and search it linearly.
			NoFreelistSync:  true,
			FreelistType:    bbolt.FreelistMapType,
			InitialMmapSize: mmap,
			NoStatistics:    true,
			NoSync:          noSync,
			OpenFile:        open,
		},
		NoSync:                  noSync,
		MsgpackUseNewTimeFormat: true,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return store, nil
}

func openExistingBolt(files vfs.FS, path string, mmap int) (boltStore, error) {
	if _, err := files.Stat(path); err != nil {
		return nil, err // bbolt would make an empty one
	}
	if vfs.IsOS(files) {
		return openBolt(files, path, mmap)
	}
	file, err := files.OpenReadWrite(path)
	if err != nil {
		return nil, err
	}
	return openCopy(file)
}

func openBoltLog(files vfs.FS, path string, _ hclog.Logger) (Backing, error) {
	store, err := openExistingBolt(files, path, logMmap)
	if err != nil {
		return nil, err
	}
	return store, nil
}

func createBoltLog(files vfs.FS, path string) error {
	store, err := openBolt(files, path, logMmap)
	if err != nil {
		return err
	}
	return store.Close()
}

// boltCopy is a bbolt file on a file system that bbolt cannot use. bbolt has a copy without a name.
// What a transaction changed is written to the file after it, as bbolt itself writes: the
// pages, a sync, the page that makes them valid, a sync. So a power cut leaves of the file what it
// would leave of one that bbolt writes.
type boltCopy struct {
	*raftboltdb.BoltStore
	copied *os.File // closed by bbolt

	mu    sync.Mutex // guards what follows: one transaction at a time
	file  vfs.File
	known []byte // what the file holds
}

// openCopy opens what is in the file, or makes an empty database in a file that is empty. It closes
// the file if it fails.
func openCopy(file vfs.File) (_ boltStore, err error) {
	b := &boltCopy{file: file}
	defer vfs.Undo(&err, file.Close)
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	b.known = make([]byte, size)
	if err := vfs.ReadFull(file, b.known, 0); err != nil {
		return nil, err
	}
	// bbolt writes each page of a transaction, and carry those that differ from what is known: so
	// that must be durable, also where a sync failed.
	if _, err := file.WriteAt(b.known, 0); err != nil {
		return nil, err
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	b.BoltStore, err = newBolt(file.Name(), 0, true, func(string, int, os.FileMode) (*os.File, error) {
		f, err := os.CreateTemp("", "annals-bolt-")
		if err != nil {
			return nil, err
		}
		_, err = f.Write(b.known)
		if err = errors.Join(err, os.Remove(f.Name())); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		b.copied = f
		return f, nil
	})
	if err != nil {
		return nil, err
	}
	if err := b.carry(); err != nil {
		return nil, errors.Join(err, b.BoltStore.Close())
	}
	return b, nil
}

// metaPages are the first of the file, of which each transaction writes one, last.
const metaPages = 2

// carry writes what is new in the copy to the file. mu must be held.
func (b *boltCopy) carry() error {
	info, err := b.copied.Stat()
	if err != nil {
		return err
	}
	if grown := info.Size() - int64(len(b.known)); grown > 0 {
		b.known = append(b.known, make([]byte, grown)...)
		if err := b.file.Truncate(info.Size()); err != nil {
			return err
		}
	}
	meta := int64(metaPages * os.Getpagesize())
	if err := b.write(meta, int64(len(b.known))); err != nil {
		return err
	}
	return b.write(0, meta)
}

// write writes the pages of a range that have changed, and makes them durable.
func (b *boltCopy) write(from, to int64) error {
	changed, now := false, make([]byte, os.Getpagesize())
	for ; from < to; from += int64(len(now)) {
		if err := vfs.ReadFull(b.copied, now, from); err != nil {
			return err
		}
		known := b.known[from:][:len(now)]
		if bytes.Equal(now, known) {
			continue
		}
		if _, err := b.file.WriteAt(now, from); err != nil {
			return err
		}
		copy(known, now)
		changed = true
	}
	if !changed {
		return nil
	}
	return b.file.Sync()
}

// do runs a transaction.
func (b *boltCopy) do(transaction func() error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := transaction(); err != nil {
		return err
	}
	return b.carry()
}

func (b *boltCopy) Set(key, value []byte) error {
	return b.do(func() error { return b.BoltStore.Set(key, value) })
}

func (b *boltCopy) SetUint64(key []byte, value uint64) error {
	return b.do(func() error { return b.BoltStore.SetUint64(key, value) })
}

func (b *boltCopy) StoreLog(entry *raft.Log) error { return b.StoreLogs([]*raft.Log{entry}) }

func (b *boltCopy) StoreLogs(entries []*raft.Log) error {
	return b.do(func() error { return b.BoltStore.StoreLogs(entries) })
}

func (b *boltCopy) DeleteRange(first, last uint64) error {
	return b.do(func() error { return b.BoltStore.DeleteRange(first, last) })
}

func (b *boltCopy) Close() error { return errors.Join(b.BoltStore.Close(), b.file.Close()) }
