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

// View is the cluster as this node sees it: gossip's members joined with what they
// last said of themselves. It waits for nobody.
func (c *Cluster) View() event.ClusterView {
	view := event.ClusterView{ServerHost: c.self.opts.ClientHost, ServerPort: c.self.opts.ClientPort}
	if c.peers.gossip == nil {
		s := c.status()
		m := event.Member{
			Node: c.self.node, Alive: true, HTTPHost: c.self.opts.ClientHost, HTTPPort: c.self.opts.ClientPort, Voter: true,
			Priority: int(c.priority.Load()), Version: c.self.opts.Version, Time: time.Now(),
			ReplicationSecure: c.self.opts.Security != nil,
		}
		setAddress(&m, c.self.opts.Advertise)
		fill(&m, &s)
		view.Members = []event.Member{m}
		return view
	}
	leader, term := c.known()
	own := c.status()
	for _, g := range c.peers.members() {
		if p, ok := c.peers.get(g.Node); ok && g.Node != c.self.node && apart(&own, &p.status) {
			continue // It is not of the cluster that clients of this node mean.
		}
		m := event.Member{
			Node: g.Node, Alive: g.Alive, ReadOnly: g.ReadOnly, Priority: g.Priority, Version: g.Version,
			HTTPHost: g.HTTPHost, HTTPPort: g.HTTPPort, ReplicationSecure: c.self.opts.Security != nil,
			Time: g.Since, LastCommit: -1, Writer: -1, Chaser: -1, EpochPosition: -1,
		}
		setAddress(&m, g.ReplicationAddress)
		switch p, ok := c.peers.get(g.Node); {
		case g.Node == c.self.node:
			m.Time, m.Voter = time.Now(), c.votes(g)
			fill(&m, &own)
		case ok:
			m.Time, m.Voter = p.at, c.votes(g)
			fill(&m, &p.status)
		}
		if g.Node != c.self.node || !g.Alive {
			m.State = c.peers.stateOf(g)
		}
		if g.Node != c.self.node && g.Alive {
			follow(&m, leader, term)
		}
		view.Members = append(view.Members, m)
	}
	return view
}

// known returns who leads and in which term, as this node's raft knows. It knows
// sooner than others are asked what they are: clients who look for the leader
// in the view find it. Nobody leads a cluster that has fewer voters than it needs.
func (c *Cluster) known() (leader string, term uint64) {
	r := c.self.replica.Load()
	if r == nil {
		return "", 0
	}
	configuration, _, err := r.Configuration()
	if err != nil || voters(configuration) < c.self.opts.Size/2+1 {
		return "", 0
	}
	return c.leader(), r.raft.CurrentTerm()
}

// follow corrects what another node last said of itself by who leads now.
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

// votes reports whether a member counts in the quorum, as far as this node knows.
func (c *Cluster) votes(g gossip.Member) bool {
	if r := c.self.replica.Load(); r != nil {
		configuration, _, err := r.Configuration()
		if err != nil {
			return false
		}
		for _, server := range configuration.Servers {
			if string(server.ID) == g.Node.String() {
				return server.Suffrage == 0
			}
		}
	}
	return false
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
