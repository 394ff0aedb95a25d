package bootstrap

import (
	"slices"
	"time"

	"github.com/annalsdb/annals/event"
)

// maxBackoff bounds how seldom a node that does not answer is called.
const maxBackoff = 2 * time.Second

// peer is what this node knows of another one.
type peer struct {
	Peer             // as the view shows it; only Node when it does not
	inView   bool    //
	heard    *Answer // the last one
	calling  bool    // a call is in flight
	called   time.Time
	failures int       // of calls, since the last that was answered
	hindered time.Time // since when it cannot take part; zero when it can
}

// peers are the nodes in the view, members of this node's own proposal, and nodes with a call in
// flight, in the order of their ids.
type peers []*peer

func (ps peers) find(node event.ID) *peer {
	if i, found := ps.index(node); found {
		return ps[i]
	}
	return nil
}

func (ps peers) index(node event.ID) (int, bool) {
	return slices.BinarySearchFunc(ps, node, func(p *peer, node event.ID) int { return compare(p.Node, node) })
}

func (ps *peers) ensure(node event.ID) *peer {
	i, found := ps.index(node)
	if !found {
		*ps = slices.Insert(*ps, i, &peer{Peer: Peer{Node: node}})
	}
	return (*ps)[i]
}

// alive reports whether the view shows a node alive.
func (ps peers) alive(node event.ID) bool {
	p := ps.find(node)
	return p != nil && p.inView && p.Alive
}

// look takes over a view. What was heard of a node stays while the node is known.
func (c *core) look(view []Peer) {
	for _, p := range c.peers {
		p.inView = false
	}
	for i := range view {
		shown := &view[i]
		if shown.Node.IsZero() || shown.Node == c.node {
			continue
		}
		p := c.peers.ensure(shown.Node)
		if p.inView && p.Alive {
			continue // a second entry for one node does not make it dead
		}
		if shown.Alive && !p.Alive {
			p.failures = 0
		}
		p.Peer, p.inView = *shown, true
	}
	own := c.own()
	if own != nil {
		for _, member := range own.Members {
			if member != c.node {
				c.peers.ensure(member)
			}
		}
	}
	c.peers = slices.DeleteFunc(c.peers, func(p *peer) bool { return !p.inView && !p.calling && !own.has(p.Node) })
}

// fits reports whether a node counts: alive, without a cluster, not read-only,
// of the same mind about the size. Both its gossip and its own word must say so.
func (c *core) fits(p *peer) bool {
	if !p.inView || !p.Alive || p.ReadOnly || p.ClusterSize != c.size || !p.Cluster.IsZero() {
		return false
	}
	return p.heard == nil || !p.heard.ReadOnly && p.heard.ClusterSize == c.size && p.heard.Cluster.IsZero()
}

// boundElsewhere returns the proposal that a node last said it is promised to, if
// that is neither this node's nor given up by this node.
func (c *core) boundElsewhere(p *peer) *Proposal {
	if p.heard == nil || p.heard.Promise == nil || p.heard.Promise.Proposer == c.node {
		return nil
	}
	return p.heard.Promise
}

// judge notes which nodes cannot take part, and since when: those that do not count, do not answer,
// or are bound to a proposer that is not there to release them.
func (c *core) judge() {
	for _, p := range c.peers {
		hindered := p.failures > 0 || !c.fits(p)
		if bond := c.boundElsewhere(p); bond != nil && !c.peers.alive(bond.Proposer) {
			hindered = true
		}
		switch {
		case !hindered:
			p.hindered = time.Time{}
			continue
		case p.hindered.IsZero():
			p.hindered = c.now
		}
		if p.inView && !p.Alive && !p.Since.IsZero() && p.Since.Before(p.hindered) {
			p.hindered = p.Since
		}
	}
}

// gone reports whether a node could not take part for so long that it is done without.
func (c *core) gone(p *peer) bool {
	return !p.hindered.IsZero() && c.now.Sub(p.hindered) >= c.o.GoneAfter
}

// candidates returns the nodes that could form a cluster, in the order of their ids.
func (c *core) candidates() []event.ID {
	ids := make([]event.ID, 0, len(c.peers)+1)
	if !c.readOnly {
		ids = append(ids, c.node)
	}
	for _, p := range c.peers {
		if c.fits(p) && !c.gone(p) {
			ids = append(ids, p.Node)
		}
	}
	slices.SortFunc(ids, compare)
	return ids
}

// clusters returns the different clusters whose members this node sees, by gossip or by their
// answers. Dead members count: their cluster exists.
func (c *core) clusters() []event.ID {
	var ids []event.ID
	add := func(id event.ID) {
		if !id.IsZero() && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, p := range c.peers {
		add(p.Cluster)
		if p.heard != nil {
			add(p.heard.Cluster)
		}
	}
	slices.SortFunc(ids, compare)
	return ids
}

// request calls a node, unless it was called less than an interval ago or more
// often in vain.
func (c *core) request(p *peer, kind Kind, proposal *Proposal, interval time.Duration) {
	if p.calling || !p.inView || p.Address == "" {
		return
	}
	if p.failures > 0 {
		interval = max(interval, min(pollInterval<<min(p.failures, 10), maxBackoff))
	}
	if !p.called.IsZero() && c.now.Sub(p.called) < interval {
		return
	}
	p.calling, p.called = true, c.now
	c.do(call{p.Node, p.Address, Request{Kind: kind, From: c.node, Proposal: proposal}})
}
