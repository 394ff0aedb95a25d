package replication_test

import (
	"strings"
	"testing"
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
	h.rejoin(last)
	eventually(t, "the trouble is over", func() bool { return last.cluster.Load().Standing.NoLeader() == nil })
}
