package replication_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication/wire"
)

// A leader that hears of a later term takes no more entries. raft answers heartbeats outside the
// goroutine that leads. That goroutine would give an entry the later term, in which another node
// leads. Then two logs would hold different entries under the same index and term, and nothing
// would notice.
func TestRule26HeartbeatOfALaterTerm(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory)
	h.writes("s", 0, 3)
	leader := h.leader()
	port, other := h.outsider()
	t.Cleanup(func() { check.NoError(t, errors.Join(other.Close(), port.Close())) })
	r := leader.raft()
	// No node gets to this term by itself.
	later := r.CurrentTerm() + 1000
	heartbeat := raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("other"), Addr: []byte("other")},
		Term:      later,
	}
	check.Must(t, other.AppendEntries(raft.ServerID(leader.id()), raft.ServerAddress(leader.link.address()), &heartbeat, new(raft.AppendEntriesResponse)))
	check.Is(t, r.Barrier(0).Error(), raft.ErrNotLeader, "the leader of before took an entry")
	if got := r.Stats()["last_log_term"]; got == strconv.FormatUint(later, 10) {
		t.Errorf("an entry of term %s is in the log of a node that never led in it", got)
	}
	h.settled()
	h.alike()
}

// outsider is a transport that belongs to none of the nodes.
func (h *house) outsider() (*wire.Port, *wire.Raft) {
	h.t.Helper()
	cluster := h.nodes[0].data.cluster
	port, err := wire.Open(wire.Options{Bind: "127.0.0.1:0", Node: event.ID(uuid.New()), Cluster: func() event.ID { return cluster }})
	check.Must(h.t, err)
	return port, port.Raft(wire.RaftOptions{})
}
