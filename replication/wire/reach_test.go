package wire

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/testkit"
)

// Entries that failed are held back until the node answers a heartbeat, so that raft, which waits longer with each
// failure, sends the next ones then. They hold up nobody who closes.
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
	if err := heartbeat(); err == nil {
		t.Error("a node answers that is down")
	}
	there := to.Raft(RaftOptions{})
	answering(t, there)
	testkit.Eventually(t, patience, heartbeat)
	if err := <-failed; err == nil {
		t.Error("entries to a node that was down have an answer")
	}

	if err := there.Close(); err != nil {
		t.Error(err)
	}
	entries()
	if err := here.Close(); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("entries have an answer after the end")
	}
}
