package replication

import (
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/wire"
)

// Connection is what the leader knows of its connections with one of the others.
type Connection struct {
	wire.Peer
	Endpoint  string // host:port of that node between nodes, as in View; empty when not known
	SendQueue int64  // entries that node had not got when it was asked last
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
		one := Connection{Peer: c.port.Peer(id)}
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
