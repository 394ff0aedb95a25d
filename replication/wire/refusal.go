package wire

import (
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
)

// RefusedError says that another node does not want a connection.
type RefusedError struct {
	Address string // that was dialled
	Status  Status
	Reason  string   // in the other node's words
	Peer    Identity // what the other node says of itself; zero where only TLS was answered
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s refused the connection: %s", e.Address, e.Reason)
}

// refusal is why this node does not want a connection.
type refusal struct {
	status Status
	reason string
	from   *request // nil: the other side did not get as far as to say who it is
}

func (r *refusal) Error() string { return r.reason }

// judge decides about a request. The caller looks for a listener and a free place.
func (p *Port) judge(q *request, self Identity) *refusal {
	switch {
	case q.version != formatVersion:
		return &refusal{status: StatusOtherFormat, reason: fmt.Sprintf(
			"this node speaks version %d of the protocol between nodes, the other %d", formatVersion, q.version)}
	case q.Node == self.Node:
		return &refusal{status: StatusSameNode, reason: fmt.Sprintf(
			"two nodes have the id %s, or this one dialled itself", self.Node)}
	case !q.Cluster.IsZero() && !self.Cluster.IsZero() && q.Cluster != self.Cluster:
		return &refusal{status: StatusOtherCluster, reason: fmt.Sprintf(
			"this node belongs to cluster %s, the other to %s", self.Cluster, q.Cluster)}
	case !q.kind.open() && self.Cluster.IsZero():
		return &refusal{status: StatusNoCluster, reason: "this node belongs to no cluster yet"}
	case !q.kind.open() && q.Cluster.IsZero():
		return &refusal{status: StatusNoCluster, reason: "the other node belongs to no cluster yet"}
	}
	return sameIncarnation(q.kind, self, p.opts.Advertise, q.Identity)
}

// sameIncarnation refuses connections between nodes of different histories of one cluster. It
// allows the kinds that are open to all, which check that themselves.
func sameIncarnation(k Kind, self Identity, address string, other Identity) *refusal {
	if k.open() || self.Incarnation == other.Incarnation {
		return nil
	}
	return &refusal{status: StatusOtherIncarnation, reason: fmt.Sprintf(
		"node %s at %s belongs to incarnation %08x of cluster %s, node %s to incarnation %08x: to give up the latter's history, stop that node, "+
			"rename its folder raft, and start it: it joins with its data",
		self.Node, address, self.Incarnation, self.Cluster, other.Node, other.Incarnation)}
}

// logAgain is after how long the same is logged again.
const logAgain = time.Minute

// line identifies a log line that is repeated only once in a while.
type line struct {
	host   string
	reason string // one of few: not the text, which may hold ports and ids
}

// say logs a line unless the same reason was logged for the same host within a minute.
func (p *Port) say(level hclog.Level, peer net.Addr, reason, message string, args ...any) {
	skipped, ok := p.lines.Due(line{hostOf(peer), reason})
	if !ok {
		return
	}
	args = append(args, keyPeer, peer.String())
	if skipped > 0 {
		args = append(args, keySkipped, skipped)
	}
	p.logger.Log(level, message, args...)
}
