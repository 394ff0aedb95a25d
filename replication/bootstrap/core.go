package bootstrap

import (
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// core is a node's part in finding or forming a cluster, without clock, disk
// and network: step takes what happened and returns what to do.
type core struct {
	situation // its record is durable once the effects returned with it are carried out

	o        *Options
	newID    func() event.ID
	now      time.Time
	peers    peers
	decided  bool
	reported time.Time // when the last line about waiting was written
	conflict bool      // clusters in conflict have been reported
	effects  []effect
}

func newCore(o *Options, record Record, newID func() event.ID) *core {
	return &core{situation: newSituation(o, record), o: o, newID: newID}
}

func (c *core) do(e effect) { c.effects = append(c.effects, e) }

func (c *core) step(in input) []effect {
	c.now, c.effects = in.now, nil
	if c.reported.IsZero() {
		c.reported = c.now
	}
	c.look(in.peers)
	if in.result != nil {
		c.learn(in.result)
	}
	c.judge()
	if in.request != nil {
		c.handle(in.request)
	}
	if !c.decided {
		c.advance()
	}
	return c.effects
}

// hold replaces the one promise of this node, durably.
func (c *core) hold(p *Proposal, formed bool) {
	c.record = Record{Node: c.node, Promise: p, Formed: formed}
	c.reported = c.now
	c.do(save{c.record})
}

func (c *core) finish(cluster event.ID, form bool) {
	c.cluster, c.decided = cluster, true
	c.do(decide{Outcome{Cluster: cluster, Form: form}})
}

// learn takes in how a call ended.
func (c *core) learn(r *result) {
	p := c.peers.find(r.to)
	if p == nil {
		return
	}
	p.calling = false
	// Another node at that address answers for itself, not for the node that was called.
	if r.err != nil || r.answer.Validate() != nil || r.answer.Node != r.to {
		p.failures++
		return
	}
	p.failures, p.heard = 0, &r.answer
	if bond := c.bond(); bond != nil && bond.Proposer == r.answer.Node && bond.Cluster == r.answer.GaveUp {
		c.release()
	}
}

// place names a node for an operator: by its address, or by its id if that is not known.
func (c *core) place(node event.ID) string {
	if p := c.peers.find(node); p != nil && p.Address != "" {
		return p.Address
	}
	if node == c.node {
		return "this node"
	}
	return node.String()
}

// release is called with the proposer's own word that it gave up the proposal
// that this node is bound to. Nothing else ends a promise.
func (c *core) release() {
	c.do(say{hclog.Info, "not promised any more: the proposer gave up its cluster", []any{
		keyCluster, c.record.Promise.Cluster, keyProposer, c.record.Promise.Proposer,
	}})
	c.hold(nil, false)
}

// handle answers a request of another node.
func (c *core) handle(r *Request) {
	if r.Validate() != nil {
		a := c.answer(&Request{})
		a.Refusal = Invalid
		c.do(reply{a})
		return
	}
	var refusal Refusal
	switch bond := c.bond(); {
	case r.Kind == Promise:
		refusal = c.promise(r)
	case r.Kind == GaveUp && r.From == r.Proposal.Proposer && bond != nil && bond.is(r.Proposal):
		c.release()
	}
	a := c.answer(r)
	a.Refusal = refusal
	c.do(reply{a})
}

// promise binds this node to a proposal, or says why it does not.
func (c *core) promise(r *Request) Refusal {
	p := r.Proposal
	switch {
	case r.From != p.Proposer || p.Proposer != p.Members[0] || p.Proposer == c.node:
		return WrongProposer
	case p.is(c.record.Promise):
		return "" // given before: the answer was lost, or the proposer started again
	case !c.cluster.IsZero():
		return IsMember
	case c.record.Promise != nil:
		return IsBound
	case c.readOnly:
		return IsReadOnly
	case len(p.Members) != c.size:
		return OtherSize
	case !p.has(c.node):
		return NotInSet
	case len(c.clusters()) > 0:
		return SeesCluster
	}
	for _, member := range p.Members {
		if member == c.node {
			continue
		}
		if known := c.peers.find(member); known == nil || !c.fits(known) {
			return NotYet
		}
	}
	if proposer := c.peers.find(p.Proposer); proposer != nil {
		proposer.called = c.now // it is at work: no need to ask it at once
	}
	members := make([]string, len(p.Members))
	for i, m := range p.Members {
		members[i] = c.place(m)
	}
	c.do(say{hclog.Info, "joining the cluster that " + c.place(p.Proposer) + " proposes", []any{keyCluster, p.Cluster, keyMembers, members}})
	c.hold(p, false)
	return ""
}

// advance does what the situation asks for. Its parts stand in the order in
// which one leads to the next.
func (c *core) advance() {
	if own := c.own(); own != nil && !c.record.Formed {
		if why := c.reasonToGiveUp(own); why != "" {
			c.giveUp(own, why)
		}
	}
	if !c.cluster.IsZero() { // it has state, or formed its cluster before it stopped
		c.finish(c.cluster, c.record.Formed && c.o.Cluster.IsZero())
		return
	}
	if c.record.Promise == nil && !c.search() {
		return
	}
	if own := c.own(); own != nil {
		c.pursue(own)
		return
	}
	c.await(c.bond())
}

// search is the step of a node that is not bound: it joins an existing cluster, makes a due
// proposal, or asks the other nodes. It reports whether it proposed.
func (c *core) search() bool {
	switch seen := c.clusters(); {
	case len(seen) == 1:
		c.do(say{hclog.Info, "a cluster exists: joining it", []any{keyCluster, seen[0]}})
		c.finish(seen[0], false)
		return false
	case len(seen) > 1:
		c.reportConflict(seen)
		return false
	}
	candidates := c.candidates()
	if c.size == 1 {
		candidates = []event.ID{c.node} // each such node is a full set
	}
	if len(candidates) >= c.size && candidates[0] == c.node && c.allFree(candidates[:c.size]) {
		p := &Proposal{Cluster: c.newID(), Proposer: c.node, Members: candidates[:c.size:c.size]}
		c.do(say{hclog.Info, "proposing a cluster", []any{keyCluster, p.Cluster, keyMembers, p.Members}})
		c.hold(p, false)
		return true
	}
	c.askAround()
	c.reportSearch(candidates)
	return false
}

// allFree reports whether no node of a set said that it is bound elsewhere.
// Proposing to a bound node would only bind the others to something that cannot be yet.
func (c *core) allFree(set []event.ID) bool {
	return !slices.ContainsFunc(set, func(node event.ID) bool {
		p := c.peers.find(node)
		return p != nil && c.boundElsewhere(p) != nil
	})
}

// askAround learns from the others what gossip has not brought yet, and
// whether those that are bound still are.
func (c *core) askAround() {
	asked := 0
	for _, p := range c.peers {
		if !p.inView || !p.Alive || asked == MaxClusterSize {
			continue
		}
		asked++
		interval := askInterval
		if c.boundElsewhere(p) != nil {
			interval = pollInterval
		}
		c.request(p, Ask, nil, interval)
	}
}

// reasonToGiveUp returns why an open proposal should not be pursued any longer; empty if it should.
func (c *core) reasonToGiveUp(own *Proposal) string {
	switch {
	case !c.cluster.IsZero():
		return "this node is a member of a cluster"
	case c.readOnly || len(own.Members) != c.size:
		return "this node was started with other settings"
	case len(c.clusters()) > 0:
		return "a cluster exists"
	}
	complete, gone := true, false
	for _, member := range own.Members {
		p := c.peers.find(member)
		if p == nil { // this node itself
			continue
		}
		// One that promised and went away counts as gone too: the others do not
		// promise themselves to a set that they do not see alive.
		gone = gone || c.gone(p)
		if c.holdsPromise(p, own) {
			continue
		}
		complete = false
		// Of two proposers that hold what the other needs the higher one gives
		// way, so that they never wait for each other in a circle.
		if bond := c.boundElsewhere(p); bond != nil && compare(bond.Proposer, c.node) < 0 {
			return "a member is promised to a lower proposer"
		}
	}
	if !complete && gone && len(c.candidates()) >= c.size {
		return "a member is gone, and there are enough others"
	}
	return ""
}

// giveUp empties the record first: from then on every answer says that the
// proposal is given up. Telling the members only saves them the time to ask.
func (c *core) giveUp(own *Proposal, why string) {
	c.do(say{hclog.Warn, "giving up the cluster this node proposed", []any{keyCluster, own.Cluster, logkey.Reason, why}})
	c.hold(nil, false)
	for _, member := range own.Members {
		if p := c.peers.find(member); p != nil {
			c.request(p, GaveUp, own, 0)
		}
	}
}

// holdsPromise reports whether a node said that it is promised to this node's proposal. Only this
// node can end that promise, so it need not be repeated.
func (c *core) holdsPromise(p *peer, own *Proposal) bool {
	return p.heard != nil && own.is(p.heard.Promise)
}

// pursue asks for the promises that lack, and forms the cluster when none does.
func (c *core) pursue(own *Proposal) {
	var lacking []event.ID
	for _, member := range own.Members {
		if member == c.node {
			continue
		}
		// look keeps every member of the own proposal; one proposed in this step is in the view.
		if p := c.peers.find(member); p == nil || !c.holdsPromise(p, own) {
			lacking = append(lacking, member)
			if p != nil {
				c.request(p, Promise, own, pollInterval)
			}
		}
	}
	if len(lacking) > 0 {
		c.askAround() // whether others could take the place of a member
		c.reportPursuit(own, lacking)
		return
	}
	c.hold(own, true)
	c.do(say{hclog.Info, "all members promised: forming the cluster", []any{keyCluster, own.Cluster, keyMembers, own.Members}})
	c.finish(own.Cluster, true)
}

// await is what a bound node does: join its cluster once that exists, and ask
// the proposer. Another cluster that it sees does not free it: its own may
// have been formed by a proposer that it cannot hear at the moment.
func (c *core) await(bond *Proposal) {
	seen := c.clusters()
	if slices.Contains(seen, bond.Cluster) {
		c.do(say{hclog.Info, "the cluster this node is promised to exists: joining it", []any{keyCluster, bond.Cluster}})
		c.finish(bond.Cluster, false)
		return
	}
	if p := c.peers.find(bond.Proposer); p != nil {
		c.request(p, Ask, bond, pollInterval)
	}
	c.reportBond(bond, seen)
}
