package replication

import (
	"bytes"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TestQuiet: what raft and its transport repeat many times a second is not logged
// as an error, whatever loggers they make of theirs.
func TestQuiet(t *testing.T) {
	var out bytes.Buffer
	base := quiet{hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: &out})}
	for _, logger := range []hclog.Logger{base, base.Named("net"), base.With("a", 1).Named("net")} {
		logger.Error("failed to heartbeat to", "peer", "x")
		logger.Error("failed to decode incoming command", "error", "x")
		logger.Warn("failed to get previous log")
	}
	base.Error("peer has newer term, stopping replication", "peer", "x")
	base.Warn("heartbeat timeout reached, starting election", "last-leader-addr", raft.ServerAddress(""), "last-leader-id", raft.ServerID(""))
	if out.Len() > 0 {
		t.Errorf("logged %s", &out)
	}
	base.Named("net").Error("failed to commit logs")
	base.Warn("heartbeat timeout reached, starting election", "last-leader-addr", raft.ServerAddress("x"), "last-leader-id", raft.ServerID("y"))
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "[ERROR]") || !strings.Contains(got, "[WARN]") {
		t.Errorf("logged %s", got)
	}
}
