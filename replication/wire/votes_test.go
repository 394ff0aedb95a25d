package wire

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
)

// A vote is given to a node and not to an address: two nodes that have the same address, one after
// the other, do not both get it.
func TestVoteGoesToAnID(t *testing.T) {
	c := newCluster(t, 3, 0, setup{})
	c.leader()
	a, b, voter := c.peers[0], c.peers[1], c.peers[2]
	from := open(t, Options{Node: node(9), Cluster: member(clusterA)}).Raft(RaftOptions{})
	t.Cleanup(func() { check.NoError(t, from.Close()) })
	at := raft.ServerAddress(voter.port.Advertised())
	term := voter.raft.CurrentTerm() + 100
	ask := func(id raft.ServerID, address string, index, logTerm uint64) bool {
		t.Helper()
		q := raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(address)},
			Term:      term, LastLogIndex: index, LastLogTerm: logTerm, LeadershipTransfer: true,
		}
		var answer raft.RequestVoteResponse
		check.Must(t, from.RequestVote(voter.id, at, &q, &answer))
		return answer.Granted
	}
	const place = "10.0.0.1:1112"
	if !ask(a.id, place, 1000, term-1) {
		t.Fatal("a candidate that has everything gets no vote")
	}
	if ask(b.id, place, 1, 1) {
		t.Error("a second node at the same address gets the same vote, with next to nothing in its log")
	}
	if !ask(a.id, "10.0.0.2:1112", 1000, term-1) {
		t.Error("the node that has the vote does not get it again from its next address")
	}
	if vote, err := voter.logs.Get([]byte("LastVoteCand")); err != nil || string(vote) != string(a.id) {
		t.Errorf("the vote is stored for %q, %v", vote, err)
	}
}

// Every message that raft reads an address in names its sender there by its id.
func TestSendersAreKnownByID(t *testing.T) {
	here, there := open(t, Options{Node: node(1), Cluster: member(clusterA)}), open(t, Options{Node: node(2), Cluster: member(clusterA)})
	from, to := here.Raft(RaftOptions{}), there.Raft(RaftOptions{})
	beside := make(chan raft.RPC, 1)
	to.SetHeartbeatHandler(func(rpc raft.RPC) { beside <- rpc; rpc.Respond(&raft.AppendEntriesResponse{}, nil) })
	to.opts.InTerm = func(term uint64, do func()) bool {
		if term == 1 {
			do()
		}
		return term == 1
	}
	id, at := raft.ServerID(node(2).String()), raft.ServerAddress(there.Advertised())
	head := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("me"), Addr: []byte("10.0.0.1:1112")}
	for _, c := range []struct {
		name string
		send func() error
	}{
		{"heartbeat", func() error {
			return from.AppendEntries(id, at, &raft.AppendEntriesRequest{RPCHeader: head, Term: 1}, &raft.AppendEntriesResponse{})
		}},
		{"heartbeat of another term", func() error {
			return from.AppendEntries(id, at, &raft.AppendEntriesRequest{RPCHeader: head, Term: 2}, &raft.AppendEntriesResponse{})
		}},
		{"entries", func() error {
			return from.AppendEntries(id, at, &raft.AppendEntriesRequest{RPCHeader: head, Term: 1, PrevLogEntry: 1, PrevLogTerm: 1}, &raft.AppendEntriesResponse{})
		}},
		{"vote", func() error {
			return from.RequestVote(id, at, &raft.RequestVoteRequest{RPCHeader: head}, &raft.RequestVoteResponse{})
		}},
		{"pre-vote", func() error {
			return from.RequestPreVote(id, at, &raft.RequestPreVoteRequest{RPCHeader: head}, &raft.RequestPreVoteResponse{})
		}},
		{"snapshot", func() error {
			return from.InstallSnapshot(id, at, &raft.InstallSnapshotRequest{RPCHeader: head, Size: 1}, &raft.InstallSnapshotResponse{}, bytes.NewReader([]byte("x")))
		}},
	} {
		sent := make(chan error, 1)
		go func() { sent <- c.send() }()
		var rpc raft.RPC
		select {
		case rpc = <-beside:
		case rpc = <-to.Consumer():
			switch rpc.Command.(type) {
			case *raft.AppendEntriesRequest:
				rpc.Respond(&raft.AppendEntriesResponse{}, nil)
			case *raft.RequestVoteRequest:
				rpc.Respond(&raft.RequestVoteResponse{}, nil)
			case *raft.RequestPreVoteRequest:
				rpc.Respond(&raft.RequestPreVoteResponse{}, nil)
			default:
				rpc.Respond(&raft.InstallSnapshotResponse{}, nil)
			}
		}
		if got := rpc.Command.(raft.WithRPCHeader).GetRPCHeader(); string(got.Addr) != "me" {
			t.Errorf("%s: raft reads the address %q", c.name, got.Addr)
		}
		check.NoError(t, <-sent, c.name)
	}
}

// A candidate that may not be one gets the reason, and raft does not hear of it.
func TestCandidateThatMayNotBeOne(t *testing.T) {
	here, there := open(t, Options{Node: node(1), Cluster: member(clusterA)}), open(t, Options{Node: node(2), Cluster: member(clusterA)})
	from := here.Raft(RaftOptions{})
	to := there.Raft(RaftOptions{Candidate: func(node, address string) error {
		return fmt.Errorf("%s may not stand at %s", node, address)
	}})
	id, at := raft.ServerID(node(2).String()), raft.ServerAddress(there.Advertised())
	head := raft.RPCHeader{ProtocolVersion: 3, ID: []byte("me"), Addr: []byte("10.0.0.1:1112")}
	ask := map[string]func() error{
		"vote": func() error {
			return from.RequestVote(id, at, &raft.RequestVoteRequest{RPCHeader: head}, &raft.RequestVoteResponse{})
		},
		"pre-vote": func() error {
			return from.RequestPreVote(id, at, &raft.RequestPreVoteRequest{RPCHeader: head}, &raft.RequestPreVoteResponse{})
		},
	}
	for name, send := range ask {
		sent := make(chan error, 1)
		go func() { sent <- send() }()
		select {
		case err := <-sent:
			check.Says(t, err, "me may not stand at 10.0.0.1:1112", name)
		case <-to.Consumer():
			t.Fatalf("%s: raft got it", name)
		}
	}
}
