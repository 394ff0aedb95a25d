package replication

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication/bootstrap"
	"github.com/annalsdb/annals/replication/gossip"
)

// gossiping is gossip as far as the rest of a Cluster needs it.
type gossiping interface {
	Members() []gossip.Member
	Changed() <-chan struct{}
	Update(change func(*gossip.Self)) error
}

// peers holds the other nodes: those that gossip knows, with their latest answers.
type peers struct {
	self    *self
	caller  *caller
	gossip  gossiping // nil in a cluster of one
	metrics *clusterMetrics
	poke    chan struct{} // ask the other nodes now

	answered  func(event.ID)  // a node did, for the first time or after it was away
	duplicate func(Duplicate) // a node said that it refused one

	mu   sync.Mutex // guards byID; nests no other lock
	byID map[event.ID]peer
}

const (
	peerPace    = time.Second // between two looks at the other nodes
	peerTimeout = 2 * time.Second
)

type peer struct {
	status Status
	at     time.Time
	ours   int64   // where this node's log ended when it was asked
	agrees verdict // whether its log and ours are of one history

	before, mark heardEnd

	ahead time.Duration // its clock, less this node's
	clock agreed        // this node's, when the other was asked

	level bool      // its Raft log was as long as this node's
	moved time.Time // when it was level last, or got entries
}

// heardEnd is where a node's log ended at some time. A peer's before is at least half of
// peerPace older than the newest one, if the node was known that long; mark becomes before.
type heardEnd struct {
	end int64
	at  time.Time
}

type verdict int8

const (
	unknown verdict = iota
	agrees
	disagrees
)

// since takes over what was known of the node before.
func (p *peer) since(old peer) {
	p.before, p.mark = old.before, old.mark
	if !p.level && p.status.Last <= old.status.Last {
		p.moved = old.moved
	}
	if p.at.Sub(old.mark.at) >= peerPace/2 {
		p.before, p.mark = old.mark, heardEnd{p.status.Tail.End, p.at}
	}
}

// members are all nodes that gossip knows, this one included; none in a cluster of one.
func (p *peers) members() []gossip.Member {
	if p.gossip == nil {
		return nil
	}
	return p.gossip.Members()
}

// others are the members that can be asked: alive, of this cluster, and not this node.
func (p *peers) others() []gossip.Member {
	var list []gossip.Member
	for _, m := range p.members() {
		if m.Node != p.self.node && m.Alive {
			list = append(list, m)
		}
	}
	return list
}

// member finds a member in gossip by its id.
func (p *peers) member(node string) (gossip.Member, bool) {
	for _, m := range p.members() {
		if m.Node.String() == node {
			return m, true
		}
	}
	return gossip.Member{}, false
}

// find returns the member that an operator means: by node id, or by an address of it. Of several
// that were seen at one address it is the one that is alive.
func (p *peers) find(node string) (found gossip.Member, ok bool) {
	for _, m := range p.members() {
		named := m.Node.String() == node || m.ReplicationAddress == node || joinHostPort(m.HTTPHost, m.HTTPPort) == node
		if named && (!ok || m.Alive) {
			found, ok = m, true
		}
	}
	return found, ok
}

// tell changes what gossip says of this node.
func (p *peers) tell(change func(*gossip.Self)) {
	if p.gossip == nil {
		return
	}
	p.self.warn("tell the other nodes about this one", p.gossip.Update(change))
}

// look has the other nodes looked at now.
func (p *peers) look() { bell.Ring(p.poke) }

// askAll asks all other nodes at once.
func (p *peers) askAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range p.others() {
		wg.Go(func() {
			begun := time.Now()
			said, err := p.ask(ctx, m.ReplicationAddress)
			took := time.Since(begun).Seconds()
			if err != nil {
				p.metrics.failed.Observe(took)
				p.self.logger.Debug("node did not answer", logkey.Node, m.Node.String(), logkey.Error, err)
				return
			}
			p.metrics.asked.Observe(took)
			p.metrics.latency.Observe(took)
			if _, known := p.get(m.Node); !known {
				p.answered(m.Node)
			}
			p.put(m.Node, said)
			for _, t := range said.status.Duplicates {
				p.duplicate(t)
			}
		})
	}
	wg.Wait()
	p.keep(p.members())
}

// ask asks one node for its status, and compares its log with this node's at
// the end of the shorter one.
func (p *peers) ask(ctx context.Context, address string) (peer, error) {
	query := ""
	m := p.self.deps.Load()
	var own event.Tail
	if m != nil {
		own = m.Log.Tail()
		query = "?at=" + strconv.FormatInt(own.End, 10)
	}
	var s Status
	asked, begun := p.self.opts.Now(), time.Now()
	if err := p.caller.call(ctx, address, http.MethodGet, "/status"+query, nil, &s); err != nil {
		return peer{}, err
	}
	said := peer{status: s, at: time.Now(), ours: own.End, level: true, ahead: clockOffset(s.Clock, asked, time.Since(begun)), clock: agreed{asked, begun}}
	said.moved = said.at
	if r := p.self.replica.Load(); r != nil {
		said.level = s.Last >= r.raft.LastIndex()
	}
	if own := p.self.incarnation.Load(); own != nil && s.Incarnation != nil && *s.Incarnation != own.id {
		return said, nil // That is another history, and is said as such.
	}
	if m == nil || !s.HasLog || s.Cluster != p.self.clusterID() {
		return said, nil
	}
	theirs, ours := s.Tail.Chain, own.Chain
	if s.At != nil {
		theirs = s.At.Chain
	} else {
		var err error
		if ours, _, err = m.Log.ChainAt(s.Tail.End); err != nil {
			return said, nil // The log says so itself to its readers.
		}
	}
	said.agrees = agrees
	if ours != theirs {
		said.agrees = disagrees
		if before, _ := p.get(s.Node); before.agrees == disagrees {
			return said, nil // It has been said.
		}
		p.self.logger.Error("this node and another one hold different histories", logkey.Node, s.Node.String(), logkey.Address, address,
			logkey.End, min(own.End, s.Tail.End), "chain", ours.String(), logkey.Theirs, theirs.String())
	}
	return said, nil
}

func (p *peers) put(id event.ID, s peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.byID[id]; ok {
		s.since(old)
	} else {
		s.mark = heardEnd{s.status.Tail.End, s.at}
		s.before = s.mark
	}
	p.byID[id] = s
}

func (p *peers) get(id event.ID) (peer, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, ok := p.byID[id]
	return s, ok
}

// keep forgets all others.
func (p *peers) keep(members []gossip.Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.byID, func(id event.ID, _ peer) bool {
		return !slices.ContainsFunc(members, func(m gossip.Member) bool { return m.Node == id })
	})
}

// heard is what a node of this cluster said lately.
func (p *peers) heard(node string) (peer, bool) {
	id, err := event.ParseID(node)
	if err != nil {
		return peer{}, false
	}
	said, ok := p.get(id)
	return said, ok && time.Since(said.at) < heardFor && said.status.HasLog && said.status.Cluster == p.self.clusterID()
}

// heardOthers are the other nodes of this cluster that said something of themselves lately.
func (p *peers) heardOthers() (list []peer) {
	for _, m := range p.others() {
		if said, ok := p.heard(m.Node.String()); ok {
			list = append(list, said)
		}
	}
	return list
}

// growth is how many bytes a second the cluster's log grew by of late, as its nodes tell: one that
// catches up with the longest makes it no longer. known is false when there was no chance to see.
func (p *peers) growth() (speed float64, known bool) {
	var end, before int64
	var span time.Duration
	for _, said := range p.heardOthers() {
		s := said.at.Sub(said.before.at)
		if s < peerPace/2 || s > heardFor {
			continue
		}
		end, before, span = max(end, said.status.Tail.End), max(before, said.before.end), max(span, s)
	}
	if span == 0 {
		return 0, false
	}
	return float64(max(end-before, 0)) / span.Seconds(), true
}

// where names a node for an operator.
func (p *peers) where(node string) string {
	m, _ := p.member(node)
	return fmt.Sprintf("node %s at %s", node, m.ReplicationAddress)
}

// address is where other nodes reach a node, empty when not known. A node that gossip has forgotten
// may still be a member.
func (p *peers) address(node string) string {
	if m, ok := p.member(node); ok {
		return m.ReplicationAddress
	}
	for _, server := range p.self.configuration().Servers {
		if string(server.ID) == node {
			return string(server.Address)
		}
	}
	return ""
}

// place names a node for an operator: by its address, or by its id if that is not known.
func (p *peers) place(node string) string { return cmp.Or(p.address(node), node) }

// clientAddress is where clients reach a node, scheme://host:port, empty when not known.
func (p *peers) clientAddress(node string) string {
	m, ok := p.member(node)
	if !ok || m.HTTPHost == "" {
		return ""
	}
	u := url.URL{Scheme: "http", Host: joinHostPort(m.HTTPHost, m.HTTPPort)}
	if m.HTTPSecure {
		u.Scheme = "https"
	}
	return u.String()
}

// founders are the other nodes as the bootstrap sees them.
func (p *peers) founders() (list []bootstrap.Peer) {
	for _, m := range p.gossip.Members() {
		if m.Node != p.self.node {
			list = append(list, bootstrap.Peer{
				Node: m.Node, Cluster: m.Cluster, Address: m.ReplicationAddress, ReadOnly: m.ReadOnly,
				Alive: m.Alive, ClusterSize: m.ClusterSize, Since: m.Since,
			})
		}
	}
	return list
}

func joinHostPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// clocks are those of the members of raft's configuration that answered of late.
func (p *peers) clocks() (list []looked) {
	members := p.self.members()
	for _, m := range p.others() {
		if said, ok := p.get(m.Node); ok && said.status.Clock != 0 && members[m.Node.String()] && time.Since(said.at) < 2*peerTimeout {
			list = append(list, looked{said.ahead, said.clock})
		}
	}
	return list
}

// all is what each node said last.
func (p *peers) all() map[event.ID]peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.byID)
}

// othersIn counts the other members in a state, as a view shows them.
func (p *peers) othersIn(state event.NodeState) (n int) {
	for _, m := range p.members() {
		if said, heard := p.get(m.Node); m.Node != p.self.node && stateOf(m, said, heard) == state {
			n++
		}
	}
	return n
}

// awaitOthers waits until no other node that is catching up needs entries up to
// an index, at most HoldTime.
func (p *peers) awaitOthers(ctx context.Context, index uint64) {
	hold := p.self.opts.Replica.HoldTime
	if p.gossip == nil || hold <= 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, hold)
	defer cancel()
	for {
		p.askAll(ctx)
		need := p.awaited()
		if need == 0 || need > index || clock.Sleep(ctx, erasePace) != nil {
			return
		}
	}
}

// awaited is the index of the first entry that a member which is catching up needs: a member that
// was heard lately, and made progress within HoldTime. A node that needs entries older than the
// Raft log gets a snapshot instead, and needs none of them.
func (p *peers) awaited() (need uint64) {
	r := p.self.replica.Load()
	if r == nil || p.gossip == nil {
		return 0
	}
	first, err := r.state.Logs.FirstIndex()
	if err != nil || first == 0 {
		return 0
	}
	last, members := r.raft.LastIndex(), p.self.members()
	now := time.Now()
	for _, m := range p.others() {
		said, ok := p.get(m.Node)
		next := said.status.Last + 1
		if !ok || !said.status.Running || !members[m.Node.String()] || now.Sub(said.at) > heardFor || now.Sub(said.moved) > p.self.opts.Replica.HoldTime {
			continue
		}
		if next >= first && next <= last && (need == 0 || next < need) {
			need = next
		}
	}
	return need
}
