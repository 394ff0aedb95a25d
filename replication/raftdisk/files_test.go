package raftdisk

import (
	"syscall"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// failing returns files on which the operations that match fail. match looks at the operation
// first: the next segment is prepared by a goroutine of its own.
func failing(files vfs.FS, match func(op vfs.Op) bool) vfs.FS {
	return vfs.NewFaulty(files, func(op vfs.Op) error {
		if match(op) {
			return syscall.EIO
		}
		return nil
	})
}

// A mark that is there, or gone, because a sync failed is not durable. Who asks for it again gets
// what a power cut leaves, and so does the next process.
func TestMarkThatAFailedSyncLeft(t *testing.T) {
	t.Parallel()
	mem, o := inMemory(t, BoltDB)
	broken := false
	o.Files = failing(mem, func(op vfs.Op) bool { return op.Kind == vfs.OpSyncDir && broken })
	s := check.Value(openTestState(t, o)).Must(t)
	defer func() { check.Must(t, s.Close()) }()
	after := func(marked bool, change func() error, what string) {
		t.Helper()
		broken = true
		check.MustBe(t, change(), syscall.EIO, what)
		broken = false
		check.Must(t, change(), what)
		cut := &State{files: mem.CrashClone(vfs.CrashOptions{}), dir: s.dir}
		if pulled, err := cut.pulled(); err != nil || pulled != marked {
			t.Errorf("after %s and a power cut it is there: %t", what, !marked)
		}
	}
	after(true, func() error { return s.Mark(PulledFile) }, "the mark")
	after(false, func() error { return s.Unmark(PulledFile) }, "its end")
	after(true, func() error {
		marked, err := MarkPulled(o.Files, o.Dir)
		if err == nil && !marked {
			t.Error("there is consensus state, and it was not marked")
		}
		return err
	}, "the mark of what is not open")
}

// A process that was killed before it could sync the name of consensus state leaves one that the
// next process uses.
func TestNameOfStateThatIsNotSynced(t *testing.T) {
	t.Parallel()
	mem, o := inMemory(t, BoltDB)
	renamed := false
	o.Files = failing(mem, func(op vfs.Op) bool {
		renamed = renamed || op.Kind == vfs.OpRename && op.NewName == "/data/raft"
		return renamed && op.Kind == vfs.OpSyncDir
	})
	check.MustBe(t, check.Err(openTestState(t, o)), syscall.EIO, "made")
	o.Files = mem
	s := check.Value(openTestState(t, o)).Must(t)
	id := s.ID.Node
	check.Must(t, s.Close())
	o.Files = mem.CrashClone(vfs.CrashOptions{})
	s = check.Value(openTestState(t, o)).Must(t)
	if s.ID.Node != id {
		t.Errorf("after a power cut the node is %s, it was %s", s.ID.Node, id)
	}
	check.Must(t, s.Close())
}

// Who cannot find out whether a mark is there does not believe that it is.
func TestMarkThatCannotBeRead(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashMem()
	check.Must(t, vfs.MkdirAllSync(mem, "/data/raft"))
	fails := true
	s := &State{dir: "/data/raft", files: failing(mem, func(op vfs.Op) bool { return op.Kind == vfs.OpStat && fails })}
	check.MustBe(t, s.Mark(PulledFile), syscall.EIO, "marked")
	check.MustBe(t, check.Err(s.pulled()), syscall.EIO, "read")
	fails = false
	check.Must(t, s.Mark(PulledFile))
	check.Equal(t, check.Value(s.pulled()).Must(t), true, "marked")
}
