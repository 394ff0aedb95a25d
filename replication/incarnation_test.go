package replication

import (
	"errors"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/gossip"
)

// heardOf are the peers of a node that heard those a moment ago.
func heardOf(own *self, said ...Status) *peers {
	var members []gossip.Member
	for i, s := range said {
		members = append(members, gossip.Member{Alive: true, Self: gossip.Self{
			Node: s.Node, Cluster: s.Cluster, Phase: phaseMember, ReplicationAddress: "10.0.0.1:1112",
			HTTPHost: "10.0.0.1", HTTPPort: 2113, Priority: s.Priority, HTTPSecure: i == 1,
		}})
	}
	p := peersOf(own, members...)
	for _, s := range said {
		p.put(s.Node, peer{at: time.Now(), status: s})
	}
	return p
}

// said is what a node says that runs, with itself alone in its configuration.
func said(node, incarnation byte, state event.NodeState, term uint64) Status {
	s := Status{
		Node: event.ID{node}, Cluster: event.ID{7}, State: state, Term: term, Running: true, HasLog: true, Incarnation: &event.ID{incarnation},
		Servers: []Server{{Node: event.ID{node}.String(), Voter: true}},
	}
	if state == event.StateLeader || state == event.StatePreLeader {
		s.Leader = s.Node.String()
	}
	return s
}

// follower is what a node says that follows another one.
func follower(node, leader, incarnation byte) Status {
	s := said(node, incarnation, event.StateFollower, 3)
	s.Leader = event.ID{leader}.String()
	s.Servers = []Server{{Node: s.Leader, Voter: true}, {Node: s.Node.String(), Voter: true}}
	return s
}

func selfOf(node byte) *self {
	s := &self{node: event.ID{node}, name: event.ID{node}.String()}
	s.opts.EnsureDefaults()
	s.logger = s.opts.Replica.Logger
	s.opts.Size = 3
	s.id.Store(&event.ID{7})
	return s
}

// A node without raft goes by the leader that acknowledges, and does not choose between two
// histories.
func TestGuide(t *testing.T) {
	for _, c := range []struct {
		name   string
		own    *incarnation
		others []Status
		want   byte // node; 0: none
		wantIs error
	}{
		{name: "no node was heard", wantIs: errNoLeader},
		{name: "no node leads", others: []Status{said(2, 0, event.StateFollower, 3)}, wantIs: errNoLeader},
		{name: "one leads", others: []Status{said(2, 0, event.StateLeader, 3), follower(3, 2, 0)}, want: 2},
		{name: "one acknowledges, another one does not", others: []Status{said(2, 0, event.StatePreLeader, 9), said(4, 0, event.StateLeader, 3)}, want: 4},
		{name: "two histories, one acknowledges", others: []Status{said(2, 5, event.StatePreLeader, 9), said(3, 0, event.StateLeader, 3)}, want: 3},
		{name: "two histories, both acknowledge", others: []Status{said(2, 5, event.StateLeader, 9), said(3, 0, event.StateLeader, 3)}},
		{name: "two histories, and this node follows one", own: &incarnation{fixed: true}, others: []Status{said(2, 5, event.StateLeader, 9), said(3, 0, event.StateLeader, 3)}, want: 3},
		{name: "only another history", own: &incarnation{fixed: true}, others: []Status{said(2, 5, event.StateLeader, 9)}, wantIs: errNoLeader},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := selfOf(1)
			own.incarnation.Store(c.own)
			h := &incarnations{self: own, peers: heardOf(own, c.others...)}
			s, err := h.guide()
			if (c.want == 0) != (err != nil) || c.wantIs != nil && !errors.Is(err, c.wantIs) || err == nil && s.Node != (event.ID{c.want}) {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}
