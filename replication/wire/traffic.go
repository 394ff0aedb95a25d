package wire

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
)

// maxPeers is how many nodes have metrics of their own. They are kept when
// the connections are gone; further nodes share one place.
const maxPeers = 256

// traffic counts the bytes of all connections with one node, inside TLS and
// without preambles.
type traffic struct{ sent, received atomic.Uint64 }

// Peer are the metrics of this node's connections with another one.
type Peer struct {
	Node           event.ID
	Connection     event.ID // the newest one for Raft's messages, or of any other kind; zero when there is none
	Connections    int      // open ones
	Sent, Received uint64   // bytes since this port was opened, over all connections

	// Bytes that the system holds: written here and not acknowledged by the other node,
	// received and not read. Zero where the system does not tell.
	PendingSend, PendingReceived int64
}

// Totals are sums over all connections with other nodes.
type Totals struct {
	Connections                  int
	Sent, Received               uint64 // bytes since this port was opened
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
	peer := Peer{Node: node}
	p.mu.Lock()
	if t, ok := p.traffic[node]; ok {
		peer.Sent, peer.Received = t.sent.Load(), t.received.Load()
	}
	var newest *conn
	var open []*conn
	for c := range p.conns {
		if c.peer.Node != node {
			continue
		}
		open = append(open, c)
		if newest == nil || c.kind == KindRaft && newest.kind != KindRaft || c.kind == newest.kind && c.due.After(newest.due) {
			newest = c
		}
	}
	p.mu.Unlock()
	if newest != nil {
		peer.Connection = newest.id
	}
	peer.Connections = len(open)
	peer.PendingSend, peer.PendingReceived = pendingOf(open)
	return peer
}

// Totals returns the sums over all nodes.
func (p *Port) Totals() Totals {
	p.mu.Lock()
	t := Totals{Connections: len(p.conns), Sent: p.others.sent.Load(), Received: p.others.received.Load()}
	for _, one := range p.traffic {
		t.Sent += one.sent.Load()
		t.Received += one.received.Load()
	}
	open := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	t.PendingSend, t.PendingReceived = pendingOf(open)
	return t
}

func pendingOf(conns []*conn) (send, received int64) {
	for _, c := range conns {
		out, in := pending(c.raw)
		send += out
		received += in
	}
	return send, received
}
