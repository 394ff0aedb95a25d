package replication

import (
	"errors"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication/pipeline"
)

func leadershipOf(own *self, p *peers) *leadership {
	return &leadership{self: own, peers: p, incarnations: &incarnations{self: own, peers: p}, disk: new(disk), clock: new(Clock)}
}

// Who waits for leadership hears of each change, and of nothing else.
func TestLeadershipIsPublished(t *testing.T) {
	own := selfOf(1)
	l := leadershipOf(own, peersOf(own))
	_, changed := l.Current()
	l.Publish(pipeline.Leadership{})
	select {
	case <-changed:
		t.Error("nothing has changed")
	default:
	}
	l.Publish(pipeline.Leadership{Leading: true, Term: 3})
	select {
	case <-changed:
	default:
		t.Error("no listener heard of it")
	}
	if now, _ := l.Current(); !now.Leading || now.Term != 3 {
		t.Errorf("%+v", now)
	}
}

// A node whose raft does not run goes by what the others say of the leader.
func TestLeaderAsOthersSay(t *testing.T) {
	own := selfOf(1)
	l := leadershipOf(own, heardOf(own, follower(2, 3, 0), said(3, 0, event.StateLeader, 4)))
	if at, ok := l.address(); !ok || at != "10.0.0.1:1112" {
		t.Errorf("it is at %q, %t", at, ok)
	}
	if at, ok := l.redirect(); !ok || at != "https://10.0.0.1:2113" {
		t.Errorf("clients reach it at %q, %t", at, ok)
	}
	if leader, term := l.known(); leader != "" || term != 0 {
		t.Errorf("raft here knows %s, term %d", leader, term)
	}
	l = leadershipOf(own, heardOf(own, follower(2, 3, 0)))
	if at, ok := l.redirect(); ok {
		t.Errorf("no node leads, and clients are sent to %q", at)
	}
}

// A node stands aside for one with a higher priority, and always when it must not lead.
func TestOutranked(t *testing.T) {
	wrong := errors.New("wrong")
	for _, c := range []struct {
		name        string
		priority    int64
		others      int
		clock, data bool // it is wrong
		want        bool
	}{
		{name: "alike"},
		{name: "higher", priority: 2, others: 1},
		{name: "lower", others: 1, want: true},
		{name: "wrong clock", priority: 2, clock: true, want: true},
		{name: "another history", priority: 2, data: true, want: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			own := selfOf(1)
			other := follower(2, 3, 0)
			other.Priority = c.others
			l := leadershipOf(own, heardOf(own, other))
			check.Must(t, l.setPriority(int(c.priority)))
			if c.clock {
				l.clock.wrong.set(wrong)
			}
			if c.data {
				l.incarnations.diverged.set(wrong)
			}
			if l.outranked() != c.want {
				t.Errorf("outranked %t", !c.want)
			}
		})
	}
}

// A node that did not take the leadership is asked again when it has all that it lacked, or in
// another term.
func TestOffersOfLeadership(t *testing.T) {
	var o offers
	a, b := event.ID{1}, event.ID{2}
	check.Equal(t, o.open(7, Status{Node: a}), true, "before any offer")
	o.declined(7, a, 50)
	for _, c := range []struct {
		term uint64
		s    Status
		want bool
	}{
		{7, Status{Node: a, Last: 49}, false},
		{7, Status{Node: a, Last: 50}, true},
		{7, Status{Node: b, Last: 49}, true},
		{8, Status{Node: a, Last: 49}, true},
	} {
		check.Equal(t, o.open(c.term, c.s), c.want, "term ", c.term, " ", c.s.Node, " ", c.s.Last)
	}
	o.declined(8, b, 60)
	check.Equal(t, o.open(8, Status{Node: a, Last: 1}), true, "of the term before")
}
