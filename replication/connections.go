package replication

import (
	"github.com/annalsdb/annals/event"
)

// Connection is what the leader knows of its connections with one of the others.
type Connection struct {
	Node       event.ID // the other node; with its data directory it gets another id
	Connection event.ID // the newest connection for Raft's messages; zero when there is none
	Endpoint   string   // host:port of that node between nodes, as in View; empty when not known

	Sent, Received               uint64 // bytes since this node was started, over all connections
	PendingSend, PendingReceived int64  // bytes that this node's system holds, where it tells
	SendQueue                    int64  // entries that node had not got when it was asked last
}

// Connections describes the leader's connections, one for each other node in
// Raft's configuration, in its order. It is empty on a node that does not lead.
func (c *Cluster) Connections() []Connection {
	r := c.self.replica.Load()
	if l, _ := c.Leadership(); !l.Leading || r == nil || c.port == nil {
		return nil
	}
	last := r.raft.LastIndex()
	var list []Connection
	for _, server := range c.self.configuration().Servers {
		id, err := event.ParseID(string(server.ID))
		if err != nil || id == c.self.node {
			continue
		}
		peer := c.port.Peer(id)
		one := Connection{
			Node: id, Connection: peer.Connection, Sent: peer.Sent, Received: peer.Received,
			PendingSend: peer.PendingSend, PendingReceived: peer.PendingReceived,
		}
		if m, ok := c.peers.member(string(server.ID)); ok {
			one.Endpoint = m.ReplicationAddress
		}
		if p, ok := c.peers.heard(string(server.ID)); ok && p.status.Running && p.status.Last < last {
			one.SendQueue = int64(last - p.status.Last)
		}
		list = append(list, one)
	}
	return list
}
