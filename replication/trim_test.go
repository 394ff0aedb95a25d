package replication

import (
	"testing"

	"github.com/hashicorp/raft"
)

// A message that begins before the newest snapshot is compared with the snapshot: the entries
// before it may be gone.
func TestTrimAppend(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                 string
		prev, first, last    uint64 // of the message
		commit, covered      uint64
		wantPrev, wantFirst  uint64
		wantLast, wantCommit uint64
	}{
		{"after the snapshot", 10, 11, 13, 12, 9, 10, 11, 13, 12},
		{"right after it", 10, 11, 13, 12, 10, 10, 11, 13, 12},
		{"straddles it", 10, 11, 15, 12, 13, 13, 14, 15, 12},
		{"straddles it, all of it committed", 10, 11, 15, 20, 13, 13, 14, 15, 15},
		{"before it", 10, 11, 13, 20, 14, 14, 0, 0, 14},
		{"the very first", 0, 1, 3, 3, 2, 2, 3, 3, 3},
		{"without entries", 10, 0, 0, 20, 12, 12, 0, 0, 12},
		{"heartbeat", 0, 0, 0, 0, 12, 0, 0, 0, 0},
		{"no snapshot", 0, 1, 3, 3, 0, 0, 1, 3, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &raft.AppendEntriesRequest{PrevLogEntry: c.prev, PrevLogTerm: 3, LeaderCommitIndex: c.commit}
			for i := c.first; i <= c.last && i > 0; i++ {
				a.Entries = append(a.Entries, &raft.Log{Index: i, Term: 3})
			}
			trimAppend(a, func() (uint64, uint64) { return c.covered, 4 })
			var first, last uint64
			if n := len(a.Entries); n > 0 {
				first, last = a.Entries[0].Index, a.Entries[n-1].Index
			}
			term := uint64(3)
			if c.wantPrev != c.prev {
				term = 4
			}
			if a.PrevLogEntry != c.wantPrev || first != c.wantFirst || last != c.wantLast || a.LeaderCommitIndex != c.wantCommit || a.PrevLogTerm != term {
				t.Errorf("prev %d of term %d, entries %d to %d, commit %d", a.PrevLogEntry, a.PrevLogTerm, first, last, a.LeaderCommitIndex)
			}
		})
	}
}
