package replication

import (
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
)

// State is the state of this node.
func (c *Cluster) State() event.NodeState {
	if c.self.stopping.Load() {
		return event.StateShuttingDown
	}
	r := c.self.replica.Load()
	if r == nil {
		return c.life.state.Load().(event.NodeState)
	}
	if c.disk.hanging() != nil && c.self.opts.Size > 1 {
		return event.StateUnknown
	}
	own, _ := r.pipeline.Leadership()
	switch {
	case own.Leading && c.lead.few.Load():
		return event.StatePreLeader
	case own.Leading && c.lead.resigning.Load():
		return event.StateResigningLeader
	case own.Leading:
		return event.StateLeader
	case r.raft.State() == raft.Leader:
		return event.StatePreLeader
	case c.join.removed.Load():
		return event.StateUnknown
	}
	_, leader := r.raft.LeaderWithID()
	voter, present := c.self.suffrage()
	switch {
	case leader == "":
		return c.self.replicaState(event.StateUnknown, event.StateReadOnlyLeaderless)
	case !present:
		return c.self.replicaState(event.StatePreReplica, event.StatePreReadOnlyReplica)
	case voter:
		return event.StateFollower
	case c.self.opts.ReadOnly:
		return event.StateReadOnlyReplica
	case c.pull.busy():
		return event.StateCatchingUp
	}
	return event.StateClone
}

// Ready reports whether requests can be served: this node leads, or knows another one that does, and its disk works.
func (c *Cluster) Ready() bool {
	if c.disk.hanging() != nil {
		return false
	}
	if l, _ := c.Leadership(); l.Leading {
		return true
	}
	r := c.self.replica.Load()
	if r == nil || c.join.removed.Load() {
		return false
	}
	_, leader := r.raft.LeaderWithID()
	return leader != "" && string(leader) != c.self.name
}
