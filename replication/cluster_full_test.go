package replication_test

import (
	"fmt"
	"testing"

	"github.com/hashicorp/raft"
)

// A deposed leader has entries that no other node has, and its disk is full when it hears of the
// next leader. It lags while that is so. When there is room again it follows by itself, and its
// vote and its copy count: the third node is gone by then.
func TestDeposedLeaderWithAFullDisk(t *testing.T) {
	for _, disk := range []bool{inMemory, onDisk} {
		t.Run(fmt.Sprint("disk=", disk), func(t *testing.T) {
			t.Parallel()
			h := startHouse(t, 3, disk)
			h.writes("s", 0, 5)
			h.alike()
			old := h.leader()
			before := old.raft().LastIndex()
			h.isolate(old)
			for range 3 { // Each ends without an outcome.
				go func() { _ = old.write("lost", 0) }()
			}
			eventually(t, "the old leader has an entry of its own", func() bool { return old.raft().LastIndex() > before })
			eventually(t, "it does not lead any more", func() bool { return old.raft().State() != raft.Leader })
			h.writes("s", 5, 10)
			old.cluster.Load().SetFull(true)
			h.rejoin(old)
			old.says("clearing log suffix") // and is not let
			h.writes("s", 10, 15)
			if n := old.data.count("s"); n > 5 {
				t.Errorf("it took %d records while its disk was full", n)
			}
			old.cluster.Load().SetFull(false)
			h.alike()

			for _, n := range h.others(h.leader()) {
				if n != old {
					n.stop()
				}
			}
			h.writes("s", 15, 20)
			h.alike()
			old.holds("s", 20)
		})
	}
}
