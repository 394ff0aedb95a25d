package replication

import (
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication/gossip"
)

// A view shows each member as it said last, corrected by what raft here knows of the leader.
func TestView(t *testing.T) {
	own, a, b := event.ID{1}, event.ID{2}, event.ID{3}
	begun, now := time.Unix(100, 0), time.Unix(200, 0)
	said := func(id event.ID, state event.NodeState, term uint64) peer {
		return peer{at: time.Unix(150, 0), status: Status{Node: id, State: state, Term: term, HasLog: true, Tail: event.Tail{End: 70}, LastRecord: 60, Epoch: 50}}
	}
	other := said(b, event.StateFollower, 4)
	other.status.Incarnation = &event.ID{9}
	for _, c := range []struct {
		name   string
		g      gossip.Member
		said   map[event.ID]peer
		leader string
		term   uint64
		want   event.NodeState
		gone   bool // not in the view
		writer int64
	}{
		{name: "it was not heard", g: gossip.Member{Self: gossip.Self{Node: a}, Alive: true}, want: event.StateUnknown, writer: -1},
		{name: "it follows", g: gossip.Member{Self: gossip.Self{Node: a}, Alive: true}, said: map[event.ID]peer{a: said(a, event.StateFollower, 4)}, want: event.StateFollower, writer: 70},
		{name: "it has left", g: gossip.Member{Self: gossip.Self{Node: a}, Left: true}, said: map[event.ID]peer{a: said(a, event.StateFollower, 4)}, want: event.StateShuttingDown, writer: 70},
		{name: "it is dead", g: gossip.Member{Self: gossip.Self{Node: a}}, want: event.StateShutdown, writer: -1},
		{name: "it leads since", g: gossip.Member{Self: gossip.Self{Node: a}, Alive: true}, said: map[event.ID]peer{a: said(a, event.StateFollower, 4)}, leader: a.String(), term: 5, want: event.StateLeader, writer: 70},
		{name: "it led before", g: gossip.Member{Self: gossip.Self{Node: a}, Alive: true}, said: map[event.ID]peer{a: said(a, event.StateLeader, 4)}, leader: b.String(), term: 5, want: event.StateUnknown, writer: 70},
		{name: "it resigns", g: gossip.Member{Self: gossip.Self{Node: a}, Alive: true}, said: map[event.ID]peer{a: said(a, event.StateResigningLeader, 5)}, leader: a.String(), term: 5, want: event.StateResigningLeader, writer: 70},
		{name: "it follows another history", g: gossip.Member{Self: gossip.Self{Node: b}, Alive: true}, said: map[event.ID]peer{b: other}, gone: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.g.ReplicationAddress, c.g.Since = "10.0.0.2:1112", begun
			s := viewInput{
				now: now, opts: &ClusterOptions{ClientHost: "own", ClientPort: 2113}, own: Status{Node: own, State: event.StateFollower, Incarnation: new(event.ID)},
				members: []gossip.Member{{Self: gossip.Self{Node: own}, Alive: true}, c.g}, said: c.said, voters: map[string]bool{own.String(): true},
				leader: c.leader, term: c.term,
			}
			v := s.view()
			if v.ServerHost != "own" || v.ServerPort != 2113 || v.Members[0].State != event.StateFollower || !v.Members[0].Voter || !v.Members[0].Time.Equal(now) {
				t.Errorf("this node: %+v", v)
			}
			if c.gone {
				check.Equal(t, len(v.Members), 1, v.Members)
				return
			}
			m := v.Members[1]
			if m.State != c.want || m.Writer != c.writer || m.Voter || m.ReplicationHost != "10.0.0.2" || m.ReplicationPort != 1112 || m.Time.Equal(begun) == (c.said != nil) {
				t.Errorf("%+v", m)
			}
		})
	}
}

// A cluster of one shows its node.
func TestViewOfOne(t *testing.T) {
	s := viewInput{opts: &ClusterOptions{ClientHost: "own", ClientPort: 2113}, own: Status{Node: event.ID{1}, State: event.StateLeader, Address: "10.0.0.1:1112", Term: 2}}
	v := s.view()
	if len(v.Members) != 1 || v.Members[0].State != event.StateLeader || !v.Members[0].Voter || !v.Members[0].Alive || v.Members[0].ReplicationPort != 1112 || v.Members[0].EpochNumber != 2 {
		t.Errorf("%+v", v)
	}
}
