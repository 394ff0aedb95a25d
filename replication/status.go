package replication

import (
	"context"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/wire"
)

// Status is what a node tells others of itself, over the port between nodes.
type Status struct {
	Node     event.ID        `json:"node"`
	Cluster  event.ID        `json:"cluster"`
	Address  string          `json:"address"` // between nodes; empty: a version that does not tell
	State    event.NodeState `json:"state"`
	Priority int             `json:"priority"`
	ReadOnly bool            `json:"readOnly"`
	// the history that it follows; nil: none yet, or it knows of none
	Incarnation *event.ID `json:"lineage,omitempty"`

	Leader        string `json:"leader"`        // node id, empty when not known
	LeaderAddress string `json:"leaderAddress"` // between nodes
	Term          uint64 `json:"term"`
	Last          uint64 `json:"last"`    // index of the Raft log's last entry
	Commit        uint64 `json:"commit"`  // index of the last committed entry known
	Applied       uint64 `json:"applied"` // index of the last applied entry
	Running       bool   `json:"running"` // raft runs

	Tail       event.Tail `json:"tail"`
	LastRecord int64      `json:"lastRecord"`
	Epoch      int64      `json:"epoch"`
	HasLog     bool       `json:"hasLog"`
	Full       bool       `json:"full"`            // refuses writes, for want of disk space
	Unfit      bool       `json:"unfit,omitempty"` // cannot decide writes

	Clock      int64 `json:"clock"`      // Unix time in ns; 0: a version that does not tell
	WrongClock bool  `json:"wrongClock"` // it is known to be wrong

	Servers    []Server    `json:"servers"`         // raft's configuration
	Duplicates []Duplicate `json:"twins,omitempty"` // that it refused lately

	// At is the chain at the position that was asked for; nil when this log does
	// not reach there, its Chain zero when no frame ends there.
	At *ChainAt `json:"at,omitempty"`
}

// Server is a member of raft's configuration.
type Server struct {
	Node    string `json:"node"`
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
}

// ChainAt is the chain of a log at a position.
type ChainAt struct {
	Position int64       `json:"position"`
	Chain    event.Chain `json:"chain"`
}

// status describes this node.
func (c *Cluster) status() Status {
	state := c.State()
	s := c.self.status()
	s.State, s.Priority = state, int(c.lead.priority.Load())
	s.Duplicates, s.WrongClock = c.duplicates.met(), c.Clock.Wrong() != nil
	return s
}

// watchPeers asks the other nodes for their status, compares histories, and acts on the result.
func (c *Cluster) watchPeers(ctx context.Context) {
	for {
		c.peers.askAll(ctx)
		c.incarnations.noteApart()
		c.incarnations.judge()
		c.Clock.judge()
		c.join.noteRemoval()
		c.Standing.leaderless.look(time.Now())
		if r := c.self.replica.Load(); r != nil {
			c.self.warn("see who is to lead", r.Rank())
			l, _ := c.lead.note(r)
			c.lead.leaveUnfit(ctx, r, l)
		}
		select {
		case <-time.After(peerPace):
		case <-c.peers.poke:
		case <-c.peers.gossip.Changed():
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// status describes what this node is and holds.
func (s *self) status() Status {
	is := Status{
		Node: s.node, Cluster: s.clusterID(), Address: s.opts.Advertise, ReadOnly: s.opts.ReadOnly,
		LastRecord: -1, Epoch: -1, Full: s.readOnly.get() != nil, Clock: s.opts.Now().UnixNano(),
		Unfit: s.unfit() != nil,
	}
	if m := s.deps.Load(); m != nil {
		is.HasLog, is.Tail = true, m.Log.Tail()
		is.LastRecord, is.Epoch = m.Data.LastRecord(), m.Data.Epoch()
	}
	if r := s.replica.Load(); r != nil {
		_, leader := r.raft.LeaderWithID()
		is.Running, is.Leader, is.Term = true, string(leader), r.raft.CurrentTerm()
		is.Last, is.Commit, is.Applied = r.raft.LastIndex(), r.raft.CommitIndex(), r.raft.AppliedIndex()
	}
	for _, server := range s.configuration().Servers {
		if is.Leader == string(server.ID) {
			is.LeaderAddress = string(server.Address)
		}
		is.Servers = append(is.Servers, Server{string(server.ID), string(server.Address), server.Suffrage == raft.Voter})
	}
	// After Running: a node that runs and names no cluster incarnation counts as one of the first.
	if l := s.incarnation.Load(); l != nil {
		is.Incarnation = &l.id
	}
	return is
}

// Healthy returns why this node's data are not to be trusted, or nil. unsure: as
// many nodes hold another history as hold this node's. diverged: more do, so that this
// node must serve nothing.
func (c *Cluster) Healthy() (unsure, diverged error) {
	return c.incarnations.unsure.get(), c.incarnations.diverged.get()
}

// State is the state of this node.
func (c *Cluster) State() event.NodeState {
	if c.self.stopping.Load() {
		return event.StateShuttingDown
	}
	r := c.self.replica.Load()
	if r == nil {
		return c.lifecycle.state.Load().(event.NodeState)
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
	case c.pull.active.Load():
		return event.StateCatchingUp
	}
	return event.StateClone
}

// Ready reports whether requests can be served: this node leads, or knows another one that does,
// and its disk works.
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

// Connection is what the leader knows of its connections with one of the others.
type Connection struct {
	wire.Peer
	Endpoint  string // host:port of that node between nodes, as in View; empty when not known
	SendQueue int64  // entries that node had not got when it was asked last
}

// Connections describes the leader's connections, one for each other node in
// Raft's configuration, in its order. It is empty on a node that does not lead.
func (c *Cluster) Connections() []Connection {
	r := c.self.replica.Load()
	if l, _ := c.Leadership(); !l.Leading || r == nil || c.port == nil {
		return nil
	}
	last := r.raft.LastIndex()
	var list []Connection
	for _, server := range c.self.configuration().Servers {
		id, err := event.ParseID(string(server.ID))
		if err != nil || id == c.self.node {
			continue
		}
		one := Connection{Peer: c.port.Peer(id)}
		if m, ok := c.peers.member(string(server.ID)); ok {
			one.Endpoint = m.ReplicationAddress
		}
		if p, ok := c.peers.heard(string(server.ID)); ok && p.status.Running && p.status.Last < last {
			one.SendQueue = int64(last - p.status.Last)
		}
		list = append(list, one)
	}
	return list
}
