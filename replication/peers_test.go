package replication

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/gossip"
)

// known is gossip that knows the same members all the time.
type known []gossip.Member

func (k known) Members() []gossip.Member      { return k }
func (known) Changed() <-chan struct{}        { return nil }
func (known) Update(func(*gossip.Self)) error { return nil }
func peersOf(own *self, members ...gossip.Member) *peers {
	return &peers{self: own, gossip: known(members), poke: make(chan struct{}, 1), byID: make(map[event.ID]peer)}
}

// What a node said counts for five seconds, and where its log ended is known for a moment before.
func TestPeersThatWereHeard(t *testing.T) {
	cluster, a := event.ID{7}, event.ID{2}
	own := &self{node: event.ID{1}}
	own.id.Store(&cluster)
	p := peersOf(own, gossip.Member{Self: gossip.Self{Node: own.node}, Alive: true}, gossip.Member{Self: gossip.Self{Node: a, ReplicationAddress: "a:1"}, Alive: true}, gossip.Member{Self: gossip.Self{Node: event.ID{3}}})
	if others := p.others(); len(others) != 1 || others[0].Node != a {
		t.Errorf("others: %+v", others)
	}
	if m, ok := p.find("a:1"); !ok || m.Node != a {
		t.Errorf("found %+v", m)
	}
	say := func(end int64, at time.Time) {
		p.put(a, peer{at: at, status: Status{Node: a, Cluster: cluster, HasLog: true, Tail: event.Tail{End: end}}})
	}
	now := time.Now()
	say(10, now.Add(-2*peerPace))
	say(20, now.Add(-peerPace))
	say(30, now)
	said, ok := p.heard(a.String())
	if !ok || said.status.Tail.End != 30 || said.before.end != 20 || len(p.heardOthers()) != 1 {
		t.Errorf("heard %t: %+v", ok, said)
	}
	say(30, now.Add(-2*heardFor))
	if _, ok := p.heard(a.String()); ok {
		t.Error("what it said long ago counts")
	}
	if p.keep(nil); len(p.all()) != 0 {
		t.Errorf("kept %+v", p.all())
	}
}

// Fetching is throttled by how fast the cluster's log grows, as far as that is known.
func TestGrowth(t *testing.T) {
	cluster, a := event.ID{7}, event.ID{2}
	own := &self{node: event.ID{1}}
	own.id.Store(&cluster)
	type step struct {
		after time.Duration
		end   int64
		more  int64 // what another node has beyond 500 bytes
	}
	for _, c := range []struct {
		name  string
		steps []step
		later time.Duration
		speed float64
		known bool
	}{
		{name: "nothing seen"},
		{name: "seen once", steps: []step{{0, 1000, 0}}},
		{"at rest", []step{{0, 1000, 0}, {time.Second, 1000, 0}}, 0, 0, true},
		{"growing", []step{{0, 1000, 0}, {time.Second, 1000, 0}, {time.Second, 3000, 0}}, 0, 2000, true},
		{"too soon to tell", []step{{0, 1000, 0}, {100 * time.Millisecond, 9000, 0}}, 0, 0, false},
		{"long ago", []step{{0, 1000, 0}, {time.Second, 2000, 0}}, time.Minute, 0, false},
		{"seen again after long", []step{{0, 1000, 0}, {time.Hour, 2000, 0}}, 0, 0, false},
		{"another catches up", []step{{0, 1000, 0}, {time.Second, 1000, 0}, {time.Second, 1000, 500}}, 0, 0, true},
		{"another overtakes", []step{{0, 1000, 0}, {time.Second, 1000, 0}, {time.Second, 1000, 700}}, 0, 200, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := peersOf(own, gossip.Member{Self: gossip.Self{Node: a}, Alive: true}, gossip.Member{Self: gossip.Self{Node: event.ID{3}}, Alive: true})
				for _, s := range c.steps {
					time.Sleep(s.after)
					p.put(a, peer{at: time.Now(), status: Status{Node: a, Cluster: cluster, HasLog: true, Tail: event.Tail{End: s.end}}})
					p.put(event.ID{3}, peer{at: time.Now(), status: Status{Node: event.ID{3}, Cluster: cluster, HasLog: true, Tail: event.Tail{End: 500 + s.more}}})
				}
				time.Sleep(c.later)
				if speed, known := p.growth(); speed != c.speed || known != c.known {
					t.Errorf("%v bytes a second, known %t; want %v, %t", speed, known, c.speed, c.known)
				}
			})
		})
	}
}
