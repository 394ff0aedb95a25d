package replication_test

import (
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/replication/wire"
)

// short keeps the Raft logs so short that a node which was away needs a snapshot, also a node that
// only raft does not reach: compaction does not wait for it.
func short(o *replication.ClusterOptions) {
	o.Replica.SnapshotEntries, o.Replica.TrailingEntries, o.Replica.HoldTime = 20, 5, -1
}

// lag stops a node's raft from hearing the others, and has them write until their Raft logs begin
// after its end. Its other services keep running.
func (h *house) lag(n *node, stream string, from int64) (records int64) {
	h.t.Helper()
	id := n.cluster.Load().Node()
	h.cut("lag", func(from event.ID, to *node, kind wire.Kind) bool {
		return kind != wire.KindService && (to == n || from == id)
	})
	return h.outrun(n, n.raft().LastIndex(), stream, from)
}

// outrun writes until the Raft logs of all nodes except one, which is away, begin after an index.
// Then it changes the leader: the old one may still have older entries in flight.
func (h *house) outrun(away *node, index uint64, stream string, from int64) int64 {
	h.t.Helper()
	for records := from; ; {
		h.writes(stream, records, records+10)
		records += 10
		kept := slices.ContainsFunc(h.others(away), func(n *node) bool {
			first, err := replication.FirstIndex(n.cluster.Load())
			return err != nil || first <= index+1
		})
		if !kept {
			h.resign(h.t.Context())
			return records
		}
		if records > from+10_000 {
			h.t.Fatal("the Raft log is never cut")
		}
	}
}

// While data is fetched for a snapshot, raft keeps running: the node hears its leader, votes, and
// takes part in electing another one. If accepting a snapshot waited for the network, two nodes of
// three would be out, the one that is down and this one.
func TestRule11RestoreNeverWaits(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory, short)
	h.writes("s", 0, 10)
	h.alike()
	old := h.leader()
	behind := h.others(old)[0]
	other := slices.DeleteFunc(h.others(old), func(n *node) bool { return n == behind })[0]
	id := behind.cluster.Load().Node()
	records := h.lag(behind, "s", 10)
	before := behind.data.Tail()

	// Now the snapshot can come, but nothing can be fetched.
	h.cut("data", func(from event.ID, to *node, kind wire.Kind) bool {
		return kind == wire.KindService && (to == behind || from == id)
	})
	h.lift("lag")
	behind.says("data could not be fetched")
	for range 5 {
		contact := behind.raft().LastContact()
		eventually(t, "the node hears its leader", func() bool { return behind.raft().LastContact().After(contact) })
	}
	check.Equal(t, behind.data.Tail(), before, "data came through the cut")
	// Only with the vote of the node that lacks data can there be another leader.
	if h.leader() == other {
		old, other = other, old
	}
	h.isolate(old)
	eventually(t, "the node that lacks data votes", func() bool { return other.raft().State() == raft.Leader })

	h.lift("data")
	h.rejoin(old)
	h.alike()
	behind.holds("s", records)
	if pulled, _ := behind.data.pulls(); pulled == 0 {
		t.Error("nothing was fetched")
	}
	h.write("s", records)
	h.alike()
}

// A node that was away for longer than the Raft log reaches back fetches what it
// lacks, frames and rewritten chunk files alike, and keeps its name and its vote.
func TestCatchingUp(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk, short)
	h.writes("s", 0, 10)
	h.alike()
	n := h.others(h.leader())[0]
	id, last := n.id(), n.raft().LastIndex()
	n.stop()
	n.data.mu.Lock()
	had := len(n.data.frames)
	n.data.mu.Unlock()
	records := h.outrun(n, last, "s", 10)
	for _, other := range h.running() {
		other.data.mu.Lock()
		other.data.packed = (had + len(other.data.frames)) / 2 // Half of what it lacks.
		other.data.mu.Unlock()
	}
	n.start()
	h.alike()
	n.holds("s", records)
	h.settled()
	check.Equal(t, n.id(), id, "node ... now")
	n.data.tempMu.Lock()
	defer n.data.tempMu.Unlock()
	if n.data.chunks == 0 || n.data.pulled == 0 {
		t.Errorf("%d files and %d frames were fetched", n.data.chunks, n.data.pulled)
	}
}

// The transfer of a chunk file breaks, and the rest comes as frames of a node whose chunk
// was not rewritten: what there is of the file goes.
func TestCatchingUpWithoutAFileFetchedInPart(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk, short)
	h.writes("s", 0, 1000)
	h.alike()
	old := slices.Clone(h.nodes)
	pack := func(frames int) {
		for _, n := range old {
			n.data.mu.Lock()
			n.data.packed = frames
			n.data.mu.Unlock()
		}
	}
	pack(500)
	var torn atomic.Bool
	for _, n := range old {
		n.data.mu.Lock()
		n.data.torn = func(offset int64) error {
			if offset < 16<<10 {
				return nil
			}
			torn.Store(true)
			pack(0)
			return io.ErrUnexpectedEOF
		}
		n.data.mu.Unlock()
	}
	late := h.add(onDisk, short)
	h.start(late)
	end := h.leader().data.Tail()
	eventually(t, "the node has everything", func() bool { return late.data.Tail() == end })
	eventually(t, "what was fetched of a file goes", func() bool {
		late.data.tempMu.Lock()
		defer late.data.tempMu.Unlock()
		return len(late.data.temps) == 0
	})
	if !torn.Load() {
		t.Error("no transfer broke")
	}
}

// A node whose event log lacks data that its snapshots cover fetches them before raft starts:
// otherwise it would acknowledge and vote for data that it does not have.
func TestRule12DataIsFetchedBeforeRaftStarts(t *testing.T) {
	t.Parallel()
	for _, kind := range []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal} {
		t.Run(string(kind), func(t *testing.T) {
			h := startHouse(t, 3, onDisk, short, func(o *replication.ClusterOptions) { o.Replica.LogStore = kind })
			records := h.outrun(nil, 40, "s", 0)
			h.alike()
			n := h.others(h.leader())[0]
			id := n.id()
			n.stop()
			n.data.shorten(8)
			h.cut("data", func(from event.ID, to *node, kind wire.Kind) bool {
				return kind == wire.KindService && from.String() == id
			})
			n.start()
			n.says("lacks data that its snapshot refers to")
			if n.raft() != nil || n.state() != event.StateCatchingUp {
				t.Errorf("raft runs, the node is %s", n.state())
			}
			h.write("s", records)
			h.lift("data")
			h.alike()
			n.holds("s", records+1)
			h.settled()
			check.Equal(t, n.id(), id, "node ... now")
		})
	}
}

// forgedEntries are more than others write while they outrun a node, however late
// their Raft logs are cut.
const forgedEntries = 20_000

// Entries of a deposed leader, beyond the snapshot that replaces them, are dropped and raft begins
// on an empty log: raft itself would continue after the last of them, and the leader and the node
// would refuse each other for ever.
func TestRule13ConflictingEntriesBeyondASnapshot(t *testing.T) {
	t.Parallel()
	for _, kind := range []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal} {
		t.Run(string(kind), func(t *testing.T) {
			h := startHouse(t, 3, onDisk, short)
			h.writes("s", 0, 10)
			h.alike()
			n := h.others(h.leader())[0]
			id := n.id()
			n.stop()
			last, err := replication.ForgeEntries(n.dir, raftdisk.BoltDB, forgedEntries)
			check.Must(t, err)
			n.setup = append(n.setup, func(o *replication.ClusterOptions) { o.Replica.LogStore = kind })
			h.resign(t.Context()) // in another term the forged entries do not count
			records := h.outrun(n, last-forgedEntries, "s", 10)
			n.start()
			n.says("raft is restarted")
			h.alike()
			n.holds("s", records)
			h.settled()
			h.write("s", records)
			h.alike()
			check.Equal(t, n.id(), id, "node ... now")
			n.stop()
			n.start()
			h.settled()
			h.write("s", records+1)
			h.alike()
		})
	}
}

// The same in memory, where nothing of raft's can be opened again.
func TestRule13InMemory(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory, short)
	h.writes("s", 0, 10)
	h.alike()
	n := h.others(h.leader())[0]
	records := h.lag(n, "s", 10)
	last := check.Value(replication.ForgeRunning(n.cluster.Load(), forgedEntries)).Must(t)
	term := h.leader().raft().CurrentTerm()
	h.resign(t.Context())
	records = h.outrun(n, h.leader().raft().LastIndex(), "s", records)
	if newest := h.leader().raft().LastIndex(); newest > last || h.leader().raft().CurrentTerm() == term {
		t.Fatalf("the leader is at %d already, the forged entries end at %d", newest, last)
	}
	h.lift("lag")
	h.alike()
	n.holds("s", records)
	h.settled()
	h.write("s", records)
	h.alike()
}

// A node catches up with a cluster that is being written to all the while.
func TestCatchingUpWhileWriting(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory, short)
	h.writes("s", 0, 5)
	h.alike()
	n := h.others(h.leader())[0]
	records := h.lag(n, "s", 5)
	h.lift("lag")
	late := time.Now().Add(patience)
	for caught := false; !caught; records++ {
		h.write("s", records)
		caught = n.data.Tail().End+200 > h.leader().data.Tail().End
		if time.Now().After(late) {
			t.Fatal("the node never catches up with a cluster that is written to")
		}
	}
	h.alike()
	n.holds("s", records)
	for _, n := range h.nodes {
		if strings.Contains(n.lines.String(), "different histories") {
			t.Errorf("node %s raised the alarm", n.name)
		}
	}
}

// kinds are both Raft logs.
var kinds = []raftdisk.LogStore{raftdisk.BoltDB, raftdisk.Wal}

// Entries that a node stored after a received snapshot count for a majority. They are still there,
// and the node has the same id, when it is killed before it wrote a snapshot itself.
func TestRule12RestartAfterInstall(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			h := startHouse(t, 3, onDisk, short, func(o *replication.ClusterOptions) { o.Replica.LogStore = kind })
			h.writes("s", 0, 10)
			h.alike()
			n := h.others(h.leader())[0]
			id, last := n.id(), n.raft().LastIndex()
			n.stop()
			records := h.outrun(n, last, "s", 10)
			n.start()
			n.says("Installed remote snapshot") // Data alone may come before it.
			h.settled()
			h.writes("s", records, records+5)
			newest := h.leader().raft().LastIndex()
			eventually(t, "the entries after the snapshot are stored", func() bool { return n.raft().LastIndex() >= newest })
			h.alike()
			if first, err := replication.FirstIndex(n.cluster.Load()); err != nil || first <= last {
				t.Errorf("the Raft log begins at %d, %v: the entries that a snapshot replaced, up to %d, are still there", first, err, last)
			}
			n.kill(n.data.toy)
			n.start()
			h.settled()
			h.alike()
			n.holds("s", records+5)
			check.Equal(t, n.id(), id, "it was node")
		})
	}
}

// The power fails for two nodes that caught up by a snapshot and then were the majority that
// acknowledged: their Raft logs have all that no event log has.
func TestRule12PowerCutAfterInstall(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			// One writes snapshots all the time, the others none for the first hundreds of entries
			// after they caught up.
			with := func(entries uint64, priority int) func(*replication.ClusterOptions) {
				return func(o *replication.ClusterOptions) {
					o.Replica.LogStore, o.Replica.SnapshotEntries, o.Replica.TrailingEntries, o.Replica.HoldTime = kind, entries, 5, -1
					o.Priority = priority
				}
			}
			h := newHouse(t, 3, 0, onDisk)
			h.add(onDisk, with(20, 9))
			h.add(onDisk, with(5000, 0))
			h.add(onDisk, with(5000, 0))
			h.start()
			h.settled()
			a, two := h.nodes[0], h.nodes[1:]
			h.writes("s", 0, 10)
			records := int64(10)
			for _, n := range two {
				h.alike()
				last := n.raft().LastIndex()
				n.stop()
				for first := uint64(0); first <= last+1; records++ {
					h.write("s", records)
					if h.leader() != a {
						h.resign(t.Context())
					}
					var err error
					if first, err = replication.FirstIndex(a.cluster.Load()); err != nil {
						t.Fatal(err)
					}
				}
				n.start()
				h.settled()
			}
			h.alike()
			a.stop()
			for range 5 {
				h.write("s", records)
				records++
			}
			h.alike()
			for _, n := range two {
				n.kill(n.data.crashed(0))
			}
			h.start(two...)
			h.leader()
			h.alike()
			for _, n := range two {
				n.holds("s", records)
			}
			h.start(a)
		})
	}
}

// kill ends a node without a last snapshot, and leaves it a given event log.
func (n *node) kill(log *toy) {
	n.house.t.Helper()
	replication.Abandon(n.cluster.Load().Replica())
	n.stop()
	data := newToyData()
	data.toy, data.cluster, data.directory = log, n.data.cluster, n.data.directory
	n.data = data
}
