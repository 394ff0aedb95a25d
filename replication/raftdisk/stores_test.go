package raftdisk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// brokenLog fails on demand and notes deletions.
type brokenLog struct {
	memoryLog
	err     error
	calls   int
	deleted [][2]uint64
}

func (b *brokenLog) StoreLogs(logs []*raft.Log) error {
	if b.calls++; b.err != nil {
		return b.err
	}
	return b.memoryLog.StoreLogs(logs)
}

func (b *brokenLog) DeleteRange(low, high uint64) error {
	b.deleted = append(b.deleted, [2]uint64{low, high})
	if b.calls++; b.err != nil {
		return b.err
	}
	return b.memoryLog.DeleteRange(low, high)
}

func entries(first, last uint64) []*raft.Log {
	var logs []*raft.Log
	for i := first; i <= last; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: fmt.Appendf(nil, "entry %d", i)})
	}
	return logs
}

// The first write or sync that fails ends the node, before it returns and without a second try:
// raft would step down and continue, on a disk that already lost something.
func TestRule20FailStop(t *testing.T) {
	t.Parallel()
	disk := errors.New("input/output error")
	for name, call := range map[string]func(*RaftLog, *StableStore, *Snapshots) error{
		"StoreLog":    func(l *RaftLog, _ *StableStore, _ *Snapshots) error { return l.StoreLog(entries(1, 1)[0]) },
		"StoreLogs":   func(l *RaftLog, _ *StableStore, _ *Snapshots) error { return l.StoreLogs(entries(1, 2)) },
		"DeleteRange": func(l *RaftLog, _ *StableStore, _ *Snapshots) error { return l.DeleteRange(1, 2) },
		"Set":         func(_ *RaftLog, s *StableStore, _ *Snapshots) error { return s.Set([]byte("k"), []byte("v")) },
		"SetUint64":   func(_ *RaftLog, s *StableStore, _ *Snapshots) error { return s.SetUint64([]byte("k"), 1) },
		"snapshot": func(_ *RaftLog, _ *StableStore, s *Snapshots) error {
			sink, err := s.Create(1, 1, 1, raft.Configuration{}, 1, nil)
			if err != nil {
				return err
			}
			sink.(*snapshotSink).local = true
			return sink.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var fatal []error
			fail := &FailStop{OnFatal: func(err error) { fatal = append(fatal, err) }}
			inner := &brokenLog{memoryLog: memoryLog{raft.NewInmemStore()}}
			check.Must(t, inner.StoreLogs(entries(1, 5)))
			inner.err, inner.calls = disk, 0
			logs := newRaftLog(boltKind, vfs.OS, "x/log.db", inner, fail, newEntrySizes(8))
			stable := &StableStore{votes: brokenStable{err: disk}, path: "x/stable.db", fail: fail}
			snaps := &Snapshots{files: vfs.OS, dir: filepath.Join(t.TempDir(), "missing"), fail: fail, logger: hclog.NewNullLogger()}
			first := call(logs, stable, snaps)
			if first == nil || len(fatal) != 1 || fatal[0] != first {
				t.Fatalf("returned %v, reported %v", first, fatal)
			}
			if !errors.Is(first, disk) && name != "snapshot" || !strings.Contains(first.Error(), "x/") && name != "snapshot" {
				t.Errorf("%v does not name file and cause", first)
			}
			calls := inner.calls
			for _, err := range []error{
				call(logs, stable, snaps), logs.StoreLogs(entries(6, 6)), logs.DeleteRange(1, 1),
				stable.Set([]byte("k"), nil), stable.SetUint64([]byte("k"), 2), snaps.publish(&snapshot{}), rewritten(logs, 0),
			} {
				check.Equal(t, err, first, "later call returned")
			}
			if inner.calls != calls || len(fatal) != 1 {
				t.Errorf("the disk was asked again, or the error reported again")
			}
		})
	}
}

type brokenStable struct {
	votes
	err error
}

func (b brokenStable) Set([]byte, []byte) error       { return b.err }
func (b brokenStable) SetUint64([]byte, uint64) error { return b.err }

func TestDeleteRangeRunsInSlices(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		low, high uint64
		kind      *logKind
		want      [][2]uint64
	}{
		{"head", 1, 1200, boltKind, [][2]uint64{{1, 512}, {513, 1024}, {1025, 1200}}},
		{"head from below", 0, 100, boltKind, [][2]uint64{{1, 100}}},
		{"tail, from its end", 700, 2000, boltKind, [][2]uint64{{989, 1500}, {700, 988}}},
		{"exactly one", 1, 512, boltKind, [][2]uint64{{1, 512}}},
		{"nothing there", 1600, 1700, boltKind, nil},
		{"at once", 1, 1200, segmentKind, [][2]uint64{{1, 1200}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner := &brokenLog{memoryLog: memoryLog{raft.NewInmemStore()}}
			s := newRaftLog(c.kind, nil, "", inner, &FailStop{}, newEntrySizes(8))
			check.Must(t, s.StoreLogs(entries(1, 1500)))
			check.Must(t, s.DeleteRange(c.low, c.high))
			if fmt.Sprint(inner.deleted) != fmt.Sprint(c.want) {
				t.Errorf("deleted %v, expected %v", inner.deleted, c.want)
			}
		})
	}
}

func TestEntryCache(t *testing.T) {
	t.Parallel()
	inner := &brokenLog{memoryLog: memoryLog{raft.NewInmemStore()}}
	s := newRaftLog(boltKind, nil, "", inner, &FailStop{}, newEntrySizes(8))
	check.Must(t, s.StoreLogs(entries(1, 2000)))
	cached := func(index uint64) bool { return s.cache.get(index, &raft.Log{}) }
	if cached(1488) || !cached(1489) || !cached(2000) || cached(2001) || cached(0) {
		t.Error("does not hold the newest entries")
	}
	check.Must(t, s.DeleteRange(1990, 2000))
	if cached(1990) || !cached(1989) {
		t.Error("deleted entries stay")
	}
	var log raft.Log
	check.Equal(t, s.GetLog(1990, &log), raft.ErrLogNotFound, "missing entry")
	if err := s.GetLog(3, &log); err != nil || string(log.Data) != "entry 3" {
		t.Errorf("entry 3: %q, %v", log.Data, err)
	}
	large := make([]byte, cacheBytes/4)
	for i := uint64(1990); i < 2000; i++ {
		check.Must(t, s.StoreLog(&raft.Log{Index: i, Data: large}))
	}
	if s.cache.bytes > cacheBytes || !cached(1999) || cached(1990) {
		t.Errorf("holds %d bytes", s.cache.bytes)
	}
}

// How many entries are kept at a snapshot follows from their bytes: so many large ones would fill
// the disk.
func TestRule10TrailingFollowsBytes(t *testing.T) {
	t.Parallel()
	s := newEntrySizes(100)
	check.Equal(t, s.trailing(1000, 10<<20), 10, "of unknown size")
	var logs []*raft.Log
	for i := uint64(1); i <= 300; i++ {
		logs = append(logs, &raft.Log{Index: i, Data: make([]byte, 1000)})
	}
	check.Equal(t, s.put(logs), 300_000, "sum")
	for _, c := range []struct {
		last  uint64
		bytes int64
		want  uint64
	}{{300, 20_000, 20}, {300, 1 << 30, 100}, {300, 1, 1}, {5, 1 << 30, 5}} {
		if got := s.trailing(c.last, c.bytes); got != c.want {
			t.Errorf("trailing(%d, %d) = %d, expected %d", c.last, c.bytes, got, c.want)
		}
	}
}

var testID = []byte("0123456789abcdef")

// openTestLog opens the Raft log in dir, making it when it is not there.
func openTestLog(t *testing.T, dir string, kind *logKind) *RaftLog {
	t.Helper()
	if found, err := os.ReadDir(dir); err != nil {
		t.Fatal(err)
	} else if len(found) == 0 {
		path := filepath.Join(dir, kind.name)
		if err := kind.create(vfs.OS, path); err != nil {
			t.Fatal(err)
		}
		store, err := kind.open(vfs.OS, path, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(store.Set(keyCreation, testID), store.Close()); err != nil {
			t.Fatal(err)
		}
	}
	fail := &FailStop{OnFatal: func(err error) { t.Error(err) }}
	s, err := openLogStore(vfs.OS, dir, kind, testID, hclog.NewNullLogger(), fail, newEntrySizes(8))
	check.Must(t, err)
	return s
}

func closeLog(t *testing.T, s *RaftLog) {
	t.Helper()
	check.NoError(t, s.Close())
}

func checkEntries(t *testing.T, s *RaftLog, first, last uint64) {
	t.Helper()
	gotFirst, err1 := s.FirstIndex()
	gotLast, err2 := s.LastIndex()
	if err1 != nil || err2 != nil || gotFirst != first || gotLast != last {
		t.Fatalf("holds %d to %d (%v, %v), expected %d to %d", gotFirst, gotLast, err1, err2, first, last)
	}
	for i := first; i <= last && i > 0; i++ {
		var log raft.Log
		if err := s.inner.GetLog(i, &log); err != nil || string(log.Data) != fmt.Sprintf("entry %d", i) {
			t.Fatalf("entry %d: %q, %v", i, log.Data, err)
		}
	}
	for i := uint64(1); i <= max(last, 100)+1; i++ {
		if first <= i && i <= last {
			continue
		}
		if err := s.GetLog(i, new(raft.Log)); err != raft.ErrLogNotFound {
			t.Fatalf("entry %d, which is not there: %v", i, err)
		}
	}
}

func rewritten(s *RaftLog, through uint64) error {
	_, err := s.Rewrite(through, hclog.NewNullLogger())
	return err
}

// filled makes path.new as Rewrite does, and closes it.
func filled(s *RaftLog, path string) error {
	fresh, err := fillNew(s.files, s.kind, path, s.inner, 0, hclog.NewNullLogger())
	if err != nil {
		return err
	}
	return fresh.Close()
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries := check.Value(os.ReadDir(dir)).Must(t)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// Rewriting the Raft log leaves nothing of deleted entries in its files: neither kind of
// log overwrites what it deletes, and erased data would linger.
func TestRule21RewriteLeavesNothingOfDeletedEntries(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds {
		t.Run(kind.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTestLog(t, dir, kind)
			check.Must(t, s.StoreLogs(entries(1, 90)))
			secret := []byte("to be forgotten")
			check.Must(t, s.StoreLog(&raft.Log{Index: 91, Data: secret}))
			check.Must(t, s.StoreLogs(entries(92, 200)))
			check.Must(t, s.DeleteRange(1, 100))
			check.Must(t, rewritten(s, 100))
			checkEntries(t, s, 101, 200)
			check.Must(t, s.StoreLogs(entries(201, 210)))
			err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := os.ReadFile(path)
				if bytes.Contains(data, secret) {
					t.Errorf("%s still holds the entry", path)
				}
				return err
			})
			check.Must(t, err)
			closeLog(t, s)
			check.Equal(t, names(t, dir), kind.name, "folder holds")
			s = openTestLog(t, dir, kind)
			defer closeLog(t, s)
			checkEntries(t, s, 101, 210)
		})
	}
}

// The same with files that were used again and again: sealed and preallocated segments of the WAL,
// freed and shared pages of bbolt, and the end of the log cut and written again.
func TestRule21RewriteOfLargeLogs(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds {
		t.Run(kind.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTestLog(t, dir, kind)
			secret := []byte("to be forgotten")
			data := bytes.Repeat(secret, (1<<18)/len(secret))
			store := func(from, to uint64, data []byte) {
				for i := from; i <= to; i++ {
					check.Must(t, s.StoreLog(&raft.Log{Index: i, Term: 1, Data: data}))
				}
			}
			store(1, 100, data)
			check.Must(t, s.DeleteRange(1, 70))
			check.Must(t, s.DeleteRange(91, 100))
			store(91, 140, []byte("kept"))
			check.Must(t, rewritten(s, 90))
			check := func() {
				t.Helper()
				err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
					if err != nil || d.IsDir() {
						return err
					}
					content, err := os.ReadFile(path)
					if bytes.Contains(content, secret) {
						t.Errorf("%s still holds the entry", path)
					}
					return err
				})
				check.Must(t, err)
			}
			check()
			store(141, 150, []byte("kept"))
			closeLog(t, s)
			check()
			s = openTestLog(t, dir, kind)
			defer closeLog(t, s)
			first, err1 := s.FirstIndex()
			last, err2 := s.LastIndex()
			if first != 91 || last != 150 || err1 != nil || err2 != nil {
				t.Errorf("holds %d to %d", first, last)
			}
		})
	}
}

// What is cut off the front ends before what another node needs.
func TestRule10EntriesThatANodeNeeds(t *testing.T) {
	t.Parallel()
	for _, kind := range allKinds {
		t.Run(kind.name, func(t *testing.T) {
			s := openTestLog(t, t.TempDir(), kind)
			defer closeLog(t, s)
			check.Must(t, s.StoreLogs(entries(1, 100)))
			s.Needed.Store(1)
			check.Must(t, s.DeleteRange(1, 50))
			checkEntries(t, s, 1, 100)
			s.Needed.Store(31)
			check.Must(t, s.DeleteRange(1, 20))
			checkEntries(t, s, 21, 100)
			check.Must(t, s.DeleteRange(21, 60))
			checkEntries(t, s, 30, 100)
			check.Must(t, s.DeleteRange(30, 60))
			checkEntries(t, s, 30, 100)
			check.Must(t, s.DeleteRange(91, 100)) // of another history
			checkEntries(t, s, 30, 90)
			s.Needed.Store(0)
			check.Must(t, s.DeleteRange(30, 80))
			checkEntries(t, s, 81, 90)
			s.Needed.Store(82)
			check.Must(t, s.DeleteRange(81, 90))
			checkEntries(t, s, 0, 0)
		})
	}
}

func TestConversion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, to *logKind }{{boltKind, segmentKind}, {segmentKind, boltKind}} {
		t.Run(c.from.name+" to "+c.to.name, func(t *testing.T) {
			dir := t.TempDir()
			s := openTestLog(t, dir, c.from)
			check.Must(t, s.StoreLogs(entries(1, 300)))
			check.Must(t, s.DeleteRange(1, 99))
			closeLog(t, s)
			for range 2 { // there, and back
				s = openTestLog(t, dir, c.to)
				checkEntries(t, s, 100, 300)
				closeLog(t, s)
				check.Equal(t, names(t, dir), c.to.name, "folder holds")
				c.from, c.to = c.to, c.from
			}
		})
	}
	t.Run("drops what lies before a gap", func(t *testing.T) {
		dir := t.TempDir()
		s := openTestLog(t, dir, boltKind)
		check.Must(t, s.StoreLogs(entries(1, 80)))
		check.Must(t, s.StoreLogs(entries(90, 95)))
		check.Must(t, s.inner.StoreLogs(entries(97, 99)))
		closeLog(t, s)
		s = openTestLog(t, dir, segmentKind)
		defer closeLog(t, s)
		checkEntries(t, s, 97, 99)
	})
	t.Run("of an empty log", func(t *testing.T) {
		dir := t.TempDir()
		closeLog(t, openTestLog(t, dir, boltKind))
		s := openTestLog(t, dir, segmentKind)
		defer closeLog(t, s)
		checkEntries(t, s, 0, 0)
		check.Must(t, s.StoreLogs(entries(77, 78)))
	})
}

// The entries of a Raft log that no release reads are missing in any other: the start ends, and a
// node of a cluster does not take its consensus state for lost.
func TestRaftLogOfADevelopmentVersion(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", newSuffix, oldSuffix} {
		for _, both := range []bool{true, false} {
			o := testOptions(t.TempDir(), event.Tail{})
			makeState(t, o)
			dir := filepath.Join(o.Dir, Dir)
			if !both {
				check.Must(t, os.Remove(filepath.Join(dir, boltKind.name)))
			}
			old := filepath.Join(dir, unreadable+suffix)
			check.Must(t, os.Mkdir(old, 0o700))
			check.Must(t, os.WriteFile(filepath.Join(old, "wal-meta.db"), nil, 0o600))
			before := names(t, dir)
			_, err := openTestState(t, o)
			if err == nil || errors.Is(err, ErrStateLost) {
				t.Fatalf("%s, with another log: %t: %v", old, both, err)
			}
			for _, part := range []string{old, "development version", "RaftLogStore=BoltDB"} {
				check.Contains(t, err.Error(), part, "is missing in")
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a line: %v", err)
			}
			if after := names(t, dir); after != before || names(t, old) != "wal-meta.db" {
				t.Errorf("the folder held %s, and holds %s", before, after)
			}
		}
	}
}

func TestExchangeThatACrashInterrupted(t *testing.T) {
	t.Parallel()
	// The folder is put into the state that a crash after each step leaves.
	for _, c := range []struct {
		name  string
		crash func(t *testing.T, dir, path string)
	}{
		{"new one incomplete", func(t *testing.T, _, path string) {
			check.Must(t, os.Mkdir(path+newSuffix, 0o700))
		}},
		{"new one complete", func(t *testing.T, dir, path string) {
			s := openTestLog(t, dir, kindAt(path))
			check.Must(t, filled(s, path))
			closeLog(t, s)
		}},
		{"old one renamed", func(t *testing.T, dir, path string) {
			s := openTestLog(t, dir, kindAt(path))
			check.Must(t, filled(s, path))
			closeLog(t, s)
			check.Must(t, os.Rename(path, path+oldSuffix))
		}},
		{"new one renamed", func(t *testing.T, dir, path string) {
			s := openTestLog(t, dir, kindAt(path))
			check.Must(t, filled(s, path))
			closeLog(t, s)
			check.Must(t, os.Rename(path, path+oldSuffix))
			check.Must(t, os.Rename(path+newSuffix, path))
		}},
	} {
		for _, kind := range allKinds {
			t.Run(c.name+" "+kind.name, func(t *testing.T) {
				dir := t.TempDir()
				s := openTestLog(t, dir, kind)
				check.Must(t, s.StoreLogs(entries(5, 30)))
				closeLog(t, s)
				c.crash(t, dir, filepath.Join(dir, kind.name))
				s = openTestLog(t, dir, kind)
				defer closeLog(t, s)
				checkEntries(t, s, 5, 30)
				check.Equal(t, names(t, dir), kind.name, "folder holds")
			})
		}
	}
	t.Run("conversion before the old one went", func(t *testing.T) {
		for _, started := range allKinds {
			dir := t.TempDir()
			s := openTestLog(t, dir, boltKind)
			check.Must(t, s.StoreLogs(entries(5, 30)))
			path := filepath.Join(dir, segmentKind.name)
			s.kind = segmentKind
			check.Must(t, filled(s, path))
			closeLog(t, s)
			check.Must(t, os.Rename(path+newSuffix, path))
			s = openTestLog(t, dir, started)
			checkEntries(t, s, 5, 30)
			closeLog(t, s)
			check.Equal(t, names(t, dir), started.name, "folder holds")
		}
	})
	t.Run("two logs that differ are refused", func(t *testing.T) {
		dir, other := t.TempDir(), t.TempDir()
		s := openTestLog(t, dir, boltKind)
		check.Must(t, s.StoreLogs(entries(5, 30)))
		closeLog(t, s)
		s = openTestLog(t, other, segmentKind)
		check.Must(t, s.StoreLogs(entries(5, 31)))
		closeLog(t, s)
		check.Must(t, os.Rename(filepath.Join(other, segmentKind.name), filepath.Join(dir, segmentKind.name)))
		_, err := openLogStore(vfs.OS, dir, segmentKind, testID, hclog.NewNullLogger(), &FailStop{}, newEntrySizes(8))
		check.Is(t, err, ErrStateLost, "error")
	})
}

func kindAt(path string) *logKind {
	if filepath.Base(path) == segmentKind.name {
		return segmentKind
	}
	return boltKind
}

// While something is done in a term, raft comes to no other.
func TestRule26TermStandsStill(t *testing.T) {
	t.Parallel()
	s := check.Value(newStable(memoryLog{raft.NewInmemStore()}, "memory", &FailStop{})).Must(t)
	check.Must(t, s.SetUint64(keyCurrentTerm, 3))
	if s.InTerm(2, func() { t.Error("done in a term that is over") }) || s.InTerm(4, func() { t.Error("done in a term that is to come") }) {
		t.Error("done in another term")
	}
	risen := make(chan error, 1)
	ran := s.InTerm(3, func() {
		check.Must(t, s.SetUint64(keyCurrentTerm, 3)) // as raft does, at once
		go func() { risen <- s.SetUint64(keyCurrentTerm, 4) }()
		select {
		case <-risen:
			t.Error("the term rose meanwhile")
		case <-time.After(20 * time.Millisecond):
		}
		check.Must(t, s.SetUint64(keyCurrentTerm, 3)) // with another one waiting, too
		if term, err := s.GetUint64(keyCurrentTerm); err != nil || term != 3 {
			t.Errorf("term %d, %v", term, err)
		}
	})
	check.Must(t, <-risen)
	if term, err := s.GetUint64(keyCurrentTerm); !ran || err != nil || term != 4 {
		t.Errorf("done: %v; term %d, %v", ran, term, err)
	}
}
