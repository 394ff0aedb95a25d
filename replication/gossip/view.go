package gossip

import (
	"bytes"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/serf/serf"

	"github.com/annalsdb/annals/internal/logkey"
)

// view is what this node knows at one moment. It is never changed.
type view struct {
	members []Member      // by node id
	changed chan struct{} // closed when another view has taken its place
}

// find returns the first member for which a condition holds.
func (v *view) find(is func(*Member) bool) *Member {
	for i := range v.members {
		if is(&v.members[i]) {
			return &v.members[i]
		}
	}
	return nil
}

// alone reports whether no other node is alive.
func (v *view) alone() bool {
	alive := 0
	for i := range v.members {
		if v.members[i].Alive {
			alive++
		}
	}
	return alive < 2
}

func addressOf(m *serf.Member) string {
	return net.JoinHostPort(m.Addr.String(), strconv.Itoa(int(m.Port)))
}

// refresh takes serf's members over into the view, except those that do not
// belong here (any more).
//
// Locks: refreshing, then serf's, for reading. serf waits for nothing of ours under its lock.
func (g *Gossip) refresh() {
	g.refreshing.Lock()
	defer g.refreshing.Unlock()
	old, self, now := g.view.Load(), g.self.Load(), time.Now()
	found := g.serf.Members()
	next := &view{members: make([]Member, 0, len(found)), changed: make(chan struct{})}
	known := make(map[string]bool, len(found))
	for i := range found {
		m := &found[i]
		if m.Name == self.Node.String() {
			continue // this node knows itself better
		}
		known[m.Name] = true
		member := Member{GossipAddress: addressOf(m), Since: now}
		var err error
		if member.Self, err = decode(m.Name, m.Tags); err == nil {
			err = admissible(self, &member.Self)
		}
		if err != nil {
			g.refuse(m.Name, member.GossipAddress, err)
			continue
		}
		member.Left = m.Tags[tagLeaving] != ""
		// serf's leaving is another node's report about the node: it is still there.
		member.Alive = (m.Status == serf.StatusAlive || m.Status == serf.StatusLeaving) && !member.Left
		if before := old.find(func(b *Member) bool { return b.Node == member.Node }); before != nil && before.Alive == member.Alive {
			member.Since = before.Since
		}
		next.members = append(next.members, member)
	}
	next.members = append(next.members, Member{Self: *self, Alive: true, Since: g.opened, GossipAddress: g.Addr()})
	slices.SortFunc(next.members, func(a, b Member) int { return bytes.Compare(a.Node[:], b.Node[:]) })
	g.known.Store(&known)
	if !slices.Equal(old.members, next.members) {
		g.view.Store(next)
		close(old.changed)
		g.report(old, next)
	}
	// Not before: see hostOf.
	g.announcing.Lock()
	maps.DeleteFunc(g.announced, func(name, _ string) bool { return known[name] })
	g.announcing.Unlock()
}

// report logs which nodes came and went. That a member does not count as alive is worth a look:
// commands for all nodes ask it themselves then.
func (g *Gossip) report(old, next *view) {
	for i := range next.members {
		m := &next.members[i]
		before := old.find(func(b *Member) bool { return b.Node == m.Node })
		line, level := "", hclog.Info
		switch {
		case before == nil && m.Alive:
			line = "node joined gossip"
		case before == nil && !m.Left:
			line, level = "a node does not answer", hclog.Warn
		case before == nil || before.Alive == m.Alive && before.Left == m.Left:
			continue
		case m.Alive:
			line = "a node answers again"
		case m.Left:
			line = "node left gossip"
		default:
			line, level = "a node does not answer", hclog.Warn
		}
		args := []any{logkey.Address, m.GossipAddress, logkey.Node, m.Node}
		if level == hclog.Warn {
			args = append(args, "for", g.o.Timeout)
		}
		g.logger.Log(level, line, args...)
		if address, err := netip.ParseAddrPort(m.GossipAddress); err == nil && !m.Alive {
			g.transport.leave(address)
		}
	}
	for i := range old.members {
		m := &old.members[i]
		if next.find(func(n *Member) bool { return n.Node == m.Node }) == nil {
			g.logger.Info("node removed from gossip", logkey.Node, m.Node, logkey.Address, m.GossipAddress)
		}
	}
}

// hostOf returns the host that the certificate at an address must be for: what
// the node there says of itself, the name under which it was found, or the address.
func (g *Gossip) hostOf(address netip.AddrPort, node string) string {
	// What is announced first: refresh has a node in the view before it forgets what was announced
	// of it.
	g.announcing.Lock()
	host, found := g.announced[node]
	g.announcing.Unlock()
	v := g.view.Load()
	if !found {
		if m := v.find(func(m *Member) bool { return m.Node.String() == node }); m != nil {
			host, found = m.host(), true
		}
	}
	if seeds := g.seeds.Load(); !found && seeds != nil {
		host, found = (*seeds)[address]
	}
	if text := address.String(); !found {
		if m := v.find(func(m *Member) bool { return m.GossipAddress == text }); m != nil {
			host = m.host()
		}
	}
	if host == "" {
		return address.Addr().String()
	}
	return host
}
