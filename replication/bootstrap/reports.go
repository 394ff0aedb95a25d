package bootstrap

import (
	"fmt"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Keys of log lines.
const (
	keyCluster    = "cluster"
	keyClusters   = "clusters"
	keyProposer   = "proposer"
	keyMembers    = "members"
	keyRemedy     = "remedy"
	keyCandidates = "candidates"
	keyNeeded     = "needed"
	keyMissing    = "missing"
	keyLeftOut    = "left-out"
	keySeen       = "sees"
)

// due reports whether it is time for another line about waiting.
func (c *core) due() bool {
	if c.now.Sub(c.reported) < reportInterval {
		return false
	}
	c.reported = c.now
	return true
}

func (c *core) reportSearch(candidates []event.ID) {
	if !c.due() {
		return
	}
	var leftOut []string
	for _, p := range c.peers {
		if len(leftOut) < MaxClusterSize && (!c.fits(p) || c.gone(p)) {
			leftOut = append(leftOut, fmt.Sprintf("%s: %s", p.Node, c.flaw(p)))
		}
	}
	c.do(say{hclog.Info, "waiting for a cluster, or for enough nodes to form one", []any{
		keyCandidates, candidates, keyNeeded, c.size, keyLeftOut, leftOut,
	}})
}

func (c *core) reportPursuit(own *Proposal, lacking []event.ID) {
	if !c.due() {
		return
	}
	missing := make([]string, 0, len(lacking))
	for _, node := range lacking {
		if p := c.peers.find(node); p != nil {
			missing = append(missing, fmt.Sprintf("%s: %s", node, c.flaw(p)))
		}
	}
	c.do(say{hclog.Warn, "waiting for promises to the cluster this node proposed", []any{
		keyCluster, own.Cluster, keyMissing, missing,
		keyRemedy, "start the missing nodes, or others in their place",
	}})
}

func (c *core) reportBond(bond *Proposal, seen []event.ID) {
	if !c.due() {
		return
	}
	state := "not seen"
	if p := c.peers.find(bond.Proposer); p != nil {
		state = c.flaw(p)
	}
	c.do(say{hclog.Warn, "promised to a cluster, waiting for its proposer to say whether it was formed", []any{
		keyCluster, bond.Cluster, keyProposer, bond.Proposer, logkey.Reason, state, keyMembers, bond.Members, keySeen, seen,
		keyRemedy, fmt.Sprintf("bring node %s back; if it is gone for good, stop this node and remove its %s, which holds nothing yet",
			bond.Proposer, c.o.RecordPlace),
	}})
}

// reportConflict is loud at once, then at intervals like the others.
func (c *core) reportConflict(seen []event.ID) {
	if !c.conflict {
		c.conflict, c.reported = true, c.now.Add(-reportInterval)
	}
	if !c.due() {
		return
	}
	c.do(say{hclog.Error, "nodes of different clusters are in sight: joining none of them", []any{
		keyClusters, seen,
		keyRemedy, "keep the nodes of one cluster, and stop the others or separate them by their gossip seeds and keys",
	}})
}

// flaw says for an operator what is wrong with a node.
func (c *core) flaw(p *peer) string {
	bond := c.boundElsewhere(p)
	switch {
	case !p.inView:
		return "not seen"
	case !p.Alive:
		return "dead"
	case p.ReadOnly || p.heard != nil && p.heard.ReadOnly:
		return "read-only"
	case p.ClusterSize != c.size:
		return fmt.Sprintf("expects a cluster of %d", p.ClusterSize)
	case p.heard != nil && p.heard.ClusterSize != c.size:
		return fmt.Sprintf("expects a cluster of %d", p.heard.ClusterSize)
	case p.failures > 0:
		return "does not answer"
	case bond != nil:
		return fmt.Sprintf("promised to cluster %s, which node %s proposed", bond.Cluster, bond.Proposer)
	case p.heard != nil && p.heard.Refusal != "":
		return string(p.heard.Refusal)
	}
	return "not answered yet"
}
