package raftdisk

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
)

// pageCache is what Linux does with files: a failed sync says so once, holds what was
// written for clean, and keeps it readable. disk is what a power cut leaves of each.
type pageCache struct {
	vfs.FS
	mu       sync.Mutex // The next segment is prepared in parallel.
	disk     map[string][]byte
	failNext bool
}

type cachedFile struct {
	vfs.File
	cache *pageCache
	dirty [][2]int64
}

func (p *pageCache) open(name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if f, err := open(name); err != nil || filepath.Ext(name) != segmentSuffix {
		return f, err
	} else {
		return &cachedFile{File: f, cache: p}, nil
	}
}

func (p *pageCache) Create(name string) (vfs.File, error) { return p.open(name, p.FS.Create) }

func (p *pageCache) OpenReadWrite(name string) (vfs.File, error) {
	return p.open(name, p.FS.OpenReadWrite)
}

func (f *cachedFile) Direct() {}

func (f *cachedFile) WriteAt(b []byte, at int64) (int, error) {
	f.dirty = append(f.dirty, [2]int64{at, at + int64(len(b))})
	return f.File.WriteAt(b, at)
}

func (f *cachedFile) Sync() error {
	f.cache.mu.Lock()
	defer f.cache.mu.Unlock()
	dirty := f.dirty
	f.dirty = nil // whatever becomes of it
	if f.cache.failNext {
		f.cache.failNext = false
		return syscall.EIO
	}
	for _, part := range dirty {
		disk := f.cache.disk[f.Name()]
		disk = append(disk, make([]byte, max(0, part[1]-int64(len(disk))))...)
		if _, err := f.ReadAt(disk[part[0]:part[1]], part[0]); err != nil {
			return err
		}
		f.cache.disk[f.Name()] = disk
	}
	return nil
}

// A sync of the Raft log fails, and the process is started again on the same machine. What it finds
// in the Raft log then is on disk: it tells the leader that it has these entries, without writing
// anything.
func TestRule20RestartAfterFailedSync(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), segmentKind.name)
	check.Must(t, segmentKind.create(vfs.OS, path))
	cache := &pageCache{FS: vfs.OS, disk: map[string][]byte{}}
	open := func() Backing {
		t.Helper()
		s := check.Value(openSegmentLog(cache, path, hclog.NewNullLogger())).Must(t)
		return s
	}
	s := open()
	check.Must(t, s.StoreLogs(entries(1, 5)))
	cache.failNext = true
	check.MustBe(t, s.StoreLogs(entries(6, 6)), syscall.EIO, "error")
	check.Must(t, s.Close())

	s = open()
	believed := check.Value(s.LastIndex()).Must(t)
	check.Must(t, s.Close())
	for name, data := range cache.disk { // the power fails
		check.Must(t, os.WriteFile(name, data, 0o600))
	}
	s = open()
	if last, err := s.LastIndex(); err != nil || last != believed {
		t.Errorf("the Raft log ends at %d, %v; before the power cut it ended at %d", last, err, believed)
	}
	check.Must(t, s.Close())

	cache.failNext = true // The disk is not well yet.
	if _, err := openSegmentLog(cache, path, hclog.NewNullLogger()); !errors.Is(err, syscall.EIO) {
		t.Errorf("a node starts on a disk that does not take what it believes in: %v", err)
	}
}

// In a bbolt file what a failed sync can leave in memory alone, and believed, is the page that
// names the last transaction: it is written when all else is on disk. Opening the file writes the
// next one.
func TestRule20BoltAfterFailedSync(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), boltKind.name)
	check.Must(t, boltKind.create(vfs.OS, path))
	open := func() Backing {
		t.Helper()
		s := check.Value(boltKind.open(vfs.OS, path, hclog.NewNullLogger())).Must(t)
		return s
	}
	read := func() []byte {
		t.Helper()
		b := check.Value(os.ReadFile(path)).Must(t)
		return b
	}
	for last := uint64(6); last < 10; last++ { // The two pages take turns.
		s := open()
		check.Must(t, s.StoreLogs(entries(1, last-1)))
		before := read()
		check.Must(t, s.StoreLogs(entries(last, last)))
		check.Must(t, s.Close())
		page := os.Getpagesize()
		memory := read()
		disk := append(bytes.Clone(before[:2*page]), memory[2*page:]...)

		s = open() // The process is started again.
		var entry raft.Log
		check.Must(t, s.GetLog(last, &entry))
		now := read()
		for at := 0; at < len(now); at += page { // What was written meanwhile reached the disk.
			if !bytes.Equal(now[at:at+page], memory[at:at+page]) {
				copy(disk[at:], now[at:at+page])
			}
		}
		check.Must(t, s.Close())
		check.Must(t, os.WriteFile(path, disk, 0o600)) // The power fails.
		s = open()
		if got, err := s.LastIndex(); err != nil || got != last {
			t.Errorf("the Raft log ends at %d, %v; before the power cut it ended at %d", got, err, last)
		}
		check.Must(t, s.Close())
	}
}

// Whenever the power fails, during a rewrite of the Raft log or after it, all acknowledged entries
// are there.
func TestPowerCutWhileRewritten(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashMem()
	dir := filepath.Join(t.TempDir(), Dir)
	check.Must(t, vfs.MkdirAllSync(mem, dir))
	path := filepath.Join(dir, segmentKind.name)
	check.Must(t, segmentKind.create(mem, path))
	check.Must(t, mem.SyncDir(dir))
	made := check.Value(segmentKind.open(mem, path, hclog.NewNullLogger())).Must(t)
	check.Must(t, made.Set(keyCreation, testID))
	check.Must(t, made.Close())
	type cut struct {
		op    string
		files *vfs.Mem
		last  uint64
	}
	var mu sync.Mutex
	var cuts []cut
	last := uint64(0)
	var store func(from, to uint64)
	exchanged := false
	files := vfs.NewFaulty(mem, func(op vfs.Op) error {
		// The log is in use again before the exchange is durable.
		if old, err := exists(mem, path+oldSuffix); err == nil && old && op.Kind == vfs.OpSyncDir && op.Name == dir && !exchanged {
			if begun, err := exists(mem, path+newSuffix); err == nil && !begun {
				exchanged = true
				store(last+1, last+1)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if !op.Kind.Mutates() || last < 30 {
			return nil
		}
		name := fmt.Sprintf("%s of %s", op.Kind, filepath.Base(op.Name))
		cuts = append(cuts, cut{name, mem.CrashClone(vfs.CrashOptions{}), last})
		for seed := range uint64(3) {
			cuts = append(cuts, cut{name, mem.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, uint64(len(cuts))))}), last})
		}
		return nil
	})
	open := func(files vfs.FS) (*RaftLog, error) {
		fail := &FailStop{OnFatal: func(err error) { t.Error(err) }}
		return openLogStore(files, dir, segmentKind, testID, hclog.NewNullLogger(), fail, newEntrySizes(8))
	}
	s := check.Value(open(files)).Must(t)
	store = func(from, to uint64) {
		check.Must(t, s.StoreLogs(entries(from, to)))
		mu.Lock()
		last = to
		mu.Unlock()
	}
	store(1, 30)
	check.Must(t, rewritten(s, 10))
	store(last+1, last+1)
	exchanged = false
	check.Must(t, rewritten(s, 20))
	check.Must(t, s.Close())
	check.Equal(t, last, 33, "entries were stored")
	for i, c := range cuts {
		s, err := open(c.files)
		if err != nil {
			t.Errorf("cut %d, before %s: %v", i, c.op, err)
			continue
		}
		for index := uint64(21); index <= c.last; index++ {
			if err := s.GetLog(index, new(raft.Log)); err != nil {
				t.Errorf("cut %d, before %s: entry %d was acknowledged: %v", i, c.op, index, err)
				break
			}
		}
		check.Must(t, s.Close())
	}
}

// checkHolds checks that entries are at the end of a Raft log.
func checkHolds(t *testing.T, s *RaftLog, first, last uint64, what string) {
	t.Helper()
	check.Equal(t, check.Value(s.LastIndex()).Must(t, what), last, what)
	for i := first; i <= last; i++ {
		var entry raft.Log
		check.NoError(t, s.GetLog(i, &entry), what)
		check.Equal(t, string(entry.Data), fmt.Sprintf("entry %d", i), what)
	}
}

// A Raft log was rewritten, and the sync of the exchange fails: the power may leave the folder as
// it was before, so the old log must still be there.
func TestRewriteThatCannotSync(t *testing.T) {
	for _, kind := range []LogStore{BoltDB, Wal} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			mem, o := inMemory(t, kind)
			disk := powercut.New(powercut.Options[struct{}]{Mem: mem, Off: true, More: 40})
			path := filepath.Join(o.Dir, Dir, kindOf(kind).name)
			rewriting, broken := false, false
			o.Files = failing(disk, func(op vfs.Op) bool {
				if op.Kind != vfs.OpSyncDir || op.Name != filepath.Dir(path) || !rewriting || broken {
					return false
				}
				newThere := check.Value(exists(mem, path+newSuffix)).Must(t)
				oldThere := check.Value(exists(mem, path+oldSuffix)).Must(t)
				if broken = oldThere && !newThere; broken {
					disk.On()
				}
				return broken
			})
			s := check.Value(openToFail(o)).Must(t)
			check.Must(t, s.Logs.StoreLogs(entries(2, 6)))
			check.Must(t, s.Snapshots.publish(snapshotOf(t, s.ID, 3, 1, event.Tail{})))
			rewriting = true
			check.MustBe(t, rewritten(s.Logs, 2), syscall.EIO, "rewritten")
			check.Must(t, s.Close())
			disk.Cut("at the end")
			for _, cut := range disk.Cuts() {
				o.Files = cut.FS
				s := check.Value(openTestState(t, o)).Must(t, cut.What)
				checkHolds(t, s.Logs, 4, 6, cut.What)
				check.Must(t, s.Close())
			}
		})
	}
}

// The Raft log is converted, and the next process converts it back. The power did not fail between
// them, but whenever it fails during the second conversion, all entries are there.
func TestConvertedBack(t *testing.T) {
	for _, kinds := range [][]LogStore{{Wal, BoltDB, Wal}, {BoltDB, Wal, BoltDB}} {
		t.Run(string(kinds[0]), func(t *testing.T) {
			t.Parallel()
			mem, o := inMemory(t, kinds[0])
			every, first := testkit.Sample(t, 4)
			disk := powercut.New(powercut.Options[struct{}]{Mem: mem, Off: true, Every: every, First: first, More: 4})
			o.Files = disk
			for i, kind := range kinds {
				if o.LogStore = kind; i == len(kinds)-1 {
					disk.On()
				}
				s := check.Value(openTestState(t, o)).Must(t)
				if i == 0 {
					check.Must(t, s.Logs.StoreLogs(entries(2, 6)))
				}
				disk.Off()
				check.Must(t, s.Close())
			}
			for _, cut := range disk.Cuts() {
				o.Files = cut.FS
				s, err := openTestState(t, o)
				check.Must(t, err, cut.What)
				checkHolds(t, s.Logs, 2, 6, cut.What)
				check.Must(t, s.Close())
			}
		})
	}
}

// A sync of a bbolt file fails, that of the pages of a transaction or of the one that makes them
// valid, and the system does not write again what it was to write. The next process stores the
// same. Whenever the power fails from then on, the file can be opened and has all acknowledged
// entries.
func TestBoltAfterWhatTheSystemForgot(t *testing.T) {
	t.Parallel()
	for fails := 1; fails <= 2; fails++ {
		mem := vfs.NewCrashMem()
		check.Must(t, vfs.MkdirAllSync(mem, "/data"))
		path := "/data/" + boltKind.name
		check.Must(t, boltKind.create(mem, path))
		check.Must(t, mem.SyncDir("/data"))
		syncs := -1 // from when they count
		s := check.Value(boltKind.open(failing(mem, func(op vfs.Op) bool {
			if syncs >= 0 && op.Kind == vfs.OpSync {
				syncs++
			}
			return syncs == fails && op.Kind == vfs.OpSync
		}), path, hclog.NewNullLogger())).Must(t)
		check.Must(t, s.StoreLogs(entries(1, 200)))
		syncs = 0
		check.MustBe(t, s.StoreLogs(entries(201, 201)), syscall.EIO, "stored")
		check.Must(t, mem.Forget(path))
		files := mem.Fork()
		check.Must(t, s.Close())

		last := uint64(200)
		disk := powercut.New(powercut.Options[uint64]{Mem: files, More: 1, Note: func() uint64 { return last }})
		s = check.Value(boltKind.open(disk, path, hclog.NewNullLogger())).Must(t)
		for last < 205 {
			check.Must(t, s.StoreLogs(entries(last+1, last+1)))
			last++
		}
		check.Must(t, s.Close())
		for _, cut := range disk.Cuts() {
			s := check.Value(boltKind.open(cut.FS, path, hclog.NewNullLogger())).Must(t, cut.What)
			if got, err := s.LastIndex(); err != nil || got < cut.Note {
				t.Errorf("sync %d failed, %s: the log ends at %d, %v, and %d was acknowledged", fails, cut.What, got, err, cut.Note)
			}
			check.Must(t, s.Close())
		}
	}
}
