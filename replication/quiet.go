package replication

import (
	"fmt"

	"github.com/hashicorp/go-hclog"
)

// quiet is the logger that raft gets. raft repeats many times a second, as errors,
// that another node cannot be reached; that it lost contact, and what follows, it
// says once as well. What is repeated goes to the level debug, and what belongs to
// every start, election and change of term to the level info.
type quiet struct{ hclog.Logger }

var repeated = map[string]bool{
	"failed to heartbeat to":                              true,
	"failed to appendEntries to":                          true,
	"failed to make requestVote RPC":                      true,
	"failed to make requestVote Prevote RPC":              true,
	"failed to pipeline appendEntries":                    true,
	"failed to start pipeline replication to":             true,
	"failed to decode incoming command":                   true,
	"failed to flush response":                            true,
	"failed to get previous log":                          true,
	"appendEntries rejected, sending older logs":          true,
	"failed to send snapshot to":                          true,
	"failed to install snapshot":                          true,
	"installSnapshot rejected to":                         true,
	"no known peers, aborting election":                   true,
	"not part of stable configuration, aborting election": true,
}

var ordinary = map[string]bool{
	"Election timeout reached, restarting election":                 true,
	"new leader elected, stepping down":                             true,
	"peer has newer term, stopping replication":                     true,
	"skipping application of old log":                               true,
	"previous log term mis-match":                                   true,
	"clearing log suffix":                                           true,
	"duplicate requestVote from":                                    true,
	"rejecting vote request since we have a leader":                 true,
	"rejecting vote request since our last term is greater":         true,
	"rejecting vote request since our last index is greater":        true,
	"rejecting vote request since node is not a voter":              true,
	"rejecting pre-vote request since we have a leader":             true,
	"rejecting pre-vote request since our last term is greater":     true,
	"rejecting pre-vote request since our last index is greater":    true,
	"rejecting pre-vote request since node is not a voter":          true,
	"rejecting pre-vote request since node is not in configuration": true,
	"rejecting vote request since node is not in configuration":     true,
}

// firstElection is said of a leader that was lost, and when there never was one.
const firstElection = "heartbeat timeout reached, starting election"

// level says at which level a line is logged.
func level(asked hclog.Level, message string, args []any) hclog.Level {
	switch {
	case repeated[message]:
		return hclog.Debug
	case ordinary[message]:
		return hclog.Info
	case message == firstElection && len(args) == 4 && fmt.Sprint(args[1], args[3]) == "":
		return hclog.Info
	}
	return asked
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
