package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// Entries that failed are held back until the node answers a heartbeat, so that raft, which waits
// longer with each failure, sends the next ones then. They do not hold up Close.
func TestEntriesFailWhenNodeAnswersAgain(t *testing.T) {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	here := from.Raft(RaftOptions{})
	id, at := raft.ServerID(node(1).String()), raft.ServerAddress(to.Advertised())
	failed := make(chan error, 1)
	entries := func() {
		go func() { failed <- here.AppendEntries(id, at, message(), &raft.AppendEntriesResponse{}) }()
		testkit.Eventually(t, patience, func() error {
			here.reach.mu.Lock()
			defer here.reach.mu.Unlock()
			if here.reach.answers[id] == nil {
				return errors.New("entries are not held back")
			}
			return nil
		})
	}
	heartbeat := func() error {
		return here.AppendEntries(id, at, &raft.AppendEntriesRequest{RPCHeader: message().RPCHeader, Term: 1}, &raft.AppendEntriesResponse{})
	}

	entries()
	check.Fails(t, heartbeat(), "a node answers that is down")
	there := to.Raft(RaftOptions{})
	answering(t, there)
	testkit.Eventually(t, patience, heartbeat)
	check.Fails(t, <-failed, "entries to a node that was down have an answer")

	check.NoError(t, there.Close())
	entries()
	check.NoError(t, here.Close())
	check.Fails(t, <-failed, "entries have an answer after the end")
}

// A node that does not answer a heartbeat or a vote loses the connections on which others wait for
// it. Those of another node stay.
func TestSilentNodeLosesItsConnections(t *testing.T) {
	port := func(n byte) *Port { return open(t, Options{Node: node(n), Cluster: member(clusterA)}) }
	mute, other, from := port(1), port(2), port(3)
	r := from.Raft(RaftOptions{Timeout: time.Hour})
	failed := make(chan error)
	send := func(to *Port) (taken chan raft.RPC) {
		there := to.Raft(RaftOptions{})
		pipe, err := r.AppendEntriesPipeline(raft.ServerID(to.opts.Node.String()), there.LocalAddr())
		check.Must(t, err)
		t.Cleanup(func() { _ = pipe.Close() })
		f, err := pipe.AppendEntries(message(), new(raft.AppendEntriesResponse))
		check.Must(t, err)
		go func() { failed <- f.Error() }()
		taken = make(chan raft.RPC, 1)
		taken <- <-there.Consumer()
		return taken
	}
	send(mute)
	kept := send(other)
	r.opts.Patience = 30 * time.Millisecond // Connecting may have taken longer.
	for name, ask := range map[string]func(raft.ServerID, raft.ServerAddress) error{
		"heartbeat": func(id raft.ServerID, at raft.ServerAddress) error {
			return r.AppendEntries(id, at, &raft.AppendEntriesRequest{RPCHeader: message().RPCHeader, Term: 1}, &raft.AppendEntriesResponse{})
		},
		"vote": func(id raft.ServerID, at raft.ServerAddress) error {
			return r.RequestVote(id, at, &raft.RequestVoteRequest{RPCHeader: message().RPCHeader, Term: 1}, &raft.RequestVoteResponse{})
		},
	} {
		if err := ask(raft.ServerID(node(1).String()), raft.ServerAddress(mute.Advertised())); err == nil {
			t.Errorf("%s: a node answers that is mute", name)
		}
	}
	check.Fails(t, <-failed, "entries to a node that is mute have an answer")
	rpc := <-kept
	rpc.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
	check.NoError(t, <-failed, "entries to another node")
}
