package bootstrap

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

func id(n byte) event.ID { return event.ID{n} }

// proposal is of cluster c, by the first of its members.
func proposal(c byte, members ...byte) *Proposal {
	p := &Proposal{Cluster: id(c), Proposer: id(members[0])}
	for _, m := range members {
		p.Members = append(p.Members, id(m))
	}
	return p
}

// fresh is a node that could be in a cluster of three.
func fresh(n byte) Peer {
	return Peer{Node: id(n), Address: string('a' + rune(n)), Alive: true, ClusterSize: 3}
}

func with(p Peer, change func(*Peer)) Peer {
	change(&p)
	return p
}

// bench drives one core by hand.
type bench struct {
	t       *testing.T
	core    *core
	now     time.Time
	peers   []Peer
	effects []effect
}

// newBench makes node n with what is set in o and in its record.
func newBench(t *testing.T, n byte, o Options, promise *Proposal, formed bool, peers ...Peer) *bench {
	t.Helper()
	o.Node = id(n)
	if o.ClusterSize == 0 {
		o.ClusterSize = 3
	}
	o.EnsureDefaults()
	clusters := byte(100)
	newID := func() event.ID { clusters++; return id(clusters) }
	record := Record{Node: o.Node, Promise: promise, Formed: formed}
	check.Must(t, record.Validate())
	return &bench{t: t, core: newCore(&o, record, newID), now: time.Unix(1e9, 0), peers: peers}
}

func (b *bench) step(in input) {
	in.now, in.peers = b.now, b.peers
	b.effects = b.core.step(in)
}

func (b *bench) tick(after time.Duration) {
	b.now = b.now.Add(after)
	b.step(input{})
}

func (b *bench) ask(r Request) Answer {
	b.t.Helper()
	b.step(input{request: &r})
	answers := only[reply](b)
	check.MustEqual(b.t, len(answers), 1, "answers")
	return answers[0].answer
}

func (b *bench) answered(from byte, a Answer) {
	a.Node = id(from)
	if a.ClusterSize == 0 {
		a.ClusterSize = 3
	}
	b.step(input{result: &result{to: id(from), answer: a}})
}

func only[E effect](b *bench) []E {
	var found []E
	for _, e := range b.effects {
		if e, ok := e.(E); ok {
			found = append(found, e)
		}
	}
	return found
}

// quiet leaves out log lines.
func (b *bench) quiet() []effect {
	return slices.DeleteFunc(slices.Clone(b.effects), func(e effect) bool { _, ok := e.(say); return ok })
}

func (b *bench) want(effects ...effect) {
	b.t.Helper()
	if got := b.quiet(); !reflect.DeepEqual(got, effects) && len(got)+len(effects) > 0 {
		b.t.Errorf("effects\n%+v, want\n%+v", got, effects)
	}
}

func (b *bench) wantSaid(level hclog.Level, parts ...string) {
	b.t.Helper()
	for _, s := range only[say](b) {
		line := s.message
		for _, arg := range readable(s.args) {
			line += " " + strings.TrimSpace(strings.Join(strings.Fields(toText(arg)), " "))
		}
		if s.level == level && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
			return
		}
	}
	b.t.Errorf("nothing said at level %s about %q: %+v", level, parts, only[say](b))
}

func toText(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case []string:
		return strings.Join(arg, " ")
	}
	return ""
}

func to(n byte, kind Kind, from byte, p *Proposal) call {
	return call{id(n), fresh(n).Address, Request{Kind: kind, From: id(from), Proposal: p}}
}

func saved(n byte, p *Proposal, formed bool) save {
	return save{Record{Node: id(n), Promise: p, Formed: formed}}
}

func decided(c byte, form bool) decide { return decide{Outcome{Cluster: id(c), Form: form}} }

func TestPromise(t *testing.T) {
	all := []Peer{fresh(1), fresh(3), fresh(4)}
	but := func(n byte, change func(*Peer)) []Peer {
		peers := slices.Clone(all)
		for i := range peers {
			if peers[i].Node == id(n) {
				change(&peers[i])
			}
		}
		return peers
	}
	p := proposal(50, 1, 2, 3)
	cases := []struct {
		name     string
		o        Options
		promise  *Proposal // held before
		formed   bool
		peers    []Peer
		from     byte
		proposal *Proposal
		want     Refusal
		saves    bool
	}{
		{name: "given", peers: all, proposal: p, saves: true},
		{name: "repeated", promise: p, peers: all, proposal: p},
		{name: "repeated by a proposer out of sight", promise: p, proposal: p},
		{name: "repeated after a restart with other settings", o: Options{ClusterSize: 5, ReadOnly: true}, promise: p, proposal: p},
		{name: "bound to another cluster of the same proposer", promise: proposal(51, 1, 2, 3), peers: all, proposal: p, want: IsBound},
		{name: "bound to another proposer", promise: proposal(51, 2, 3, 4), peers: all, proposal: p, want: IsBound},
		{name: "the same cluster id with another set", promise: proposal(50, 1, 2, 4), peers: all, proposal: p, want: IsBound},
		{name: "a member", o: Options{Cluster: id(60)}, peers: all, proposal: p, want: IsMember},
		{name: "formed its own", promise: proposal(51, 2, 3, 4), formed: true, peers: all, proposal: p, want: IsMember},
		{name: "read-only", o: Options{ReadOnly: true}, peers: all, proposal: p, want: IsReadOnly},
		{name: "expects five", o: Options{ClusterSize: 5}, peers: all, proposal: p, want: OtherSize},
		{name: "not in the set", peers: all, proposal: proposal(50, 1, 3, 4), want: NotInSet},
		{name: "proposer is not the lowest", peers: all, proposal: &Proposal{id(50), id(3), p.Members}, from: 3, want: WrongProposer},
		{name: "sender is not the proposer", peers: all, proposal: p, from: 3, want: WrongProposer},
		{name: "its own", peers: all, proposal: proposal(50, 2, 3, 4), from: 2, want: WrongProposer},
		{name: "a member is not seen", peers: all[:1], proposal: p, want: NotYet},
		{name: "the proposer is not seen", peers: all[1:], proposal: p, want: NotYet},
		{name: "a member is dead", peers: but(3, func(p *Peer) { p.Alive = false }), proposal: p, want: NotYet},
		{name: "a member is read-only", peers: but(3, func(p *Peer) { p.ReadOnly = true }), proposal: p, want: NotYet},
		{name: "a member expects five", peers: but(3, func(p *Peer) { p.ClusterSize = 5 }), proposal: p, want: NotYet},
		{name: "a member has a cluster", peers: but(3, func(p *Peer) { p.Cluster = id(60) }), proposal: p, want: SeesCluster},
		{name: "another node has a cluster", peers: but(4, func(p *Peer) { p.Cluster = id(60) }), proposal: p, want: SeesCluster},
		{name: "a dead node has a cluster", peers: but(4, func(p *Peer) { p.Cluster, p.Alive = id(60), false }), proposal: p, want: SeesCluster},
		{name: "without a cluster id", peers: all, proposal: proposal(0, 1, 2, 3), want: Invalid},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 2, c.o, c.promise, c.formed, c.peers...)
			from := c.from
			if from == 0 {
				from = 1
			}
			a := b.ask(Request{Kind: Promise, From: id(from), Proposal: c.proposal})
			check.Equal(t, a.Refusal, c.want, "refusal")
			check.Equal(t, c.proposal.is(a.Promise), c.want == "", "the answer shows the promise")
			if first, ok := b.quiet()[0].(save); ok != c.saves || ok && !first.record.Promise.is(c.proposal) {
				t.Errorf("effects %+v", b.quiet())
			}
		})
	}
}

func TestFormation(t *testing.T) {
	b := newBench(t, 1, Options{}, nil, false, fresh(2))
	b.tick(0)
	b.want(to(2, Ask, 1, nil))
	b.answered(2, Answer{})
	b.peers = append(b.peers, fresh(3), fresh(4))
	b.tick(100 * time.Millisecond)
	p := proposal(101, 1, 2, 3)
	b.want(saved(1, p, false), to(2, Promise, 1, p), to(3, Promise, 1, p), to(4, Ask, 1, nil))
	b.tick(50 * time.Millisecond)
	b.want()
	b.answered(3, Answer{Refusal: NotYet})
	b.answered(4, Answer{})
	b.answered(2, Answer{Promise: p})
	b.tick(49 * time.Millisecond)
	b.want()
	b.tick(time.Millisecond)
	b.want(to(3, Promise, 1, p))
	b.answered(3, Answer{Promise: p})
	b.want(saved(1, p, true), decided(101, true))

	if a := b.core.passive(Request{Kind: Ask, From: id(2), Proposal: p}); a.Cluster != id(101) || a.Refusal != "" {
		t.Errorf("afterwards a lagging member hears %+v", a)
	}
}

func TestOnlyTheLowestProposes(t *testing.T) {
	for name, c := range map[string]struct {
		node byte
		o    Options
	}{"not the lowest": {2, Options{}}, "surplus": {4, Options{}}, "read-only": {1, Options{ReadOnly: true}}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.node, c.o, nil, false, fresh(5), fresh(6), fresh(7))
			if !c.o.ReadOnly {
				b.peers = append(b.peers, fresh(1))
			}
			b.tick(0)
			if len(only[save](b)) > 0 {
				t.Errorf("effects %+v", b.effects)
			}
			b.answered(5, Answer{Cluster: id(60)})
			b.want(decided(60, false))
		})
	}
}

func TestClusterOfOne(t *testing.T) {
	alone := func(p *Peer) { p.ClusterSize = 1 }
	for name, peers := range map[string][]Peer{"alone": nil, "another of its kind": {with(fresh(1), alone)}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2, Options{ClusterSize: 1}, nil, false, peers...)
			b.tick(0)
			b.want(saved(2, proposal(101, 2), false), saved(2, proposal(101, 2), true), decided(101, true))
		})
	}
	b := newBench(t, 2, Options{ClusterSize: 1}, nil, false, with(fresh(1), func(p *Peer) { p.Cluster = id(60) }))
	b.tick(0)
	b.want(decided(60, false))
}

func TestRestart(t *testing.T) {
	own, other := proposal(50, 2, 3, 4), proposal(50, 1, 2, 3)
	member := with(fresh(4), func(p *Peer) { p.Cluster = id(50) })
	cases := []struct {
		name    string
		o       Options
		promise *Proposal
		formed  bool
		peers   []Peer
		want    []effect
	}{
		{name: "own open proposal", promise: own, peers: []Peer{fresh(3), fresh(4)}, want: []effect{to(3, Promise, 2, own), to(4, Promise, 2, own)}},
		{name: "formed", promise: own, formed: true, want: []effect{decided(50, true)}},
		{name: "formed, and another cluster in sight", promise: own, formed: true,
			peers: []Peer{with(fresh(9), func(p *Peer) { p.Cluster = id(60) })}, want: []effect{decided(50, true)}},
		{name: "formed, with state", o: Options{Cluster: id(50)}, promise: own, formed: true, want: []effect{decided(50, false)}},
		{name: "bound", promise: other, peers: []Peer{fresh(1), fresh(3)}, want: []effect{to(1, Ask, 2, other)}},
		{name: "bound, cluster in sight", promise: other, peers: []Peer{member}, want: []effect{decided(50, false)}},
		{name: "bound, its and another cluster in sight", promise: other,
			peers: []Peer{with(fresh(9), func(p *Peer) { p.Cluster = id(60) }), member}, want: []effect{decided(50, false)}},
		{name: "bound, another cluster in sight", promise: other, peers: []Peer{with(fresh(9), func(p *Peer) { p.Cluster = id(60) })}},
		{name: "bound, with state of another cluster", o: Options{Cluster: id(60)}, promise: other, want: []effect{decided(60, false)}},
		{name: "state", o: Options{Cluster: id(60)}, want: []effect{decided(60, false)}},
		{name: "state, and own open proposal", o: Options{Cluster: id(60)}, promise: own, want: []effect{saved(2, nil, false), decided(60, false)}},
		{name: "another size", o: Options{ClusterSize: 5}, promise: own, peers: []Peer{fresh(3)},
			want: []effect{saved(2, nil, false), to(3, GaveUp, 2, own)}},
		{name: "read-only", o: Options{ReadOnly: true}, promise: own, peers: []Peer{fresh(3)},
			want: []effect{saved(2, nil, false), to(3, GaveUp, 2, own)}},
		{name: "own open proposal, a cluster in sight", promise: own, peers: []Peer{member},
			want: []effect{saved(2, nil, false), to(4, GaveUp, 2, own), decided(50, false)}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 2, c.o, c.promise, c.formed, c.peers...)
			b.tick(0)
			b.want(c.want...)
		})
	}
}

// TestRelease shows that the proposer's own word about that very cluster ends a
// promise, and nothing else does.
func TestRelease(t *testing.T) {
	bond := proposal(50, 1, 2, 3)
	told := func(from byte, p *Proposal) func(*bench) {
		return func(b *bench) { b.ask(Request{Kind: GaveUp, From: id(from), Proposal: p}) }
	}
	cases := []struct {
		name     string
		happens  func(b *bench)
		released bool
	}{
		{"the proposer answers", func(b *bench) { b.answered(1, Answer{GaveUp: id(50)}) }, true},
		{"the proposer tells", told(1, bond), true},
		{"another node answers", func(b *bench) { b.answered(3, Answer{GaveUp: id(50)}) }, false},
		{"another node at the proposer's address", func(b *bench) {
			b.step(input{result: &result{to: id(1), answer: Answer{Node: id(9), GaveUp: id(50), ClusterSize: 3}}})
		}, false},
		{"another node tells", told(3, bond), false},
		{"the proposer gave up another", func(b *bench) { b.answered(1, Answer{GaveUp: id(51)}) }, false},
		{"the proposer tells of another", told(1, proposal(51, 1, 2, 3)), false},
		{"the proposer has another", func(b *bench) { b.answered(1, Answer{Promise: proposal(51, 1, 2, 3)}) }, false},
		{"the proposer wants another promise", func(b *bench) {
			b.ask(Request{Kind: Promise, From: id(1), Proposal: proposal(51, 1, 2, 3)})
		}, false},
		{"the proposer does not answer", func(b *bench) { b.step(input{result: &result{to: id(1), err: errors.New("refused")}}) }, false},
		{"a day", func(b *bench) { b.tick(24 * time.Hour) }, false},
		{"the proposer is dead", func(b *bench) { b.peers[0].Alive = false; b.tick(time.Hour) }, false},
		{"the proposer is forgotten", func(b *bench) { b.peers = b.peers[1:]; b.tick(time.Hour) }, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 2, Options{}, bond, false, fresh(1), fresh(3))
			b.tick(0)
			c.happens(b)
			check.Equal(t, b.core.record.Promise == nil, c.released, "released")
			if saves := len(only[save](b)); (saves > 0) != c.released {
				t.Errorf("%d saves", saves)
			}
		})
	}
}

// TestGaveUpAnswer shows when a node says that it will never form a proposal.
func TestGaveUpAnswer(t *testing.T) {
	own, earlier := proposal(50, 2, 3, 4), proposal(49, 2, 3, 4)
	for name, c := range map[string]struct {
		holds, about *Proposal
		formed       bool
		want         event.ID
	}{
		"the one it holds":             {holds: own, about: own},
		"the one it formed":            {holds: own, about: own, formed: true},
		"an earlier one":               {holds: own, about: earlier, want: id(49)},
		"one before the one it formed": {holds: own, about: earlier, formed: true, want: id(49)},
		"one, holding none":            {about: own, want: id(50)},
		"one, bound to another":        {holds: proposal(48, 1, 2, 3), about: own, want: id(50)},
		"another node's":               {holds: own, about: proposal(48, 1, 2, 3)},
		"none":                         {holds: own},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2, Options{}, c.holds, c.formed)
			r := Request{Kind: Ask, From: id(3), Proposal: c.about}
			check.Equal(t, b.core.passive(r).GaveUp, c.want, "passive: gave up")
			check.Equal(t, b.ask(r).GaveUp, c.want, "gave up")
		})
	}
}

// TestGiveUp shows when a proposer gives its proposal up and when it continues.
func TestGiveUp(t *testing.T) {
	own := proposal(50, 2, 3, 4)
	lower, higher := proposal(51, 1, 3, 5), proposal(52, 3, 4, 6)
	dead := func(p *Peer) { p.Alive = false }
	cases := []struct {
		name    string
		happens func(b *bench)
		gaveUp  bool
	}{
		{"a lower node appears", func(b *bench) { b.peers = append(b.peers, fresh(1)) }, false},
		{"a cluster appears", func(b *bench) { b.peers = append(b.peers, with(fresh(9), func(p *Peer) { p.Cluster = id(60) })) }, true},
		{"a member says it has a cluster", func(b *bench) { b.answered(3, Answer{Cluster: id(60)}) }, true},
		{"a member is bound to a lower proposer", func(b *bench) { b.answered(3, Answer{Promise: lower}) }, true},
		{"a member is bound to a higher proposer", func(b *bench) { b.answered(3, Answer{Promise: higher}) }, false},
		{"a member is bound to one given up before", func(b *bench) { b.answered(3, Answer{Promise: proposal(49, 2, 3, 5)}) }, false},
		{"a member is gone", func(b *bench) { b.peers[0].Alive = false }, false},
		{"a member is gone, another is there", func(b *bench) {
			b.peers[0].Alive = false
			b.peers = append(b.peers, fresh(5))
		}, true},
		{"a member that promised is gone, another is there", func(b *bench) {
			b.answered(3, Answer{Promise: own})
			b.peers[0].Alive = false
			b.peers = append(b.peers, fresh(5))
		}, true},
		{"a member is forgotten, another is there", func(b *bench) { b.peers = []Peer{fresh(4), fresh(5)} }, true},
		{"a member does not answer, another is there", func(b *bench) {
			b.step(input{result: &result{to: id(3), err: errors.New("refused")}})
			b.peers = append(b.peers, fresh(5))
		}, true},
		{"a member is bound to a dead proposer, another is there", func(b *bench) {
			b.answered(4, Answer{Promise: higher})
			b.peers = []Peer{with(fresh(3), dead), fresh(4), fresh(5), fresh(6)}
		}, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, 2, Options{}, own, false, fresh(3), fresh(4))
			b.tick(0)
			c.happens(b)
			b.tick(0)
			b.tick(9 * time.Second)
			b.tick(2 * time.Second)
			if gaveUp := b.core.record.Promise == nil || b.core.record.Promise.Cluster != own.Cluster; gaveUp != c.gaveUp {
				t.Errorf("gave up: %t", gaveUp)
			}
		})
	}
}

// TestNotWithoutPatience shows that a member that is away only for a moment costs no proposal.
func TestNotWithoutPatience(t *testing.T) {
	own := proposal(50, 2, 3, 4)
	b := newBench(t, 2, Options{}, own, false, fresh(3), fresh(4), fresh(5))
	for range 5 {
		b.peers[0].Alive = false
		b.tick(9 * time.Second)
		b.tick(time.Millisecond)
		b.peers[0].Alive = true
		b.tick(9 * time.Second)
	}
	check.Equal(t, b.core.own(), own, "gave up")
	b.peers[0].Alive, b.peers[0].Since = false, b.now.Add(-10*time.Second)
	b.tick(time.Millisecond)
	b.want(saved(2, nil, false), saved(2, proposal(101, 2, 4, 5), false))
}

func TestProposeOnlyToTheFree(t *testing.T) {
	b := newBench(t, 1, Options{}, nil, false, fresh(2), fresh(3))
	b.peers[1].Alive = false
	b.tick(0)
	b.answered(2, Answer{Promise: proposal(50, 2, 3, 4)})
	b.peers = []Peer{fresh(2), fresh(3)}
	b.tick(100 * time.Millisecond)
	b.want(to(2, Ask, 1, nil), to(3, Ask, 1, nil))
	b.answered(3, Answer{})
	b.answered(2, Answer{})
	b.want(saved(1, proposal(101, 1, 2, 3), false))
}

func TestConflict(t *testing.T) {
	b := newBench(t, 1, Options{}, nil, false,
		with(fresh(2), func(p *Peer) { p.Cluster = id(60) }), with(fresh(3), func(p *Peer) { p.Cluster = id(61) }))
	b.tick(0)
	b.want()
	b.wantSaid(hclog.Error, "different clusters", id(60).String(), id(61).String())
	b.tick(time.Second)
	if len(b.effects) > 0 {
		t.Errorf("effects %+v", b.effects)
	}
	b.tick(30 * time.Second)
	b.wantSaid(hclog.Error, "different clusters")
	b.peers = b.peers[1:]
	b.tick(time.Second)
	b.want(decided(61, false))
}

func TestReports(t *testing.T) {
	dead := func(p *Peer) { p.Alive = false }
	five := func(p *Peer) { p.ClusterSize = 5 }
	for name, c := range map[string]struct {
		promise *Proposal
		level   hclog.Level
		parts   []string
	}{
		"bound": {proposal(50, 1, 2, 3), hclog.Warn, []string{
			id(50).String(), "dead", "bring node " + id(1).String() + " back", "remove its raft, which holds nothing yet",
		}},
		"proposer": {proposal(50, 2, 3, 4), hclog.Warn, []string{id(3).String() + ": expects a cluster of 5", id(4).String() + ": not seen"}},
		"free":     {nil, hclog.Info, []string{id(1).String() + ": dead", id(3).String() + ": expects a cluster of 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2, Options{}, c.promise, false, with(fresh(1), dead), with(fresh(3), five))
			for range 3 {
				b.tick(0)
				b.tick(29 * time.Second)
				if len(only[say](b)) > 0 {
					t.Errorf("too early: %+v", only[say](b))
				}
				b.tick(time.Second)
				b.wantSaid(c.level, c.parts...)
			}
		})
	}
}

// TestBackoff shows how often a node is called that does not answer.
func TestBackoff(t *testing.T) {
	b := newBench(t, 2, Options{}, proposal(50, 1, 2, 3), false, fresh(1))
	var at []time.Duration
	start := b.now
	b.step(input{})
	for b.now.Sub(start) < 8*time.Second {
		if len(only[call](b)) > 0 {
			at = append(at, b.now.Sub(start))
			b.step(input{result: &result{to: id(1), err: errors.New("refused")}})
		}
		b.tick(100 * time.Millisecond)
	}
	want := []time.Duration{0, 200, 600, 1400, 3000, 5000, 7000}
	for i := range want {
		want[i] *= time.Millisecond
	}
	check.Slice(t, at, want, "called at")
}
