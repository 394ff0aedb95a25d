package replication_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/stats"
)

// A leader whose disk hangs stops leading: another node takes over and acknowledges writes. The
// hanging node names the operation, and still answers requests; when its disk works again it is a
// follower.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk, func(o *replication.ClusterOptions) { o.Replica.Stats = new(stats.Registry) })
	h.writes("s", 0, 10)
	h.alike()
	old := h.leader()
	entered, release := replication.HoldStores(old.cluster.Load())
	inFlight := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	go func() {
		_, err := old.cluster.Load().Writes.Submit(ctx, &event.Write{Stream: "t", ExpectedVersion: event.AnyVersion})
		inFlight <- err
	}()
	<-entered
	old.says("the disk hangs")
	next := h.leader()
	eventually(t, "another node leads", func() bool { next = h.leader(); return next != old })
	h.writes("s", 10, 20)

	c := old.cluster.Load()
	check.Says(t, c.Hangs(), "store entries "+old.dir, "the old leader hangs in")
	if state := old.state(); state != event.StateUnknown || c.Ready() {
		t.Errorf("the old leader is %s, ready %v", state, c.Ready())
	}
	if err := <-inFlight; !errors.Is(err, event.ErrWriteTimeout) && !errors.Is(err, event.ErrOutcomeUnknown) {
		t.Errorf("the write in flight: %v", err)
	}
	eventually(t, "the old leader sends clients to the new one", func() bool {
		var elsewhere *event.NotLeader
		_, err := c.Writes.Submit(t.Context(), &event.Write{Stream: "s", ExpectedVersion: event.AnyVersion})
		return errors.As(err, &elsewhere) && elsewhere.Address != "" && errors.As(c.Writes.Confirm(t.Context()), &elsewhere)
	})
	if f := old.metrics(); f["annals_disk_hung"] != 1 || f["annals_disk_hangs_total"] < 1 {
		t.Errorf("annals_disk_hung %v, annals_disk_hangs_total %v", f["annals_disk_hung"], f["annals_disk_hangs_total"])
	}

	close(release)
	eventually(t, "the old leader follows", func() bool {
		return c.Hangs() == nil && old.raft().State() == raft.Follower && old.state() == event.StateFollower
	})
	old.says("the disk works again")
	h.writes("s", 20, 25)
	h.alike()
	old.holds("s", 25)
	if got := old.data.count("t"); got > 1 {
		t.Errorf("the write in flight was done %d times", got)
	}
}

// The cluster works without a follower whose disk hangs. That follower does not vote until its disk
// works again.
func TestFollowerWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk)
	h.writes("s", 0, 3)
	leader := h.leader()
	slow := h.others(leader)[0]
	entered, release := replication.HoldStores(slow.cluster.Load())
	h.writes("s", 3, 6)
	<-entered
	slow.says("the disk hangs")
	h.writes("s", 6, 9)
	eventually(t, "it finds the leader by what the others say", func() bool {
		var elsewhere *event.NotLeader
		_, err := slow.cluster.Load().Writes.Submit(t.Context(), &event.Write{Stream: "s", ExpectedVersion: event.AnyVersion})
		return errors.As(err, &elsewhere) && elsewhere.Address != ""
	})
	close(release)
	h.alike()
	slow.holds("s", 9)
}

// Every disk operation is watched, whatever waits for it; a slow operation that ends in time is not
// a hang.
func TestHungOperations(t *testing.T) {
	t.Parallel()
	var watch hang.Watch
	h := newHouse(t, 1, 1, inMemory, func(o *replication.ClusterOptions) {
		o.Replica.Stats, o.Replica.Disk, o.HangTimeout = new(stats.Registry), &watch, 20*time.Millisecond
	})
	n := h.nodes[0]
	c := check.Value(replication.OpenCluster(n.options())).Must(t)
	n.cluster.Store(c)
	h.leader()
	at := watch.Begin(&hang.Op{Doing: "write", File: "a chunk"})
	n.says("a chunk")
	// No node can take over from a node on its own: its clients wait, each as long as it likes.
	check.NoError(t, n.write("s", 0))
	if c.Ready() || n.state() != event.StateLeader {
		t.Errorf("ready %v, %s", c.Ready(), n.state())
	}
	watch.End(at)
	eventually(t, "it is ready again", c.Ready)
	if got := n.metrics()["annals_disk_hangs_total"]; got < 1 {
		t.Errorf("annals_disk_hangs_total %v", got)
	}
}

// Close returns although the disk of the leader hangs.
func TestCloseOfALeaderWhoseDiskHangs(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk, func(o *replication.ClusterOptions) {
		o.Replica.DrainTimeout, o.Replica.CloseTimeout = 50*time.Millisecond, 200*time.Millisecond
	})
	h.writes("s", 0, 3)
	for _, noticed := range []bool{true, false} {
		old := h.leader()
		c, r := old.cluster.Load(), old.cluster.Load().Replica()
		entered, release := replication.HoldStores(c)
		go func() { _ = old.write("s", 3) }()
		<-entered
		if noticed {
			old.says("the disk hangs")
		}
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		select {
		case err := <-closed:
			check.Fails(t, err, "Close does not tell that something hangs")
		case <-time.After(patience):
			t.Fatal("Close does not return")
		}
		old.cluster.Store(nil)
		old.link.lead("")
		close(release)
		eventually(t, "it ends after all", func() bool { return r.Close() == nil })
		old.start()
		h.settled()
	}
	h.write("s", 3)
	h.alike()
	for _, n := range h.nodes { // A slow disk may need longer than the timeout of this test.
		c := n.cluster.Swap(nil)
		r := c.Replica()
		if c.Close() != nil {
			eventually(t, "it ends after all", func() bool { return r.Close() == nil })
		}
	}
}
