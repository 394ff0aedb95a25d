package raftdisk

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
)

// A sync of the folder failed, so that the name of a segment is in memory alone, and the process
// ended. The next one finds the segment and stores more in it: its name is made durable before.
func TestNameThatAFailedSyncLeft(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashMem()
	path := createSegments(t, mem)
	broken := false
	s := openSmall(t, failing(mem, func(op vfs.Op) bool {
		return op.Kind == vfs.OpSyncDir && op.Name == path && broken
	}), path)
	broken = true
	check.MustBe(t, s.StoreLogs(storedEntries(1, 1, 1)), syscall.EIO, "stored")
	check.Must(t, s.Close())

	s = openSmall(t, mem, path)
	_, last, err := s.ends()
	check.Must(t, err)
	check.Must(t, s.StoreLogs(storedEntries(last+1, last+1, 1)))
	cut := mem.CrashClone(vfs.CrashOptions{})
	check.Must(t, s.Close())
	s = openSmall(t, cut, path)
	if _, now, err := s.ends(); err != nil || now != last+1 {
		t.Errorf("entry %d was acknowledged, and the log ends at %d, %v", last+1, now, err)
	}
	check.Must(t, s.Close())
}

// What was behind an end that fills its page was cut off, by a version that left no mark, and the
// sync of that failed: zeros are in memory alone. What the next process believes is the end is the
// end after a power cut too.
func TestCutThatAFailedSyncLeft(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), segmentKind.name)
	check.Must(t, segmentKind.create(vfs.OS, path))
	cache := &pageCache{FS: vfs.OS, disk: map[string][]byte{}}
	open := func() *segmentLog {
		t.Helper()
		s := check.Value(openSegments(cache, path, smallSegment, hclog.NewNullLogger())).Must(t)
		return s
	}
	s := open()
	full := &raft.Log{Index: 1, Term: 1, Data: make([]byte, pageSize-segmentHeader-entryHead)}
	check.Must(t, s.StoreLogs([]*raft.Log{full, storedEntry(2, 1)}))
	name := segmentPath(path, s.segments[0].head.number)
	check.Must(t, s.Close())
	check.Must(t, os.Remove(filepath.Join(path, markFile)))
	f, err := cache.OpenReadWrite(name)
	check.Must(t, err)
	_, err = f.WriteAt(make([]byte, pageSize), pageSize)
	check.Must(t, err)
	cache.failNext = true
	check.MustFail(t, f.Sync(), "synced")
	check.Must(t, f.Close())

	s = open()
	if _, last, _ := s.ends(); last != 1 {
		t.Fatalf("the log ends at %d", last)
	}
	check.Must(t, s.Close())
	for name, data := range cache.disk { // the power fails
		check.Must(t, os.WriteFile(name, data, 0o600))
	}
	check.Must(t, os.Remove(filepath.Join(path, markFile)))
	s = open()
	if _, last, _ := s.ends(); last != 1 {
		t.Errorf("the log ends at %d: what was cut off is there again", last)
	}
	check.Must(t, s.Close())
}

// The end of the log is deleted, and the sync of the mark that says so fails: the mark is in memory
// alone, and an older one on disk promises the entries. The next process finds the mark and deletes
// them. Whenever the power fails meanwhile, no start misses entries that a mark promises.
func TestCutWhoseMarkIsNotSynced(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashMem()
	path := createSegments(t, mem)
	broken := false
	s := openSmall(t, failing(mem, func(op vfs.Op) bool {
		return op.Kind == vfs.OpSync && filepath.Base(op.Name) == markFile && broken
	}), path)
	check.Must(t, s.StoreLogs(storedEntries(1, 10, 1)))
	check.Must(t, s.mark.file.Sync()) // The system does so within some seconds.
	broken = true
	check.MustBe(t, s.DeleteRange(5, 10), syscall.EIO, "deleted")
	check.Is(t, s.Close(), syscall.EIO, "closed")

	disk := powercut.New(powercut.Options[struct{}]{Mem: mem})
	check.Must(t, openSmall(t, disk, path).Close())
	for _, cut := range disk.Cuts() {
		s, err := openSegments(cut.FS, path, smallSegment, hclog.NewNullLogger())
		check.Must(t, err, cut.What)
		check.Must(t, s.Close(), cut.What)
	}
}

// The end of the log was deleted, and the sync fails by which the mark says that this is done, or
// the process is killed before it. The next process finds that mark and stores entries. After a
// power cut they are there.
func TestMarkThatACutIsDoneIsNotSynced(t *testing.T) {
	t.Parallel()
	for _, forgets := range []bool{true, false} {
		mem := vfs.NewCrashMem()
		path := createSegments(t, mem)
		syncs := -1 // of the mark, from when they count
		s := openSmall(t, failing(mem, func(op vfs.Op) bool {
			if op.Kind != vfs.OpSync || filepath.Base(op.Name) != markFile || syncs < 0 {
				return false
			}
			syncs++
			return syncs == 2
		}), path)
		check.Must(t, s.StoreLogs(storedEntries(1, 10, 1)))
		syncs = 0
		check.MustBe(t, s.DeleteRange(5, 10), syscall.EIO, "deleted")
		if forgets {
			check.Must(t, mem.Forget(filepath.Join(path, markFile)))
		}
		files := mem.Fork()
		check.Must(t, s.Close())

		s = openSmall(t, files, path)
		check.Must(t, s.StoreLogs(storedEntries(5, 7, 2)))
		cut := files.CrashClone(vfs.CrashOptions{})
		check.Must(t, s.Close())
		s = openSmall(t, cut, path)
		if _, last, err := s.ends(); err != nil || last != 7 {
			t.Errorf("forgotten %t: entries up to 7 were acknowledged, and the log ends at %d, %v", forgets, last, err)
		}
		check.Must(t, s.Close())
	}
}

// An entry is valid only after the entries that it was written after, also where its place and
// index fit.
func TestEntryFollowsTheOneBefore(t *testing.T) {
	t.Parallel()
	head := segmentHead{number: 1, first: 1}
	b := head.appendTo(nil)
	sum := head.sum
	for i := uint64(1); i <= 3; i++ {
		b, sum = appendEntry(b, storedEntry(i, 1), sum, head.mark(), 0)
	}
	other := storedEntry(1, 1)
	other.Term = 2
	changed, _ := appendEntry(append([]byte(nil), b[:segmentHeader]...), other, head.sum, head.mark(), 0)
	changed = append(changed, b[len(changed):]...)
	files := vfs.NewMem()
	for name, c := range map[string]struct {
		bytes []byte
		want  int
	}{"as it was": {b, 3}, "with another first entry": {changed, 1}} {
		check.Must(t, vfs.WriteFileAtomic(files, "segment", c.bytes))
		f := check.Value(files.Open("segment")).Must(t)
		if got, err := scanSegment(f, head, 10); err != nil || len(got.offsets) != c.want {
			t.Errorf("%s: %d entries, %v; want %d", name, len(got.offsets), err, c.want)
		}
		check.Must(t, f.Close())
	}
}
