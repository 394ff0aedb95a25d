package replication

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/throttle"
)

// quietLog is a logger as raft has it, and what it writes.
func quietLog(level hclog.Level) (quiet, *naming, *bytes.Buffer) {
	var out bytes.Buffer
	n := &naming{
		address:  func(node string) string { return map[string]string{"n3": "10.77.0.3:1112"}[node] },
		stopping: func() bool { return false }, late: time.Second, silent: throttle.Lines[string]{Every: time.Minute},
	}
	return quiet{hclog.New(&hclog.LoggerOptions{Level: level, Output: &out, DisableTime: true}), n}, n, &out
}

// TestQuiet: what raft and its transport repeat many times a second is not logged
// as an error, whatever loggers they make of theirs.
func TestQuiet(t *testing.T) {
	base, _, out := quietLog(hclog.Info)
	for _, logger := range []hclog.Logger{base, base.Named("net"), base.With("a", 1).Named("net")} {
		logger.Error("failed to heartbeat to", "peer", "x")
		logger.Error("failed to decode incoming command", "error", "x")
		logger.Warn("failed to get previous log")
	}
	if out.Len() > 0 {
		t.Errorf("logged %s", out)
	}
	base.Named("net").Error("failed to commit logs")
	check.Equal(t, out.String(), "[ERROR] net: failed to commit logs\n", "logged")
}

// TestQuietElections: an election of a node without a leader repeats several times a second, and
// tells nothing new.
func TestQuietElections(t *testing.T) {
	base, _, out := quietLog(hclog.Info)
	base.Warn(firstElection, "last-leader-addr", raft.ServerAddress(""), "last-leader-id", raft.ServerID(""))
	for range 3 {
		base.Warn("Election timeout reached, restarting election")
		base.Info("entering candidate state", "node", "x", "term", 4)
		base.Info("pre-vote campaign failed, waiting for election timeout", "term", 4, "tally", 1, "refused", 2, "votesNeeded", 2)
		base.Info("entering follower state", "follower", "x", "leader-address", raft.ServerAddress(""), "leader-id", raft.ServerID(""))
	}
	base.Info("initial configuration", "index", 1)
	base.Info("aborting pipeline replication", "peer", raft.Server{})
	if out.Len() > 0 {
		t.Errorf("logged %s", out)
	}
}

// TestQuietWords: a line names a node by its address.
func TestQuietWords(t *testing.T) {
	base, n, out := quietLog(hclog.Info)
	base.Warn(firstElection, "last-leader-addr", raft.ServerAddress("n3"), "last-leader-id", raft.ServerID("n3"))
	base.Warn("failed to contact quorum of nodes, stepping down")
	base.Info("added peer, starting replication", "peer", raft.ServerID("n3"))
	base.Info("added peer, starting replication", "peer", raft.ServerID("n4"))
	n.stopping = func() bool { return true }
	base.Warn("failed to contact quorum of nodes, stepping down")
	const want = `[WARN]  nothing heard from the leader: this node stands for election: leader=10.77.0.3:1112
[WARN]  fewer than half of the nodes answer: this node no longer leads
[INFO]  added peer, starting replication: peer=10.77.0.3:1112
[INFO]  added peer, starting replication: peer=n4
`
	check.Equal(t, out.String(), want, "logged")
}

// TestQuietContact: a node that is late under load tells nothing before another one would stand for
// election, and one that is silent is said once a minute.
func TestQuietContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, _, out := quietLog(hclog.Info)
		say := func(late time.Duration) {
			base.Warn(noContact, "server-id", raft.ServerID("n3"), "time", late)
			base.Debug(noContact, "server-id", raft.ServerID("n3"), "time", late+time.Millisecond)
		}
		say(990 * time.Millisecond)
		if out.Len() > 0 {
			t.Errorf("logged %s", out)
		}
		for range 60 {
			say(5 * time.Second)
			time.Sleep(time.Second)
		}
		say(5 * time.Second)
		if n := strings.Count(out.String(), "[WARN]  a node does not answer the leader: address=10.77.0.3:1112 silent=5s"); n != 2 {
			t.Errorf("logged %d times\n%s", n, out)
		}
	})
}
