package replication_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/wire"
)

func TestProgressOfFormingAndLosingTheLeader(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 3, 3, inMemory)
	first := h.nodes[0]
	first.start()
	eventually(t, "it looks for others", func() bool {
		doing, done, total := first.cluster.Load().Progress()
		return doing == "looking for the other nodes" && done == 0 && total == 0
	})
	if first.cluster.Load().CaughtUp() {
		t.Error("a node alone has caught up")
	}
	h.start(h.nodes[1:]...)
	h.settled()
	h.writes("s", 0, 50)
	h.alike()
	for _, n := range h.nodes {
		eventually(t, "node "+n.name+" has caught up", n.cluster.Load().CaughtUp)
		eventually(t, "node "+n.name+" is done", func() bool {
			doing, done, total := n.cluster.Load().Progress()
			return doing == "" && done == total && total == n.data.Tail().End
		})
	}
	// A node that knows no leader cannot say that it has everything.
	behind := h.others(h.leader())[0]
	h.isolate(behind)
	eventually(t, "it waits for a leader", func() bool {
		doing, _, _ := behind.cluster.Load().Progress()
		return !behind.cluster.Load().CaughtUp() && doing == "waiting for a leader"
	})
	if end, err := behind.cluster.Load().LeaderEnd(t.Context()); !errors.Is(err, event.ErrNotReady) {
		t.Errorf("without a leader its log ends at %d, %v", end, err)
	}
	h.rejoin(behind)
	eventually(t, "it has caught up", behind.cluster.Load().CaughtUp)
}

// A leader that is cut off, and still leads for its lease, says nothing of what was acknowledged:
// others may acknowledge more. Nor does a node know it that hears this leader alone.
func TestLeaderEndIsConfirmed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, 3, 3, inMemory)
	replica := h.add(inMemory, func(o *replication.ClusterOptions) { o.ReadOnly = true })
	h.start()
	h.settled()
	h.writes("s", 0, 3)
	h.alike()
	leader := h.leader()
	ends := func(n *node) error { return check.Err(n.cluster.Load().LeaderEnd(t.Context())) }
	check.NoError(t, ends(replica), "the replica asks")
	here := []*node{leader, replica}
	ids := []event.ID{leader.cluster.Load().Node(), replica.cluster.Load().Node()}
	h.cut("halves", func(from event.ID, to *node, _ wire.Kind) bool {
		return slices.Contains(ids, from) != slices.Contains(here, to)
	})
	answers := make(chan error, len(here))
	for _, n := range here {
		go func() { answers <- ends(n) }()
	}
	for range here {
		check.Fails(t, <-answers, "a leader without a majority told where its log ends")
	}
}

// A node that hears the leader, and has not applied what that one has, is not caught up.
func TestNotCaughtUpWhileEntriesAreMissing(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory, func(o *replication.ClusterOptions) { o.HangTimeout = time.Hour })
	h.writes("s", 0, 20)
	h.alike()
	late := h.others(h.leader())[0]
	c := late.cluster.Load()
	eventually(t, "it has caught up", c.CaughtUp)
	_, held := replication.HoldStores(c)
	release := sync.OnceFunc(func() { close(held) })
	defer release()
	h.writes("s", 20, 40)
	eventually(t, "it lacks data", func() bool {
		doing, done, total := c.Progress()
		return !c.CaughtUp() && doing == "catching up" && done == late.data.Tail().End && done < total
	})
	for _, n := range h.nodes { // Each node knows what was acknowledged.
		if end, err := n.cluster.Load().LeaderEnd(t.Context()); err != nil || end != h.leader().data.Tail().End {
			t.Errorf("node %s: the leader's log ends at %d, %v", n.name, end, err)
		}
	}
	release()
	eventually(t, "it has caught up again", c.CaughtUp)
	// What the leader got since it was heard the last time but one may still be on its way.
	h.alike()
	late.holds("s", 40)
}

func TestProgressOfALoneNode(t *testing.T) {
	t.Parallel()
	n := newHouse(t, 1, 1, inMemory).nodes[0]
	c := check.Value(replication.OpenCluster(n.options())).Must(t)
	n.cluster.Store(c)
	n.house.write("s", 0)
	end := n.data.Tail().End
	if doing, done, total := c.Progress(); doing != "" || done != end || total != end || !c.CaughtUp() {
		t.Errorf("%q, %d of %d, caught up %t; expected all of %d", doing, done, total, c.CaughtUp(), end)
	}
}
