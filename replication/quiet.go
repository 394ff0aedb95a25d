package replication

import "github.com/hashicorp/go-hclog"

// quiet is the logger that raft gets. raft repeats many times a second, as errors,
// that another node cannot be reached; that it lost contact, and what follows, it
// says once as well. What is repeated goes to the level debug.
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

// Named keeps what a logger of the transport is made of quiet as well.
func (q quiet) Named(name string) hclog.Logger { return quiet{q.Logger.Named(name)} }

// With does the same.
func (q quiet) With(args ...any) hclog.Logger { return quiet{q.Logger.With(args...)} }

func (q quiet) Error(message string, args ...any) {
	if repeated[message] {
		q.Logger.Debug(message, args...)
		return
	}
	q.Logger.Error(message, args...)
}

func (q quiet) Warn(message string, args ...any) {
	if repeated[message] {
		q.Logger.Debug(message, args...)
		return
	}
	q.Logger.Warn(message, args...)
}
