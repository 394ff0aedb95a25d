package replication_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// rotLog changes one bit of the Raft log in a data directory, in the middle of what the newest
// segment with entries holds.
func rotLog(t *testing.T, dir string) {
	t.Helper()
	paths := check.Value(filepath.Glob(filepath.Join(dir, "raft", "segments", "*.segment"))).Must(t)
	for i := len(paths) - 1; i >= 0; i-- {
		b := check.Value(os.ReadFile(paths[i])).Must(t)
		if !strings.HasPrefix(string(b), "ANNALSRL") {
			continue // It is prepared.
		}
		at := len(strings.TrimRight(string(b), "\x00")) / 2
		for b[at] == 0 {
			at++ // What fills up an entry to a multiple of eight means nothing.
		}
		b[at] ^= 1
		check.Must(t, os.WriteFile(paths[i], b, 0o600))
		return
	}
	t.Fatal("there is no segment")
}

// A node on its own whose Raft log is damaged says what is lost and what to do, and starts when
// that was done.
func TestLoneNodeWithARottenRaftLog(t *testing.T) {
	t.Parallel()
	for name, written := range map[string]int{"some is nowhere else": 0, "the event log has it": 99} {
		t.Run(name, func(t *testing.T) {
			y, dir := newToy(), t.TempDir()
			r := open(t, toyOptions(y, dir, raftdisk.Wal))
			for i := range int64(20) {
				write(t, r, "a", i-1, i)
			}
			killed := copyDir(t, dir)
			crashed := y.crashed(written)
			closeReplica(t, r)
			rotLog(t, killed)
			lost := "may have been acknowledged"
			if written > 0 {
				lost = "nothing is lost"
			}
			_, err := replication.Open(toyOptions(crashed, killed, raftdisk.Wal))
			for _, part := range []string{".segment: entry ", "at offset", lost, "newest backup", "annals cluster accept-loss"} {
				check.Says(t, err, part, "is missing in")
			}
			done, err := raftdisk.AcceptLoss(vfs.OS, killed, crashed.Tail(), hclog.NewNullLogger())
			if err != nil || !strings.Contains(done, lost) || !strings.Contains(done, "raft.lost-") {
				t.Fatalf("%q, %v", done, err)
			}
			again := open(t, toyOptions(crashed, killed, raftdisk.Wal))
			if _, err := again.Pipeline().Submit(t.Context(), &event.Write{Stream: "a", ExpectedVersion: event.AnyVersion}); err != nil {
				t.Error(err)
			}
			closeReplica(t, again)
		})
	}
}

// A node of a cluster whose Raft log is damaged has forgotten what it acknowledged: it has no vote
// until the others have admitted it again, and what is damaged is kept.
func TestRule14RottenRaftLogMakesANewNode(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk, func(o *replication.ClusterOptions) { o.Replica.LogStore = raftdisk.Wal })
	h.writes("s", 0, 20)
	h.alike()
	n := h.leader()
	old := n.id()
	n.stop()
	rotLog(t, n.dir)
	n.start()
	h.write("s", 20)
	h.settled()
	h.alike()
	n.holds("s", 21)
	if n.id() == old || !n.votes() {
		t.Errorf("the node votes under its old name %s", old)
	}
	if kept := n.setAside("lost"); len(kept) != 1 || !strings.Contains(n.lines.String(), kept[0]) || !strings.Contains(n.lines.String(), ".segment: entry ") {
		t.Errorf("set aside are %v", kept)
	}
}
