package wire

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
)

// TestMessageThatIsRewritten: a leader that was replaced learns the newer term from raft, also if
// this node has rewritten its message for a snapshot of that term.
func TestMessageThatIsRewritten(t *testing.T) {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	there := to.Raft(RaftOptions{Append: func(a *raft.AppendEntriesRequest) {
		a.PrevLogEntry, a.PrevLogTerm, a.Entries = 8, a.Term+1, nil
	}})
	answering(t, there)
	var resp raft.AppendEntriesResponse
	check.NoError(t, from.Raft(RaftOptions{}).AppendEntries(raft.ServerID(node(1).String()), there.LocalAddr(), message(), &resp))
}

// TestEntriesOfADeposedLeader: a leader that was replaced and has taken entries of its successor
// cannot pass them on in the name of its own term, neither one by one nor through a pipeline.
func TestEntriesOfADeposedLeader(t *testing.T) {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	there, here := to.Raft(RaftOptions{}), from.Raft(RaftOptions{})
	answering(t, there)
	id, at := raft.ServerID(node(1).String()), there.LocalAddr()
	successors := func() *raft.AppendEntriesRequest {
		args := message()
		args.Entries = append(args.Entries, &raft.Log{Index: 9, Term: args.Term + 1})
		return args
	}
	after := message()
	after.PrevLogTerm, after.Entries = after.Term+1, nil

	check.NoError(t, here.AppendEntries(id, at, message(), new(raft.AppendEntriesResponse)))
	for what, args := range map[string]*raft.AppendEntriesRequest{"entries": successors(), "the entry before": after} {
		var resp raft.AppendEntriesResponse
		if here.exchange(id, at, args, &resp) == nil || resp.Success {
			t.Errorf("%s of a later term: taken", what)
		}
	}
	pipe := check.Value(here.AppendEntriesPipeline(id, at)).Must(t)
	defer func() { check.NoError(t, pipe.Close()) }()
	f := check.Value(pipe.AppendEntries(successors(), new(raft.AppendEntriesResponse))).Must(t)
	if f.Error() == nil || f.Response().Success {
		t.Error("entries of a later term in a pipeline: taken")
	}
}
