package wire

import (
	"sync/atomic"

	"github.com/annalsdb/annals/event"
)

// maxPeers is how many nodes have metrics of their own. They are kept when
// the connections are gone; further nodes share one place.
const maxPeers = 256

// traffic counts the bytes of all connections with one node, inside TLS and
// without preambles.
type traffic struct{ sent, received atomic.Uint64 }

// Peer are the metrics of this node's connections with another one, or with all others.
type Peer struct {
	Node event.ID // zero: all others
	// the newest one for Raft's messages, or of any other kind; zero when there is none
	Connection     event.ID
	Connections    int    // open ones
	Sent, Received uint64 // bytes since this port was opened, over all connections

	// Bytes that the system holds: written here and not acknowledged by the other node,
	// received and not read. Zero where the system does not tell.
	PendingSend, PendingReceived int64
}

// of finds or makes the place where a node's bytes are counted. mu must be held.
func (p *Port) of(node event.ID) *traffic {
	t, ok := p.traffic[node]
	if !ok {
		if len(p.traffic) >= maxPeers {
			return &p.others
		}
		t = new(traffic)
		p.traffic[node] = t
	}
	return t
}

// Peer returns the metrics of a node, zeros if there never was a connection with it.
func (p *Port) Peer(node event.ID) Peer {
	peer := p.sum(func(other event.ID) bool { return other == node })
	peer.Node = node
	return peer
}

// Totals returns the sums over all nodes.
func (p *Port) Totals() Peer {
	all := p.sum(func(event.ID) bool { return true })
	all.Sent += p.others.sent.Load()
	all.Received += p.others.received.Load()
	return all
}

// sum sums up the connections with some nodes.
func (p *Port) sum(of func(event.ID) bool) (all Peer) {
	p.mu.Lock()
	for node, t := range p.traffic {
		if of(node) {
			all.Sent += t.sent.Load()
			all.Received += t.received.Load()
		}
	}
	var newest *conn
	var open []*conn
	for c := range p.conns {
		if !of(c.peer.Node) {
			continue
		}
		open = append(open, c)
		if newest == nil || c.kind == KindRaft && newest.kind != KindRaft || c.kind == newest.kind && c.due.After(newest.due) {
			newest = c
		}
	}
	p.mu.Unlock()
	if newest != nil {
		all.Connection = newest.id
	}
	all.Connections = len(open)
	for _, c := range open {
		out, in := pending(c.raw)
		all.PendingSend += out
		all.PendingReceived += in
	}
	return all
}
