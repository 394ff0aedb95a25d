package raftdisk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/metadb"

	"github.com/annalsdb/annals/internal/vfs"
)

// pageCache is what Linux does with files: a failed sync says so once, holds what was
// written for clean, and keeps it readable. disk is what a power cut leaves of each.
type pageCache struct {
	vfs.FS
	disk     map[string][]byte
	failNext bool
}

type cachedFile struct {
	vfs.File
	cache *pageCache
	name  string
	dirty [][2]int64
}

func (p *pageCache) Create(name string) (vfs.File, error) {
	f, err := p.FS.Create(name)
	return &cachedFile{File: f, cache: p, name: name}, err
}

func (p *pageCache) OpenReadWrite(name string) (vfs.File, error) {
	f, err := p.FS.OpenReadWrite(name)
	return &cachedFile{File: f, cache: p, name: name}, err
}

func (f *cachedFile) Truncate(size int64) error {
	f.cache.disk[f.name] = make([]byte, size)
	return f.File.Truncate(size)
}

func (f *cachedFile) WriteAt(b []byte, at int64) (int, error) {
	f.dirty = append(f.dirty, [2]int64{at, at + int64(len(b))})
	return f.File.WriteAt(b, at)
}

func (f *cachedFile) Sync() error {
	dirty := f.dirty
	f.dirty = nil // whatever becomes of it
	if f.cache.failNext {
		f.cache.failNext = false
		return syscall.EIO
	}
	for _, part := range dirty {
		if _, err := f.ReadAt(f.cache.disk[f.name][part[0]:part[1]], part[0]); err != nil {
			return err
		}
	}
	return nil
}

// A sync of the Raft log fails, and the process is started again on the same machine. What it
// finds in the Raft log then is on disk: it tells the leader that it has these entries, without writing anything.
func TestRule20RestartAfterFailedSync(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), walKind.name)
	mustNot(t, walKind.create(vfs.OS, path))
	cache := &pageCache{FS: vfs.OS, disk: map[string][]byte{}}
	open := func() Backing {
		t.Helper()
		s, err := openWalLog(cache, path, hclog.NewNullLogger())
		mustNot(t, err)
		return s
	}
	s := open()
	mustNot(t, s.StoreLogs(entries(1, 5)))
	cache.failNext = true
	if err := s.StoreLogs(entries(6, 6)); !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v", err)
	}
	mustNot(t, s.Close())

	s = open()
	believed, err := s.LastIndex()
	mustNot(t, err)
	mustNot(t, s.Close())
	for name, data := range cache.disk { // the power fails
		mustNot(t, os.WriteFile(name, data, 0o600))
	}
	s = open()
	if last, err := s.LastIndex(); err != nil || last != believed {
		t.Errorf("the Raft log ends at %d, %v; before the power cut it ended at %d", last, err, believed)
	}
	mustNot(t, s.Close())

	cache.failNext = true // The disk is not well yet.
	if _, err := openWalLog(cache, path, hclog.NewNullLogger()); !errors.Is(err, syscall.EIO) {
		t.Errorf("a node starts on a disk that does not take what it believes in: %v", err)
	}
}

// The same where the WAL keeps which segments there are.
func TestRule20SegmentsAfterFailedSync(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), walKind.name)
	mustNot(t, walKind.create(vfs.OS, path))
	s, err := walKind.open(vfs.OS, path, hclog.NewNullLogger())
	mustNot(t, err)
	mustNot(t, s.StoreLogs(entries(1, 5)))
	mustNot(t, s.Close())
	file, before := filepath.Join(path, metadb.FileName), time.Now().Add(-time.Hour)
	content, err := os.ReadFile(file)
	mustNot(t, err)
	mustNot(t, os.Chtimes(file, before, before))
	s, err = walKind.open(vfs.OS, path, hclog.NewNullLogger())
	mustNot(t, err)
	defer func() { mustNot(t, s.Close()) }()
	info, err := os.Stat(file)
	mustNot(t, err)
	after, err := os.ReadFile(file)
	mustNot(t, err)
	if !info.ModTime().After(before) || !bytes.Equal(content, after) {
		t.Error("the file was not written again with the same bytes")
	}
}

// In a bbolt file what a failed sync can leave in memory alone, and believed, is the page
// that names the last transaction: it is written when all else is on disk. Opening the file writes the next one.
func TestRule20BoltAfterFailedSync(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), boltKind.name)
	mustNot(t, boltKind.create(vfs.OS, path))
	open := func() Backing {
		t.Helper()
		s, err := boltKind.open(vfs.OS, path, hclog.NewNullLogger())
		mustNot(t, err)
		return s
	}
	read := func() []byte {
		t.Helper()
		b, err := os.ReadFile(path)
		mustNot(t, err)
		return b
	}
	for last := uint64(6); last < 10; last++ { // The two pages take turns.
		s := open()
		mustNot(t, s.StoreLogs(entries(1, last-1)))
		before := read()
		mustNot(t, s.StoreLogs(entries(last, last)))
		mustNot(t, s.Close())
		page := os.Getpagesize()
		memory := read()
		disk := append(bytes.Clone(before[:2*page]), memory[2*page:]...)

		s = open() // The process is started again.
		var entry raft.Log
		mustNot(t, s.GetLog(last, &entry))
		now := read()
		for at := 0; at < len(now); at += page { // What was written meanwhile reached the disk.
			if !bytes.Equal(now[at:at+page], memory[at:at+page]) {
				copy(disk[at:], now[at:at+page])
			}
		}
		mustNot(t, s.Close())
		mustNot(t, os.WriteFile(path, disk, 0o600)) // The power fails.
		s = open()
		if got, err := s.LastIndex(); err != nil || got != last {
			t.Errorf("the Raft log ends at %d, %v; before the power cut it ended at %d", got, err, last)
		}
		mustNot(t, s.Close())
	}
}
