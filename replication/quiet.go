package replication

import (
	"cmp"
	"fmt"

	"github.com/hashicorp/go-hclog"
)

// quiet is the logger that raft gets. raft repeats many times a second, as errors,
// that another node cannot be reached; that it lost contact, and what follows, it
// says once as well. What is repeated goes to the level debug, and what belongs to
// every start, election and change of term to the level info.
type quiet struct{ hclog.Logger }

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

	"Election timeout reached, restarting election":                 hclog.Info,
	"new leader elected, stepping down":                             hclog.Info,
	"peer has newer term, stopping replication":                     hclog.Info,
	"skipping application of old log":                               hclog.Info,
	"previous log term mis-match":                                   hclog.Info,
	"clearing log suffix":                                           hclog.Info,
	"duplicate requestVote from":                                    hclog.Info,
	"rejecting vote request since we have a leader":                 hclog.Info,
	"rejecting vote request since our last term is greater":         hclog.Info,
	"rejecting vote request since our last index is greater":        hclog.Info,
	"rejecting vote request since node is not a voter":              hclog.Info,
	"rejecting pre-vote request since we have a leader":             hclog.Info,
	"rejecting pre-vote request since our last term is greater":     hclog.Info,
	"rejecting pre-vote request since our last index is greater":    hclog.Info,
	"rejecting pre-vote request since node is not a voter":          hclog.Info,
	"rejecting pre-vote request since node is not in configuration": hclog.Info,
	"rejecting vote request since node is not in configuration":     hclog.Info,
}

// firstElection is said of a leader that was lost, and when there never was one.
const firstElection = "heartbeat timeout reached, starting election"

// level says at which level a line is logged.
func level(asked hclog.Level, message string, args []any) hclog.Level {
	if message == firstElection && len(args) == 4 && fmt.Sprint(args[1], args[3]) == "" {
		return hclog.Info
	}
	return cmp.Or(levels[message], asked)
}

// Named keeps what a logger of the transport is made of quiet as well.
func (q quiet) Named(name string) hclog.Logger { return quiet{q.Logger.Named(name)} }

// With does the same.
func (q quiet) With(args ...any) hclog.Logger { return quiet{q.Logger.With(args...)} }

func (q quiet) Error(message string, args ...any) {
	q.Log(level(hclog.Error, message, args), message, args...)
}

func (q quiet) Warn(message string, args ...any) {
	q.Log(level(hclog.Warn, message, args), message, args...)
}
