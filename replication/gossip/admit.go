package gossip

import (
	"errors"
	"fmt"

	"github.com/hashicorp/serf/serf"

	"github.com/annalsdb/annals/internal/logkey"
)

// errRefused says that a node does not belong to this cluster.
var errRefused = errors.New("the node does not belong to this cluster")

// admissible says whether two nodes may know each other, seen from the first.
func admissible(self, other *Self) error {
	switch {
	case self.Format != other.Format:
		return fmt.Errorf("%w: it has another chunk size or format: %d, this node has %d", errRefused, other.Format, self.Format)
	case !self.Cluster.IsZero() && !other.Cluster.IsZero() && self.Cluster != other.Cluster:
		return fmt.Errorf("%w: it belongs to cluster %v, this node to cluster %v", errRefused, other.Cluster, self.Cluster)
	}
	return nil
}

// gate decides for serf which nodes are admitted.
type gate struct{ g *Gossip }

// NotifyMerge is called with one member each time a node says that it is alive, and with all of
// another node's members before their list is taken over. An error refuses the one member, or the
// whole list.
//
// memberlist holds its lock meanwhile, so nothing of it or of serf may be asked here.
//
// A list is refused if none of its members may be admitted: it is that of another cluster.
// Otherwise it is checked member by member, because a node that belongs to no cluster yet may know
// several.
//
// A member that is in the list already is let in whatever it says now: only so does memberlist
// learn the newest of it, in the right order. A node that turned out to belong elsewhere is left
// out of the view, see refresh.
func (gate gate) NotifyMerge(members []*serf.Member) error {
	var refused error
	for _, m := range members {
		err := gate.judge(m)
		if err == nil {
			return nil
		}
		refused = err
	}
	return refused
}

func (gate gate) judge(m *serf.Member) error {
	g := gate.g
	self := g.self.Load()
	if m.Name == self.Node.String() {
		return nil
	}
	if known := g.known.Load(); known != nil && (*known)[m.Name] {
		return nil
	}
	other, err := decode(m.Name, m.Tags)
	if err == nil {
		err = admissible(self, &other)
	}
	if err != nil {
		g.metrics.refused.Inc()
		g.refuse(m.Name, addressOf(m), err)
		return err
	}
	g.announce(m.Name, hostName(other.ReplicationAddress))
	return nil
}

// maxAnnounced bounds the nodes that were let in and are in no view yet.
const maxAnnounced = 64

// announce notes the host of a node that memberlist may send to before a view has it.
func (g *Gossip) announce(name, host string) {
	g.announcing.Lock()
	defer g.announcing.Unlock()
	if len(g.announced) >= maxAnnounced {
		clear(g.announced)
	}
	g.announced[name] = host
}

// refuse logs that a node is not let in, but not all the time.
func (g *Gossip) refuse(name, address string, err error) {
	if _, due := g.complaint.Due("refused " + name); due {
		g.logger.Warn("gossip with a node refused", logkey.Node, name, logkey.Address, address, logkey.Error, err)
	}
}
