package replication

import (
	"encoding/binary"
	"net"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/gossip"
)

// viewInput is all that a view of the cluster is made of: this node's status, gossip's members with
// their latest answers, and the knowledge of this node's raft.
type viewInput struct {
	now     time.Time
	opts    *ClusterOptions
	own     Status
	members []gossip.Member // none in a cluster of one
	said    map[event.ID]peer
	voters  map[string]bool // by node
	leader  string          // node, and its term; empty when not known
	term    uint64
}

// view shows the cluster.
func (s *viewInput) view() event.ClusterView {
	view := event.ClusterView{Node: s.own.Node, ServerHost: s.opts.ClientHost, ServerPort: s.opts.ClientPort}
	if s.members == nil {
		view.Members = []event.Member{s.alone()}
		return view
	}
	for _, g := range s.members {
		said, heard := s.said[g.Node]
		self := g.Node == s.own.Node
		if heard && !self && apart(&s.own, &said.status) {
			continue // It is not of the cluster that clients of this node mean.
		}
		m := event.Member{
			Node: g.Node, Alive: g.Alive, ReadOnly: g.ReadOnly, Priority: g.Priority, Version: g.Version,
			HTTPHost: g.HTTPHost, HTTPPort: g.HTTPPort, ReplicationSecure: s.opts.Security != nil,
			Time: g.Since, LastCommit: -1, Writer: -1, Chaser: -1, EpochPosition: -1,
		}
		setAddress(&m, g.ReplicationAddress)
		switch {
		case self:
			m.Time, m.Voter = s.now, s.voters[g.Node.String()]
			fill(&m, &s.own)
		case heard:
			m.Time, m.Voter = said.at, s.voters[g.Node.String()]
			fill(&m, &said.status)
		}
		if !self || !g.Alive {
			m.State = stateOf(g, said, heard)
		}
		if !self && g.Alive {
			follow(&m, s.leader, s.term)
		}
		view.Members = append(view.Members, m)
	}
	return view
}

// alone is the node of a cluster of one.
func (s *viewInput) alone() event.Member {
	m := event.Member{
		Node: s.own.Node, Alive: true, HTTPHost: s.opts.ClientHost, HTTPPort: s.opts.ClientPort, Voter: true,
		Priority: s.own.Priority, Version: s.opts.Version, Time: s.now, ReplicationSecure: s.opts.Security != nil,
	}
	setAddress(&m, s.own.Address)
	fill(&m, &s.own)
	return m
}

// stateOf is the state of another member, given what it said last if it was heard.
func stateOf(g gossip.Member, said peer, heard bool) event.NodeState {
	switch {
	case !g.Alive && g.Left:
		return event.StateShuttingDown
	case !g.Alive:
		return event.StateShutdown
	case heard:
		return said.status.State
	}
	return event.StateUnknown
}

// follow corrects another node's latest answer by the current leader.
func follow(m *event.Member, leader string, term uint64) {
	switch {
	case leader == "":
	case m.Node.String() == leader:
		if m.State != event.StateResigningLeader || m.EpochNumber < int64(term) {
			m.State = event.StateLeader
		}
	case m.EpochNumber < int64(term) && (m.State == event.StateLeader || m.State == event.StateResigningLeader):
		m.State = event.StateUnknown // It led before.
	}
}

func setAddress(m *event.Member, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return
	}
	m.ReplicationHost = host
	if n, err := strconv.Atoi(port); err == nil {
		m.ReplicationPort = n
	}
}

func fill(m *event.Member, s *Status) {
	m.State = s.State
	m.LastCommit, m.Writer, m.Chaser, m.EpochPosition = -1, -1, -1, s.Epoch
	if s.HasLog {
		m.LastCommit, m.Writer, m.Chaser = s.LastRecord, s.Tail.End, s.Tail.End
	}
	m.EpochNumber = int64(s.Term)
	m.EpochID = epochID(s.Cluster, s.Term)
}

// epochID is the same on all nodes: a name made of cluster and term.
func epochID(cluster event.ID, term uint64) event.ID {
	if cluster.IsZero() || term == 0 {
		return event.ID{}
	}
	return event.ID(uuid.NewSHA1(uuid.UUID(cluster), binary.BigEndian.AppendUint64(nil, term)))
}

// beginning is the view before the start: this node alone.
func beginning(o *ClusterOptions) event.ClusterView {
	return event.ClusterView{ServerHost: o.ClientHost, ServerPort: o.ClientPort, Members: []event.Member{{
		Time: o.Now(), State: event.StateInitializing, Alive: true, ReadOnly: o.ReadOnly, Priority: o.Priority, Version: o.Version,
		HTTPHost: o.ClientHost, HTTPPort: o.ClientPort, LastCommit: -1, Writer: -1, Chaser: -1, EpochPosition: -1,
	}}}
}
