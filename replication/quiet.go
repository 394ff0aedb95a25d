package replication

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/throttle"
)

// quiet is the logger that raft gets, and the parts of its transport. raft repeats many times a
// second, as errors, that another node cannot be reached, and in each election what belongs to it.
// Two tables say at which level and in which words its lines are logged. Nodes have their
// addresses there in place of their ids.
type quiet struct {
	hclog.Logger
	naming *naming
}

// naming is what lines say of nodes.
type naming struct {
	address  func(node string) string // between nodes; empty: not known
	stopping func() bool              // then only errors are news
	late     time.Duration            // a node that is silent for so long is news
	raft     atomic.Pointer[raft.Raft]
	silent   throttle.Lines[string] // nodes that are silent
}

// levels are those of messages that are said too loud.
var levels = map[string]hclog.Level{
	"failed to heartbeat to":                     hclog.Debug,
	"failed to appendEntries to":                 hclog.Debug,
	"failed to make requestVote RPC":             hclog.Debug,
	"failed to make requestVote Prevote RPC":     hclog.Debug,
	"failed to pipeline appendEntries":           hclog.Debug,
	"failed to start pipeline replication to":    hclog.Debug,
	"failed to decode incoming command":          hclog.Debug,
	"failed to flush response":                   hclog.Debug,
	"failed to get previous log":                 hclog.Debug,
	"appendEntries rejected, sending older logs": hclog.Debug,
	"failed to send snapshot to":                 hclog.Debug,
	"failed to install snapshot":                 hclog.Debug,
	"installSnapshot rejected to":                hclog.Debug,
	// Its disk is full, or the node ends: both are said.
	"failed to append to logs":                            hclog.Debug,
	"failed to clear log suffix":                          hclog.Debug,
	"no known peers, aborting election":                   hclog.Debug,
	"not part of stable configuration, aborting election": hclog.Debug,

	// Each repeats for as long as there is no leader. The Cluster says that there is none, who
	// leads, and since when this node does.
	"Election timeout reached, restarting election":              hclog.Debug,
	"entering candidate state":                                   hclog.Debug,
	"pre-vote successful, starting election":                     hclog.Debug,
	"pre-vote campaign failed, waiting for election timeout":     hclog.Debug,
	"entering follower state":                                    hclog.Debug,
	"entering leader state":                                      hclog.Debug,
	"rejecting vote request since we have a leader":              hclog.Debug,
	"rejecting vote request since our last term is greater":      hclog.Debug,
	"rejecting vote request since our last index is greater":     hclog.Debug,
	"rejecting pre-vote request since we have a leader":          hclog.Debug,
	"rejecting pre-vote request since our last term is greater":  hclog.Debug,
	"rejecting pre-vote request since our last index is greater": hclog.Debug,
	"duplicate requestVote for same term":                        hclog.Debug,
	"duplicate requestVote from":                                 hclog.Debug,
	"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election": hclog.Debug,

	"initial configuration":         hclog.Debug,
	"pipelining replication":        hclog.Debug,
	"aborting pipeline replication": hclog.Debug,

	"new leader elected, stepping down":                             hclog.Info,
	"peer has newer term, stopping replication":                     hclog.Info,
	"skipping application of old log":                               hclog.Info,
	"previous log term mis-match":                                   hclog.Info,
	"clearing log suffix":                                           hclog.Info,
	"rejecting vote request since node is not a voter":              hclog.Info,
	"rejecting pre-vote request since node is not a voter":          hclog.Info,
	"rejecting pre-vote request since node is not in configuration": hclog.Info,
	"rejecting vote request since node is not in configuration":     hclog.Info,
}

// These have words of their own.
const (
	firstElection = "heartbeat timeout reached, starting election"
	noContact     = "failed to contact"
)

// words are what is logged in place of raft's own.
var words = map[string]string{
	firstElection: "nothing heard from the leader: this node stands for election",
	noContact:     "a node does not answer the leader",
	"failed to contact quorum of nodes, stepping down": "fewer than half of the nodes answer: this node no longer leads",
}

// Named keeps what a logger of the transport is made of quiet as well.
func (q quiet) Named(name string) hclog.Logger { return quiet{q.Logger.Named(name), q.naming} }

// With does the same.
func (q quiet) With(args ...any) hclog.Logger { return quiet{q.Logger.With(args...), q.naming} }

func (q quiet) Error(message string, args ...any) { q.say(hclog.Error, message, args) }
func (q quiet) Warn(message string, args ...any)  { q.say(hclog.Warn, message, args) }
func (q quiet) Info(message string, args ...any)  { q.say(hclog.Info, message, args) }

// Debug is where raft says of a node that is silent for long.
func (q quiet) Debug(message string, args ...any) { q.say(hclog.Debug, message, args) }

// say logs a line of raft.
func (q quiet) say(level hclog.Level, message string, args []any) {
	n := q.naming
	level = cmp.Or(levels[message], level)
	switch message {
	case firstElection:
		level, args = n.election(args)
	case noContact:
		level, args = n.contact(args)
	default:
		if level > hclog.Debug {
			args = n.named(args)
		}
	}
	if level == hclog.Warn && n.stopping() {
		level = hclog.Debug
	}
	q.Log(level, cmp.Or(words[message], message), args...)
}

// election is news when there was a leader.
func (n *naming) election(args []any) (hclog.Level, []any) {
	leader, ok := value(args, "last-leader-id")
	if !ok || leader == "" {
		return hclog.Debug, args
	}
	said := []any{"leader", n.place(leader)}
	if r := n.raft.Load(); r != nil {
		said = append(said, "silent", time.Since(r.LastContact()).Round(time.Millisecond))
	}
	return hclog.Warn, said
}

// contact is news once another node would stand for election in place of one that is so late, and
// then seldom. raft repeats it several times a second.
func (n *naming) contact(args []any) (hclog.Level, []any) {
	node, _ := value(args, "server-id")
	late, _ := value(args, "time")
	level := hclog.Debug
	if d, err := time.ParseDuration(late); err == nil && d >= n.late {
		if _, due := n.silent.Due(node); due {
			level = hclog.Warn
		}
	}
	return level, []any{logkey.Address, n.place(node), "silent", late}
}

// value finds an argument of a line.
func value(args []any, key string) (string, bool) {
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] == key {
			return fmt.Sprint(args[i+1]), true
		}
	}
	return "", false
}

// place names a node for an operator: by its address, or by its id if that is not known.
func (n *naming) place(node string) string { return cmp.Or(n.address(node), node) }

// named has nodes in arguments named by their addresses.
func (n *naming) named(args []any) []any {
	args = slices.Clone(args)
	for i := 1; i < len(args); i += 2 {
		switch v := args[i].(type) {
		case raft.ServerID:
			args[i] = n.place(string(v))
		case raft.Server:
			args[i] = n.place(string(v.ID))
		case raft.ServerAddress:
			// raft has ids there when the transport knows no address.
			args[i] = n.place(string(v))
		}
	}
	return args
}
