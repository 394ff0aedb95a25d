package raftdisk

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// A deposed leader has entries of term 1 that no quorum had. It fetches data of term 2, and the
// power fails when its event log ends among those entries: they are of another term than the last
// frame, and nothing is lost. The mark stays until raft has replaced them.
func TestPulledOverEntriesOfADeposedLeader(t *testing.T) {
	t.Parallel()
	mem, o := inMemory(t, Wal)
	s := check.Value(openTestState(t, o)).Must(t)
	check.Must(t, s.Logs.StoreLogs(entries(2, 6)))
	check.Must(t, s.Stable.SetUint64(keyCurrentTerm, 2))
	check.Must(t, s.Mark(PulledFile))
	check.Must(t, s.Close())

	o.Files = mem.CrashClone(vfs.CrashOptions{})
	o.Log = &fixedLog{tail: event.Tail{End: 100, Index: 4, Term: 2}}
	for range 2 {
		s = check.Value(openTestState(t, o)).Must(t)
		check.NoError(t, check.Err(s.CheckStart(o.Log)))
		check.Must(t, s.SettlePulled(o.Log.Tail()))
		check.Equal(t, check.Value(s.pulled()).Must(t), true, "marked")
		check.Must(t, s.Close())
	}
}

// An entry that cannot be read at a start, in or after the newest snapshot, stops the node: it is
// not taken for consensus state that is lost, which would be set aside.
func TestReadThatFailsIsNoLoss(t *testing.T) {
	t.Parallel()
	for _, covered := range []uint64{0, 3} {
		t.Run(fmt.Sprintf("snapshot at %d", covered), func(t *testing.T) {
			mem, o := inMemory(t, Wal)
			broken := false
			o.Files = failing(mem, func(op vfs.Op) bool { return op.Kind == vfs.OpRead && broken })
			s := check.Value(openTestState(t, o)).Must(t)
			check.Must(t, s.Logs.StoreLogs(entries(2, 4)))
			if covered > 0 {
				check.Must(t, s.Snapshots.publish(snapshotOf(t, s.ID, covered, 1, event.Tail{})))
			}
			check.Must(t, s.Close())
			s = check.Value(openTestState(t, o)).Must(t)
			broken = true
			_, err := s.CheckStart(o.Log)
			check.Is(t, err, syscall.EIO, "error")
			if errors.Is(err, ErrStateLost) {
				t.Errorf("a read that failed counts as a loss: %v", err)
			}
			broken = false
			check.Must(t, s.Close())
		})
	}
}
