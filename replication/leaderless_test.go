package replication_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/wire"
)

// TestNoLeaderLine: a node that is left alone says in one plain line that there is no leader and
// which nodes are missing, and nothing of its elections. Who leads is said on every node.
func TestNoLeaderLine(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	old := h.leader()
	for _, n := range h.nodes {
		n.says("the leader is " + old.link.address() + ": term=")
	}
	last := h.others(old)[0]
	eventually(t, "it knows who votes", func() bool {
		voters := 0
		for _, s := range last.servers() {
			if s.Suffrage == raft.Voter {
				voters++
			}
		}
		return voters == len(h.nodes)
	})
	begun := len(last.lines.String())
	h.isolate(last)
	const line = "[ERROR] cluster: this cluster has no leader: 1 of 3 voting nodes can be reached, 2 are needed; writes are refused: missing="
	last.says(line)
	said := last.lines.String()[begun:]
	_, missing, _ := strings.Cut(said, line)
	for _, n := range h.nodes {
		if strings.Contains(missing, n.link.address()) != (n != last) {
			t.Errorf("missing are %s, and %s is at %s", missing, n.name, n.link.address())
		}
	}
	if c := last.cluster.Load(); c.Standing.NoLeader() == nil || c.Ready() || !c.Standing.Serves() {
		t.Errorf("no leader: %v, ready %t, serves %t", c.Standing.NoLeader(), c.Ready(), c.Standing.Serves())
	}
	for _, noise := range []string{"Election timeout", "candidate state", "pre-vote"} {
		if strings.Contains(said, noise) {
			t.Errorf("the log tells of elections:\n%s", said)
		}
	}
	if strings.Contains(old.lines.String(), "has no leader") {
		t.Errorf("the majority misses a leader:\n%s", old.lines.String())
	}
	// Its questions are answered again, and nothing else reaches it.
	id := last.cluster.Load().Node()
	h.cut("raft", func(from event.ID, to *node, kind wire.Kind) bool {
		return kind == wire.KindRaft && (from == id || to == last)
	})
	h.rejoin(last)
	last.says("[ERROR] cluster: this node gets no more writes: the leader ")
	h.lift("raft")
	eventually(t, "the trouble is over", func() bool { return last.cluster.Load().Standing.NoLeader() == nil })
}
