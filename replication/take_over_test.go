package replication_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
)

// Two of three nodes are lost for good, and the remaining one had applied less than its Raft log
// has. It takes all of that over, continues alone, and new nodes join it.
func TestTakeOverWhenAMajorityIsLost(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 30)
	h.alike()
	a := h.nodes[0]
	// A snapshot at its end would say that all of the event log is durable.
	replication.Abandon(a.cluster.Load().Replica())
	for _, n := range h.nodes {
		n.stop()
	}
	whole := a.data.Tail()
	a.data.shorten(10)
	before := a.data.Tail()
	for _, n := range h.nodes[1:] {
		n.wipe()
	}
	taken := check.Value(replication.TakeOver(a.options())).Must(t)
	if taken.Before.End != before.End || taken.After.End != whole.End || taken.After.Chain != whole.Chain || taken.Entries == 0 || len(taken.Voters) != 3 || taken.Index < whole.Index {
		t.Errorf("taken over: %+v, had %+v of %+v", taken, before, whole)
	}
	if aside, err := filepath.Glob(filepath.Join(a.dir, "raft.taken-over-*")); err != nil || len(aside) != 1 || aside[0] != taken.Aside {
		t.Errorf("set aside: %v, %v, told %s", aside, err, taken.Aside)
	}
	h.start(a)
	eventually(t, "it leads", func() bool { return a.raft() != nil && a.raft().State() == raft.Leader })
	if servers := a.servers(); len(servers) != 1 || string(servers[0].ID) != a.id() {
		t.Errorf("servers %v", servers)
	}
	h.start(h.nodes[1:]...)
	h.settled()
	h.writes("s", 30, 33)
	h.alike()
}

// A crash between the two halves leaves a node without consensus state, which begins alone when the
// command is repeated. A node without data cannot begin.
func TestTakeOverAgain(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 5)
	h.alike()
	a := h.nodes[0]
	for _, n := range h.nodes {
		n.stop()
	}
	first, err := replication.TakeOver(a.options())
	if err != nil || first.Entries != 0 || first.Aside == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	// As if the machine had stopped before the new one was made.
	check.Must(t, os.RemoveAll(filepath.Join(a.dir, "raft")))
	second := check.Value(replication.TakeOver(a.options())).Must(t)
	check.MustEqual(t, second.After, first.After, first, "then", second)
	b := h.nodes[1]
	b.wipe()
	check.Fails(t, check.Err(replication.TakeOver(b.options())), "a node without data took over")
	if tail := a.data.Tail(); tail == (event.Tail{}) {
		t.Error("the data are gone")
	}
}
