package raftdisk

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
)

// isBolt reports whether bbolt opens a file, past the file system.
func isBolt(path string) bool { return strings.HasSuffix(path, ".db") }

// moveToMemory copies a folder into memory, but for what bbolt opens.
func moveToMemory(t *testing.T, to vfs.FS, dir string) {
	t.Helper()
	check.Must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || isBolt(path) {
			return err
		}
		if d.IsDir() {
			return vfs.MkdirAllSync(to, path)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := to.Create(path)
		if err != nil {
			return err
		}
		check.Must(t, f.Truncate(int64(len(data)))) // What is zero in a segment stays a hole.
		_, err = f.WriteAt([]byte(strings.TrimRight(string(data), "\x00")), 0)
		check.Must(t, err)
		check.Must(t, f.Sync())
		check.Must(t, f.Close())
		return to.SyncDir(filepath.Dir(path))
	}))
}

// boltFiles reads what bbolt has on disk: each transaction is there when it returns.
func boltFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	check.Must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && isBolt(path) {
			found[path], err = os.ReadFile(path)
		}
		return err
	}))
	return found
}

// acknowledged is what was so at a power cut, with what bbolt had on disk by then.
type acknowledged struct {
	bolt         map[string][]byte
	last, covers uint64 // the last entry, the newest snapshot
}

// Whenever the power fails, the acknowledged entries and snapshots are there at the next start, and
// fit together.
func TestPowerCutBeforeAnyOperation(t *testing.T) {
	t.Parallel()
	o := testOptions(t.TempDir(), event.Tail{})
	o.LogStore = Wal
	makeState(t, o)
	mem := vfs.NewCrashMem()
	moveToMemory(t, mem, o.Dir)

	var last, covers uint64
	disk := powercut.New(powercut.Options[acknowledged]{Mem: mem, More: 1, Note: func() acknowledged {
		return acknowledged{boltFiles(t, o.Dir), last, covers}
	}})
	o.Files = disk
	s := check.Value(openTestState(t, o)).Must(t)
	last = 1 // that names this node as the only voter
	for index := uint64(2); index <= 13; index++ {
		check.Must(t, s.Logs.StoreLog(&raft.Log{Index: index, Term: 1, Data: fmt.Appendf(nil, "entry %d", index)}))
		last = index
		if index%4 == 0 {
			check.Must(t, s.Snapshots.publish(snapshotOf(t, s.ID, index, 1, event.Tail{})))
			covers = index
			check.Must(t, s.Logs.DeleteRange(1, index-2))
		}
	}
	check.Must(t, s.Mark(PulledFile))
	check.Must(t, s.Unmark(PulledFile))
	check.Must(t, s.Close())

	cuts := disk.Cuts()
	for _, cut := range cuts {
		for path, data := range cut.Note.bolt {
			check.Must(t, os.WriteFile(path, data, 0o600))
		}
		o.Files = cut.FS
		s := check.Value(openTestState(t, o)).Must(t, cut.What)
		check.NoError(t, check.Err(s.CheckStart(o.Log)), cut.What)
		newest, _ := s.Snapshots.Newest()
		if newest < cut.Note.covers {
			t.Errorf("%s: the newest snapshot ends at %d, one that ends at %d was acknowledged", cut.What, newest, cut.Note.covers)
		}
		for index := max(newest+1, 2); index <= cut.Note.last; index++ {
			var entry raft.Log
			if err := s.Logs.GetLog(index, &entry); err != nil || string(entry.Data) != fmt.Sprintf("entry %d", index) {
				t.Errorf("%s: entry %d was acknowledged and is %q, %v", cut.What, index, entry.Data, err)
			}
		}
		check.Must(t, s.Close())
	}
	if len(cuts) < 80 {
		t.Errorf("the power was cut %d times only", len(cuts)/2)
	}
}
