package wire

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
)

// A node that must be silent sends nothing, and what is sent to it gets the reason for an
// answer, without raft. When it need not be silent any more it catches up.
func TestSilentNode(t *testing.T) {
	reason := errors.New("the disk hangs")
	var silent atomic.Bool
	c := newCluster(t, 3, 0, setup{transport: func(i int, o *RaftOptions) {
		if i == 2 {
			o.Silent = func() error {
				if silent.Load() {
					return reason
				}
				return nil
			}
		}
	}})
	leader, mute := c.leader(), c.peers[2]
	apply := func(text string) {
		t.Helper()
		check.Must(t, leader.raft.Apply([]byte(text), 0).Error())
	}
	apply("before")
	c.converge(leader, mute)
	term := mute.raft.CurrentTerm()
	silent.Store(true)
	apply("meanwhile")

	head := raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader.id), Addr: []byte(leader.port.Advertised())}
	ask := func(name string, from, to *peer) error {
		at := raft.ServerAddress(to.port.Advertised())
		switch name {
		case "heartbeat":
			return from.trans.AppendEntries(to.id, at, &raft.AppendEntriesRequest{RPCHeader: head, Term: term + 1}, &raft.AppendEntriesResponse{})
		case "entries":
			return from.trans.AppendEntries(to.id, at, &raft.AppendEntriesRequest{RPCHeader: head, Term: term + 1, PrevLogEntry: 1, PrevLogTerm: 1}, &raft.AppendEntriesResponse{})
		case "vote":
			return from.trans.RequestVote(to.id, at, &raft.RequestVoteRequest{RPCHeader: head, Term: term + 1}, &raft.RequestVoteResponse{})
		case "pre-vote":
			return from.trans.RequestPreVote(to.id, at, &raft.RequestPreVoteRequest{RPCHeader: head, Term: term + 1}, &raft.RequestPreVoteResponse{})
		case "stand":
			return from.trans.TimeoutNow(to.id, at, &raft.TimeoutNowRequest{RPCHeader: head}, &raft.TimeoutNowResponse{})
		case "snapshot":
			return from.trans.InstallSnapshot(to.id, at, &raft.InstallSnapshotRequest{RPCHeader: head, Term: term + 1, Size: 1}, &raft.InstallSnapshotResponse{}, bytes.NewReader([]byte("x")))
		default:
			p, err := from.trans.AppendEntriesPipeline(to.id, at)
			if err == nil {
				_, err = p.AppendEntries(&raft.AppendEntriesRequest{RPCHeader: head, Term: term + 1}, &raft.AppendEntriesResponse{})
				err = errors.Join(err, p.Close())
			}
			return err
		}
	}
	for _, name := range []string{"heartbeat", "entries", "vote", "pre-vote", "stand", "snapshot"} {
		check.Says(t, ask(name, c.peers[1], mute), reason.Error(), name, "to the silent node")
		check.Is(t, ask(name, mute, c.peers[1]), reason, name, "from the silent node")
	}
	check.Is(t, ask("pipeline", mute, c.peers[1]), reason, "a pipeline from the silent node")
	for _, p := range c.peers {
		check.Equal(t, p.raft.CurrentTerm(), term, p.id, "is in term ...: raft got a message")
	}
	check.Equal(t, len(mute.fsm.state()), 1, "the silent node has ... entries")
	silent.Store(false)
	apply("after")
	c.converge(leader, mute)
}
