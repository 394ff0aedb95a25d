package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/gossip"
)

// Status is what a node tells others of itself, over the port between nodes.
type Status struct {
	Node     event.ID        `json:"node"`
	Cluster  event.ID        `json:"cluster"`
	Address  string          `json:"address"` // between nodes; empty: a version that does not tell
	State    event.NodeState `json:"state"`
	Priority int             `json:"priority"`
	ReadOnly bool            `json:"readOnly"`
	Lineage  *event.ID       `json:"lineage,omitempty"` // the history that it follows; nil: none yet, or it knows of none

	Leader        string `json:"leader"`        // node id, empty when not known
	LeaderAddress string `json:"leaderAddress"` // between nodes
	Term          uint64 `json:"term"`
	Last          uint64 `json:"last"`    // index of the Raft log's last entry
	Commit        uint64 `json:"commit"`  // index of the last committed entry known
	Applied       uint64 `json:"applied"` // index of the last applied entry
	Running       bool   `json:"running"` // raft runs

	Tail       event.Tail `json:"tail"`
	LastRecord int64      `json:"lastRecord"`
	Epoch      int64      `json:"epoch"`
	HasLog     bool       `json:"hasLog"`
	Full       bool       `json:"full"` // refuses writes, for want of disk space

	Clock      int64 `json:"clock"`      // Unix time in ns; 0: a version that does not tell
	WrongClock bool  `json:"wrongClock"` // it is known to be wrong

	Servers []Server `json:"servers"`         // raft's configuration
	Twins   []Twin   `json:"twins,omitempty"` // that it refused lately

	// At is the chain at the position that was asked for; nil when this log does
	// not reach there, its Chain zero when no frame ends there.
	At *ChainAt `json:"at,omitempty"`
}

// Server is a member of raft's configuration.
type Server struct {
	Node    string `json:"node"`
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
}

// ChainAt is the chain of a log at a position.
type ChainAt struct {
	Position int64       `json:"position"`
	Chain    event.Chain `json:"chain"`
}

// status describes this node.
func (c *Cluster) status() Status {
	s := Status{
		Node: c.self.node, Cluster: c.self.clusterID(), Address: c.self.opts.Advertise, State: c.State(), Priority: int(c.priority.Load()), ReadOnly: c.self.opts.ReadOnly,
		LastRecord: -1, Epoch: -1, Full: c.self.readOnly.Load() != nil, Twins: c.metTwins(),
		Clock: c.self.opts.Now().UnixNano(), WrongClock: c.ClockWrong() != nil,
	}
	if m := c.self.materials.Load(); m != nil {
		s.HasLog, s.Tail = true, m.Log.Tail()
		s.LastRecord, s.Epoch = m.Data.LastRecord(), m.Data.Epoch()
	}
	if r := c.self.replica.Load(); r != nil {
		address, leader := r.raft.LeaderWithID()
		s.Running, s.Leader, s.LeaderAddress, s.Term = true, string(leader), string(address), r.raft.CurrentTerm()
		s.Last, s.Commit, s.Applied = r.raft.LastIndex(), r.raft.CommitIndex(), r.raft.AppliedIndex()
		if configuration, _, err := r.Configuration(); err == nil {
			for _, server := range configuration.Servers {
				s.Servers = append(s.Servers, Server{string(server.ID), string(server.Address), server.Suffrage == raft.Voter})
			}
		}
	}
	// Behind Running: a node that runs and names no lineage counts as one of the first.
	if l := c.self.lineage.Load(); l != nil {
		s.Lineage = &l.id
	}
	return s
}

// serveStatus answers what this node is, and the chain at a position if one is asked for.
func (c *Cluster) serveStatus(w http.ResponseWriter, r *http.Request) {
	begun, took := time.Now(), c.metrics.unserved
	defer func() { took.ObserveSince(begun) }()
	s := c.status()
	if at := r.URL.Query().Get("at"); at != "" && s.HasLog {
		position, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			http.Error(w, "at must be a position", http.StatusBadRequest)
			return
		}
		if position <= s.Tail.End {
			chain, _, err := c.self.materials.Load().Log.ChainAt(position)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			s.At = &ChainAt{Position: position, Chain: chain}
		}
	}
	took = c.metrics.answered
	reply(w, s)
}

// peers is what the other nodes said last.
type peers struct {
	mu   sync.Mutex // guards byID
	byID map[event.ID]peer
}

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

// since goes on from what was known of the node.
func (p *peer) since(old peer) {
	p.before, p.mark = old.before, old.mark
	if !p.level && p.status.Last <= old.status.Last {
		p.moved = old.moved
	}
	if p.at.Sub(old.mark.at) >= peerPace/2 {
		p.before, p.mark = old.mark, heardEnd{p.status.Tail.End, p.at}
	}
}

type verdict int8

const (
	unknown verdict = iota
	agrees
	disagrees
)

func (p *peers) put(id event.ID, s peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID == nil {
		p.byID = make(map[event.ID]peer)
	}
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
	known := make(map[event.ID]bool, len(members))
	for i := range members {
		known[members[i].Node] = true
	}
	for id := range p.byID {
		if !known[id] {
			delete(p.byID, id)
		}
	}
}

const (
	peerPace    = time.Second // between two looks at the other nodes
	peerTimeout = 2 * time.Second
)

// watchPeers keeps what is known of the other nodes fresh, compares histories,
// and does what follows from it.
func (c *Cluster) watchPeers(ctx context.Context) {
	said := make(map[event.ID]time.Time)
	for {
		c.askPeers(ctx)
		c.noteApart(said)
		c.judgeHistories()
		c.judgeClock()
		c.noteRemoval()
		if r := c.self.replica.Load(); r != nil {
			c.self.warn("see who is to lead", r.Rank())
			l, _ := c.noteLeadership(r)
			c.leaveUnfit(ctx, r, l)
		}
		wait, stop := context.WithTimeout(ctx, peerPace)
		select {
		case <-wait.Done():
		case <-c.poke:
		case <-c.gossip.Changed():
		}
		stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// others are the members that can be asked: alive, of this cluster, and not this node.
func (c *Cluster) others() []gossip.Member {
	if c.gossip == nil {
		return nil
	}
	var list []gossip.Member
	for _, m := range c.gossip.Members() {
		if m.Node != c.self.node && m.Alive {
			list = append(list, m)
		}
	}
	return list
}

// member finds a member in gossip by its id.
func (c *Cluster) member(node string) (gossip.Member, bool) {
	if c.gossip == nil {
		return gossip.Member{}, false
	}
	for _, m := range c.gossip.Members() {
		if m.Node.String() == node {
			return m, true
		}
	}
	return gossip.Member{}, false
}

// askPeers asks all other nodes at once.
func (c *Cluster) askPeers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range c.others() {
		wg.Go(func() {
			begun := time.Now()
			p, err := c.askPeer(ctx, m.ReplicationAddress)
			took := time.Since(begun).Seconds()
			if err != nil {
				c.metrics.failed.Observe(took)
				c.self.logger.Debug("node did not answer", keyNode, m.Node.String(), keyError, err)
				return
			}
			c.metrics.asked.Observe(took)
			c.metrics.latency.Observe(took)
			c.metrics.watchPeer(c, m.Node)
			c.peers.put(m.Node, p)
			for _, t := range p.status.Twins {
				c.noteTwin(t, false)
			}
		})
	}
	wg.Wait()
	c.peers.keep(c.gossip.Members())
	longest, found := int64(0), false
	for _, m := range c.others() {
		if p, ok := c.peers.get(m.Node); ok && p.status.HasLog && p.status.Cluster == c.self.clusterID() {
			longest, found = max(longest, p.status.Tail.End), true
		}
	}
	if found {
		c.growth.saw(longest, time.Now())
	}
}

// askPeer asks one node for its status, and compares its log with this node's at
// the end of the shorter one.
func (c *Cluster) askPeer(ctx context.Context, address string) (peer, error) {
	query := ""
	m := c.self.materials.Load()
	var own event.Tail
	if m != nil {
		own = m.Log.Tail()
		query = "?at=" + strconv.FormatInt(own.End, 10)
	}
	var s Status
	asked, begun := c.self.opts.Now(), time.Now()
	if err := c.call(ctx, address, http.MethodGet, "/status"+query, nil, &s); err != nil {
		return peer{}, err
	}
	p := peer{status: s, at: time.Now(), ours: own.End, level: true, ahead: clockOffset(s.Clock, asked, time.Since(begun)), clock: agreed{asked, begun}}
	p.moved = p.at
	if r := c.self.replica.Load(); r != nil {
		p.level = s.Last >= r.raft.LastIndex()
	}
	if own := c.self.lineage.Load(); own != nil && s.Lineage != nil && *s.Lineage != own.id {
		return p, nil // That is another history, and is said as such.
	}
	if m == nil || !s.HasLog || s.Cluster != c.self.clusterID() {
		return p, nil
	}
	theirs, ours := s.Tail.Chain, own.Chain
	if s.At != nil {
		theirs = s.At.Chain
	} else {
		var err error
		if ours, _, err = m.Log.ChainAt(s.Tail.End); err != nil {
			return p, nil // The log says so itself to whoever reads it.
		}
	}
	p.agrees = agrees
	if ours != theirs {
		p.agrees = disagrees
		if before, _ := c.peers.get(s.Node); before.agrees == disagrees {
			return p, nil // It has been said.
		}
		c.self.logger.Error("this node and another one hold different histories", keyNode, s.Node.String(), "address", address,
			"end", min(own.End, s.Tail.End), "chain", ours.String(), "theirs", theirs.String())
	}
	return p, nil
}

// judgeHistories raises the alarm when logs differ. The node that is alone with
// its history stops serving it.
//
// Only members that raft counts have a say, and only among themselves: whoever
// reaches the gossip port with a copy of the data must not be able to silence a cluster.
func (c *Cluster) judgeHistories() {
	same, other := 1, 0
	members := c.self.members()
	if !members[c.self.name] {
		return
	}
	for _, m := range c.others() {
		if !members[m.Node.String()] {
			continue
		}
		switch p, _ := c.peers.get(m.Node); p.agrees {
		case agrees:
			same++
		case disagrees:
			other++
		}
	}
	c.strangers.Store(int64(other))
	if other < same {
		c.doubt.Store(nil)
		return
	}
	doubt := fmt.Errorf("%d of %d other nodes that can be asked hold another history", other, other+same-1)
	c.doubt.Store(&doubt)
	if other == same {
		return
	}
	err := errors.New("this node's history is not that of the other nodes: it serves nothing until its data directory is replaced")
	if c.diverged.Swap(&err) == nil {
		c.self.logger.Error(err.Error())
	}
}

// Healthy returns why this node's data are not to be trusted, or nil. doubt: as
// many nodes hold another history as hold this node's. diverged: more do, so that this
// node must serve nothing.
func (c *Cluster) Healthy() (doubt, diverged error) {
	if err := c.doubt.Load(); err != nil {
		doubt = *err
	}
	if err := c.diverged.Load(); err != nil {
		diverged = *err
	}
	return doubt, diverged
}

// call asks another node over the port between nodes. Answers other than 200
// become a *callError.
func (c *Cluster) call(ctx context.Context, address, method, path string, ask, into any) error {
	resp, err := c.request(ctx, address, method, path, ask)
	if err != nil {
		return err
	}
	defer func() { c.self.warnDebug(resp.Body.Close()) }()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("answer of %s to %s: %w", address, path, err)
	}
	return nil
}

// clientAddress is where clients reach a node, scheme://host:port, empty when not known.
func (c *Cluster) clientAddress(node string) string {
	m, ok := c.member(node)
	if !ok || m.HTTPHost == "" {
		return ""
	}
	u := url.URL{Scheme: "http", Host: joinHostPort(m.HTTPHost, m.HTTPPort)}
	if m.HTTPSecure {
		u.Scheme = "https"
	}
	return u.String()
}
