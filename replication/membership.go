package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// joinRequest is what a node says that wants to be admitted, or to get its vote.
type joinRequest struct {
	Node     event.ID   `json:"node"`
	Address  string     `json:"address"`
	Cluster  event.ID   `json:"cluster"`
	Format   int        `json:"format"`
	Lineage  *event.ID  `json:"lineage,omitempty"` // nil: the node is of a version that knew only one
	ReadOnly bool       `json:"readOnly"`
	Tail     event.Tail `json:"tail"`
	Last     uint64     `json:"last"` // index of its Raft log's last entry
}

// joinAnswer tells a node its place in the configuration.
type joinAnswer struct {
	Present bool `json:"present"`
	Voter   bool `json:"voter"`
}

const (
	joinPace      = 250 * time.Millisecond // between two requests of a node that is not where it wants to be
	settledPace   = 2 * time.Second
	changePace    = 50 * time.Millisecond // between two attempts of a change that an operator asked for
	changePersist = 3 * time.Second       // for which attempts are made
	changeTimeout = 10 * time.Second      // of one change of the configuration
	voteNear      = 256                   // entries that a node may lack when it gets its vote
)

// seekAdmission asks the leader for this node's place: to be admitted if it never
// was, and to get a vote once it has caught up. A node that was a member once and
// is not any more does not ask: an operator removed it.
func (c *Cluster) seekAdmission(ctx context.Context) {
	said := time.Now() // So long an ordinary start may take.
	for {
		pace := settledPace
		if r := c.self.replica.Load(); r != nil {
			voter, present := c.self.suffrage()
			if r.state.Joining() && c.admitted(r) {
				c.self.warn("record that the cluster admitted this node", r.state.Unmark(raftdisk.JoiningFile))
			}
			var hindered *string
			if !voter && (r.state.Joining() || present && !c.self.opts.ReadOnly) {
				pace = joinPace
				err := c.askToJoin(ctx, r)
				if err != nil && !present {
					text := "waiting to be admitted: " + err.Error()
					hindered = &text
				}
				if err != nil && ctx.Err() == nil && time.Since(said) > c.self.opts.AdviceEvery {
					said = time.Now()
					c.self.logger.Warn("this node is not where it is to be yet", "voter", voter, "admitted", present, keyError, err)
				}
			}
			c.waiting.Store(hindered)
		} else {
			pace = joinPace
		}
		if waitSome(ctx, pace, nil) != nil {
			return
		}
	}
}

// admitted reports whether a configuration with this node is committed: one that is not may go with
// its leader, and the node must ask again.
func (c *Cluster) admitted(r *Replica) bool {
	return slices.ContainsFunc(r.machine.Configured.Load().Servers, func(s raft.Server) bool { return string(s.ID) == c.self.name })
}

func (c *Cluster) askToJoin(ctx context.Context, r *Replica) error {
	address, ok := c.leaderForJoin()
	if !ok {
		return errors.New("no leader is known")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*changeTimeout)
	defer cancel()
	var a joinAnswer
	return c.caller.call(ctx, address, http.MethodPost, "/join", joinRequest{
		Node: c.self.node, Address: c.self.opts.Advertise, Cluster: c.self.clusterID(), Format: dataFormat, Lineage: c.self.status().Lineage, ReadOnly: c.self.opts.ReadOnly,
		Tail: c.self.materials.Load().Log.Tail(), Last: r.raft.LastIndex(),
	}, &a)
}

// leaderForJoin finds the leader also when it has not spoken to this node yet.
func (c *Cluster) leaderForJoin() (string, bool) {
	if address, ok := c.LeaderAddress(); ok {
		return address, true
	}
	s, err := c.histories.guide()
	if err != nil {
		return "", false
	}
	m, ok := c.peers.member(s.Node.String())
	return m.ReplicationAddress, ok
}

// serveJoin admits a node or gives it its vote, if this node leads.
func (c *Cluster) serveJoin(w http.ResponseWriter, r *http.Request) {
	var q joinRequest
	if !question(w, r, &q) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	a, err := c.admit(ctx, q)
	if err != nil {
		var refused *event.MemberError
		status := http.StatusServiceUnavailable
		if errors.As(err, &refused) {
			status = http.StatusConflict
			if c.sayRefusal(q.Node, err.Error()) {
				c.self.logger.Warn("a node was not admitted", keyNode, q.Node.String(), "address", q.Address, keyError, err)
			}
		}
		http.Error(w, err.Error(), status)
		return
	}
	reply(w, a)
}

// sayRefusal reports whether a refusal is news: a node that is refused asks again and again.
func (c *Cluster) sayRefusal(node event.ID, why string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.refused.node == node && c.refused.why == why && now.Sub(c.refused.at) < c.self.opts.AdviceEvery {
		return false
	}
	c.refused = refusal{node, why, now}
	return true
}

// refusal is what was said last of a node that was not admitted.
type refusal struct {
	node event.ID
	why  string
	at   time.Time
}

func refuse(format string, args ...any) error {
	return &event.MemberError{Text: fmt.Sprintf(format, args...)}
}

// changing lets one change of the configuration happen at a time.
func (c *Cluster) changing(ctx context.Context) (*Replica, func(), error) {
	select {
	case c.changes <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	done := func() { <-c.changes }
	r := c.self.replica.Load()
	leading := false
	if r != nil {
		// Its barrier is done: it has applied the newest configuration.
		own, _ := r.pipeline.Leadership()
		leading = own.Leading && r.raft.State() == raft.Leader
	}
	if !leading {
		done()
		if address, ok := c.Redirect(); ok {
			return nil, nil, &event.NotLeader{Address: address}
		}
		return nil, nil, event.ErrNotReady
	}
	return r, done, nil
}

// admit does the next step for a node that asked. Everything that it may not be
// admitted for is found out before the configuration is touched.
func (c *Cluster) admit(ctx context.Context, q joinRequest) (a joinAnswer, err error) {
	r, done, err := c.changing(ctx)
	if err != nil {
		return a, err
	}
	defer done()
	if err := c.checkJoiner(q); err != nil {
		return a, err
	}
	configuration, index, err := r.Configuration()
	if err != nil {
		return a, err
	}
	if err := c.histories.settledVoters(configuration, q.Node); err != nil {
		return a, err
	}
	id := raft.ServerID(q.Node.String())
	at := slices.IndexFunc(configuration.Servers, func(s raft.Server) bool { return s.ID == id })
	if at >= 0 {
		a.Present, a.Voter = true, configuration.Servers[at].Suffrage == raft.Voter
		if a.Voter || q.ReadOnly || voters(configuration) >= c.self.opts.Size || q.Last+voteNear < r.raft.CommitIndex() {
			return a, nil
		}
		if err := c.change(ctx, "node gets its vote", q, r.raft.AddVoter(id, raft.ServerAddress(q.Address), index, changeTimeout)); err != nil {
			return a, err
		}
		a.Voter = true
		return a, nil
	}
	if err := c.makeRoom(ctx, r, q); err != nil {
		return a, err
	}
	if configuration, index, err = r.Configuration(); err != nil {
		return a, err
	}
	if !q.ReadOnly && !c.self.opts.Surplus && voters(configuration) >= c.self.opts.Size {
		return a, refuse("the cluster has its %d voters: remove one that is gone for good, or admit this node with: annals cluster add %s", c.self.opts.Size, q.Node)
	}
	err = c.change(ctx, "node is admitted", q, r.raft.AddNonvoter(id, raft.ServerAddress(q.Address), index, changeTimeout))
	a.Present = err == nil
	return a, err
}

// checkJoiner compares a node's history with this node's.
func (c *Cluster) checkJoiner(q joinRequest) error {
	switch {
	case q.Cluster != c.self.clusterID():
		return refuse("this is cluster %s, the node belongs to cluster %s", c.self.clusterID(), q.Cluster)
	case q.Format != dataFormat:
		return refuse("the nodes here use data format %d, the node uses %d", dataFormat, q.Format)
	}
	theirs := event.ID{}
	if q.Lineage != nil {
		theirs = *q.Lineage
	}
	if own := c.self.lineage.Load(); theirs != own.id {
		return c.histories.otherLineage(theirs)
	}
	log := c.self.materials.Load().Log
	if end := log.Tail().End; q.Tail.End > end {
		// It may have pulled from a node that is ahead of this one for a moment.
		return fmt.Errorf("the node's log ends at %d, the leader's at %d: try again, or it holds data that this cluster does not have", q.Tail.End, end)
	}
	chain, ok, err := log.ChainAt(q.Tail.End)
	if err != nil {
		return err
	}
	if !ok || chain != q.Tail.Chain {
		return refuse("the node's log holds another history: it ends at %d with chain %s, here that is %s", q.Tail.End, q.Tail.Chain, chain)
	}
	return nil
}

// makeRoom frees the address of a node that is to be admitted: raft takes each only once. A member
// that was seen last at that address is removed, if its place can be spared: its directory was
// replaced, so that it cannot come back. It never happens for mere absence, nor to one that is alive, and a read-only replica
// takes the place of a read-only replica alone. Every other one stays a member, with the address
// where gossip has it, or none: addresses are given out anew, to nodes that have nothing to do with each other.
func (c *Cluster) makeRoom(ctx context.Context, r *Replica, q joinRequest) error {
	configuration, index, err := r.Configuration()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(configuration.Servers, func(s raft.Server) bool { return string(s.Address) == q.Address })
	if at < 0 || string(configuration.Servers[at].ID) == q.Node.String() {
		return nil
	}
	old := configuration.Servers[at]
	m, known := c.peers.member(string(old.ID))
	moved := known && m.ReplicationAddress != q.Address
	if known && m.Alive && !moved { // Of one whose directory was replaced gossip says so soon.
		return fmt.Errorf("node %s is alive at %s: each node needs an address of its own", old.ID, q.Address)
	}
	replica := known && m.ReadOnly && old.Suffrage != raft.Voter
	if moved || q.ReadOnly && !replica {
		address := raft.ServerAddress(old.ID) // No node is reached by that.
		if now := raft.ServerAddress(m.ReplicationAddress); moved && !slices.ContainsFunc(configuration.Servers, func(s raft.Server) bool { return s.Address == now }) {
			address = now
		}
		c.self.logger.Warn("a member's address belongs to another node now: the member stays", "member", string(old.ID), keyNode, q.Node.String(), "address", q.Address)
		// raft changes the address of a voter by this, and not its vote.
		return c.change(ctx, "member gets another address", joinRequest{Node: q.Node, Address: string(address)}, r.raft.AddNonvoter(old.ID, address, index, changeTimeout))
	}
	if old.Suffrage == raft.Voter {
		if err := c.spare(configuration, old); err != nil {
			return err
		}
	}
	c.self.logger.Warn("a node is replaced: its address shows another id", "old", string(old.ID), keyNode, q.Node.String(), "address", q.Address)
	return c.change(ctx, "replaced node is removed", q, r.raft.RemoveServer(old.ID, index, changeTimeout))
}

// change waits for a change of the configuration.
func (c *Cluster) change(ctx context.Context, what string, q joinRequest, f raft.IndexFuture) error {
	done := make(chan error, 1)
	c.owned.Go(func() { done <- f.Error() }) // raft resolves it at the latest when it shuts down
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s: %w", what, changeFailed(err))
		}
		c.self.logger.Info(what, keyNode, q.Node.String(), "address", q.Address)
		c.peers.look()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

// changeFailed tells what raft's error means for whoever asked for the change: that
// nothing happened and another node may be asked, or that nobody knows.
func changeFailed(err error) error {
	switch {
	case pipeline.NotWritten(err), strings.HasPrefix(err.Error(), "configuration changed since"): // raft has no error of its own for it
		return fmt.Errorf("%w: %w", event.ErrNotReady, err)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", event.ErrOutcomeUnknown, err)
	}
	return err
}

// AddMember admits a node that is running and known to gossip, also beyond the
// cluster's size, and gives it a vote unless it is a read-only replica. It
// returns when that is done, which takes as long as the node needs to catch up.
func (c *Cluster) AddMember(ctx context.Context, node string) error {
	return c.persist(ctx, func() error { return c.addMember(ctx, node) })
}

func (c *Cluster) addMember(ctx context.Context, node string) error {
	_, done, err := c.changing(ctx)
	if err != nil {
		return err
	}
	done()
	m, ok := c.peers.find(node)
	if !ok || !m.Alive {
		return refuse("no running node %q is known: start it with this cluster's gossip seeds first", node)
	}
	for {
		if m.Node == c.self.node {
			return nil // It leads, so that it has a vote.
		}
		var s Status
		if err := c.caller.call(ctx, m.ReplicationAddress, http.MethodGet, "/status", nil, &s); err != nil {
			return refuse("node %s does not answer: %v", node, err)
		}
		if s.Running || s.Tail.End > 0 {
			voter, err := c.admitAnyway(ctx, joinRequest{
				Node: m.Node, Address: m.ReplicationAddress, Cluster: s.Cluster, Format: m.Format, Lineage: s.Lineage, ReadOnly: m.ReadOnly, Tail: s.Tail, Last: s.Last,
			})
			if err != nil || voter || m.ReadOnly {
				return err
			}
		}
		if err := waitSome(ctx, joinPace, nil); err != nil {
			return refuse("node %s has not caught up yet: it goes on doing so; repeat this to give it its vote", node)
		}
	}
}

// admitAnyway does the next step towards a vote, whatever the cluster's size.
func (c *Cluster) admitAnyway(ctx context.Context, q joinRequest) (voter bool, err error) {
	r, done, err := c.changing(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	if err := c.checkJoiner(q); err != nil {
		return false, err
	}
	configuration, index, err := r.Configuration()
	if err != nil {
		return false, err
	}
	if err := c.histories.settledVoters(configuration, q.Node); err != nil {
		return false, err
	}
	id, address := raft.ServerID(q.Node.String()), raft.ServerAddress(q.Address)
	at := slices.IndexFunc(configuration.Servers, func(s raft.Server) bool { return s.ID == id })
	switch {
	case at < 0:
		return false, c.change(ctx, "node is admitted", q, r.raft.AddNonvoter(id, address, index, changeTimeout))
	case configuration.Servers[at].Suffrage == raft.Voter:
		return true, nil
	case q.ReadOnly || q.Last+voteNear < r.raft.CommitIndex():
		return false, nil
	}
	return false, c.change(ctx, "node gets its vote", q, r.raft.AddVoter(id, address, index, changeTimeout))
}

// RemoveMember removes a node from the cluster, dead or alive. It refuses what
// would leave the others without a majority.
func (c *Cluster) RemoveMember(ctx context.Context, node string) error {
	return c.persist(ctx, func() error { return c.removeMember(ctx, node) })
}

// persist does what an operator asks for again, for a while, when nothing was done because leadership or
// the configuration had changed a moment ago. Each attempt decides anew on what there is then.
func (c *Cluster) persist(ctx context.Context, do func() error) error {
	for until := time.Now().Add(changePersist); ; {
		err := do()
		if !errors.Is(err, event.ErrNotReady) || c.self.stopping.Load() || time.Now().After(until) || waitSome(ctx, changePace, nil) != nil {
			return err
		}
	}
}

func (c *Cluster) removeMember(ctx context.Context, node string) error {
	r, done, err := c.changing(ctx)
	if err != nil {
		return err
	}
	defer done()
	configuration, index, err := r.Configuration()
	if err != nil {
		return err
	}
	if m, ok := c.peers.find(node); ok {
		node = m.Node.String()
	}
	at := slices.IndexFunc(configuration.Servers, func(s raft.Server) bool {
		return string(s.ID) == node || string(s.Address) == node
	})
	if at < 0 {
		return refuse("%q is no member of the cluster", node)
	}
	gone := configuration.Servers[at]
	if gone.Suffrage == raft.Voter {
		if err := c.spare(configuration, gone); err != nil {
			return err
		}
	}
	if string(gone.ID) == c.self.name {
		if err := c.Resign(ctx); err != nil {
			return err
		}
		if address, ok := c.Redirect(); ok {
			return &event.NotLeader{Address: address}
		}
		return refuse("this node leads and nobody could take over")
	}
	return c.change(ctx, "node is removed", joinRequest{Address: string(gone.Address)}, r.raft.RemoveServer(gone.ID, index, changeTimeout))
}

// spare refuses to remove a voter without which there would be no majority.
func (c *Cluster) spare(configuration raft.Configuration, gone raft.Server) error {
	rest, alive := 0, 0
	for _, s := range configuration.Servers {
		if s.Suffrage != raft.Voter || s.ID == gone.ID {
			continue
		}
		rest++
		if m, ok := c.peers.member(string(s.ID)); string(s.ID) == c.self.name || ok && m.Alive {
			alive++
		}
	}
	if rest == 0 || alive < rest/2+1 {
		return refuse("without %s the cluster has %d voters, of which %d are alive: no majority", gone.ID, rest, alive)
	}
	if least := c.self.opts.Size/2 + 1; rest < least {
		return refuse("without %s the cluster has %d voters: no majority of the %d that ClusterSize says, so that nothing would be written", gone.ID, rest, c.self.opts.Size)
	}
	return nil
}

// noteRemoval notices that the leader's configuration goes on without this node.
func (c *Cluster) noteRemoval() {
	r := c.self.replica.Load()
	if r == nil || r.state.Joining() || r.raft.State() == raft.Leader {
		return
	}
	removed := false
	term := uint64(0)
	lineage := c.self.lineage.Load().id
	for _, m := range c.peers.others() {
		p, ok := c.peers.get(m.Node)
		if !ok || p.status.State != event.StateLeader || p.status.Cluster != c.self.clusterID() || p.status.Term < term {
			continue
		}
		if theirs, _ := p.status.follows(); theirs != lineage {
			continue // It leads others.
		}
		term = p.status.Term
		removed = term >= r.raft.CurrentTerm() && !slices.ContainsFunc(p.status.Servers, func(s Server) bool { return s.Node == c.self.name })
	}
	if removed != c.removed.Swap(removed) && removed {
		c.self.logger.Error("this node was removed from the cluster: it gets no more writes. Stop it, or admit it again with: annals cluster add " + c.self.name)
	}
}
