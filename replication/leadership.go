package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/gossip"
	"github.com/annalsdb/annals/replication/pipeline"
)

// leader returns the leader's node id, empty when it is not known. A node without
// raft of its own, or one that takes no part because its disk hangs, goes by what the others say.
func (c *Cluster) leader() string {
	if r := c.self.replica.Load(); r != nil && c.disk.hanging() == nil {
		if _, node := r.raft.LeaderWithID(); node != "" {
			return string(node)
		}
		return ""
	}
	if s, err := c.histories.guide(); err == nil {
		return s.Node.String()
	}
	return ""
}

// Redirect returns the leader's address for clients; ok is false when this node
// leads or does not know who does.
func (c *Cluster) Redirect() (address string, ok bool) {
	if c.self.opts.Size == 1 {
		return "", false
	}
	node := c.leader()
	if node == "" || node == c.self.name {
		return "", false
	}
	address = c.peers.clientAddress(node)
	return address, address != ""
}

// Ready reports whether requests can be served: this node leads, or knows another one that does, and its disk works.
func (c *Cluster) Ready() bool {
	if c.disk.hanging() != nil {
		return false
	}
	if l, _ := c.Leadership(); l.Leading {
		return true
	}
	r := c.self.replica.Load()
	if r == nil || c.removed.Load() {
		return false
	}
	_, leader := r.raft.LeaderWithID()
	return leader != "" && string(leader) != c.self.name
}

// SetPriority changes the node's priority until it is restarted.
func (c *Cluster) SetPriority(priority int) error {
	c.priority.Store(int64(priority))
	if c.peers.gossip == nil {
		return nil
	}
	return c.peers.gossip.Update(func(s *gossip.Self) { s.Priority = priority })
}

// outranked reports whether another voter has a higher priority than this node.
func (c *Cluster) outranked() bool {
	if c.histories.diverged.Load() != nil || c.Clock.Wrong() != nil {
		return true // It must not lead.
	}
	for _, m := range c.peers.others() {
		if !m.ReadOnly && m.Priority > int(c.priority.Load()) {
			return true
		}
	}
	return false
}

// errNobody says that no other node could take over.
var errNobody = errors.New("no other voter that has everything answers")

// Resign hands leadership to the voter with the highest priority among those that
// have everything. What is under way finishes first; what comes meanwhile waits,
// and is then sent to the new leader. It returns nil as well when this node does not
// lead, or nobody could take over: then it goes on leading.
func (c *Cluster) Resign(ctx context.Context) error {
	r := c.self.replica.Load()
	if r == nil || c.self.opts.Size == 1 || c.disk.hanging() != nil || r.raft.State() != raft.Leader || !c.resigning.CompareAndSwap(false, true) {
		return nil
	}
	defer c.resigning.Store(false)
	err := c.handOver(ctx, r, func(Status) bool { return true })
	if errors.Is(err, errNobody) { // Nothing is wrong with that when a cluster is stopped.
		c.self.logger.Info("nobody can take leadership over: this node goes on leading")
		return nil
	}
	if err != nil && !errors.Is(err, event.ErrClosed) {
		c.self.logger.Warn("nobody took leadership over: this node goes on leading", keyError, err)
		return nil
	}
	return err
}

// handOver pauses the pipeline, and transfers leadership to one of those nodes
// that suit after the other, until one of them leads.
func (c *Cluster) handOver(ctx context.Context, r *Replica, suits func(Status) bool) error {
	if len(c.successors(ctx, r, suits)) == 0 {
		return errNobody
	}
	if err := r.pipeline.Pause(ctx); err != nil {
		return fmt.Errorf("wait for the writes under way: %w", err)
	}
	defer r.pipeline.Resume()
	last := errNobody
	// They are asked again: what was under way has reached a quorum meanwhile.
	for _, s := range c.successors(ctx, r, suits) {
		if err := ctx.Err(); err != nil {
			return err
		}
		address, _ := c.peers.member(s.Node.String())
		begun := time.Now()
		if err := r.raft.LeadershipTransferToServer(raft.ServerID(s.Node.String()), raft.ServerAddress(address.ReplicationAddress)).Error(); err != nil {
			last = fmt.Errorf("hand over to %s: %w", s.Node, err)
			if r.raft.State() == raft.Leader {
				c.self.logger.Warn("leadership was not handed over", keyNode, s.Node.String(), keyError, err)
				continue
			}
			// It took longer than raft waits, and came to pass.
		}
		c.awaitLeader(ctx, r)
		c.self.logger.Info("leadership was handed over", keyNode, s.Node.String(), "took", time.Since(begun).Round(time.Millisecond))
		return nil
	}
	return last
}

// successors are the other voters that answer and suit, the best first.
func (c *Cluster) successors(ctx context.Context, r *Replica, suits func(Status) bool) []Status {
	c.peers.askAll(ctx)
	configuration, _, err := r.Configuration()
	if err != nil {
		return nil
	}
	// A node that lacks more than a moment's entries would hold up everybody while it is brought up to date.
	const near = 1024
	last := r.raft.LastIndex()
	odd := c.histories.diverged.Load() != nil // the others are right, and any of them will do
	var list []Status
	for _, m := range c.peers.others() {
		p, ok := c.peers.get(m.Node)
		voter := slices.ContainsFunc(configuration.Servers, func(s raft.Server) bool {
			return s.Suffrage == raft.Voter && string(s.ID) == m.Node.String()
		})
		if ok && voter && time.Since(p.at) < 2*peerTimeout && p.status.Running && p.status.Last+near >= last &&
			p.status.Applied+near >= last && (p.agrees != disagrees || odd) && !p.status.Full && !p.status.WrongClock && suits(p.status) {
			list = append(list, p.status)
		}
	}
	slices.SortStableFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.Last, a.Last), cmp.Compare(a.Node.String(), b.Node.String()))
	})
	return list
}

// awaitLeader waits until this node knows who leads now, so that what waits in
// the queue can be sent there. It gives up after an election timeout.
func (c *Cluster) awaitLeader(ctx context.Context, r *Replica) {
	observed := make(chan raft.Observation, 4)
	observer := raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	r.raft.RegisterObserver(observer)
	defer r.raft.DeregisterObserver(observer)
	timer := time.NewTimer(c.self.opts.Replica.ElectionTimeout)
	defer timer.Stop()
	for {
		if _, node := r.raft.LeaderWithID(); node != "" && string(node) != c.self.name {
			return
		}
		select {
		case <-observed:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// stayPace is how long a leader that is not fit goes on when handing over has failed.
const stayPace = 10 * time.Second

// leaveUnfit hands leadership over when this node must not serve its history, has a wrong clock, or
// refuses writes for want of space and another does not. What failed is tried again after a
// while: each try stops the writes for a moment.
func (c *Cluster) leaveUnfit(ctx context.Context, r *Replica, l pipeline.Leadership) {
	if !l.Leading || c.disk.hanging() != nil || c.self.readOnly.Load() == nil && c.histories.diverged.Load() == nil && c.Clock.Wrong() == nil || time.Since(c.stayed) < stayPace || c.self.stopping.Load() || !c.resigning.CompareAndSwap(false, true) {
		return
	}
	defer c.resigning.Store(false)
	ctx, cancel := context.WithTimeout(ctx, c.self.opts.Replica.DrainTimeout)
	defer cancel()
	if err := c.handOver(ctx, r, func(s Status) bool { return !s.Full }); err != nil && !errors.Is(err, errNobody) {
		c.stayed = time.Now()
		c.self.logger.Warn("leadership was not handed over, although this node is not fit for it", keyError, err)
	}
}

// State is the state of this node.
func (c *Cluster) State() event.NodeState {
	if c.self.stopping.Load() {
		return event.StateShuttingDown
	}
	r := c.self.replica.Load()
	if r == nil {
		return c.state.Load().(event.NodeState)
	}
	if c.disk.hanging() != nil && c.self.opts.Size > 1 {
		return event.StateUnknown
	}
	own, _ := r.pipeline.Leadership()
	switch {
	case own.Leading && c.few.Load():
		return event.StatePreLeader
	case own.Leading && c.resigning.Load():
		return event.StateResigningLeader
	case own.Leading:
		return event.StateLeader
	case r.raft.State() == raft.Leader:
		return event.StatePreLeader
	case c.removed.Load():
		return event.StateUnknown
	}
	_, leader := r.raft.LeaderWithID()
	voter, present := c.self.suffrage()
	switch {
	case leader == "":
		return c.self.replicaState(event.StateUnknown, event.StateReadOnlyLeaderless)
	case !present:
		return c.self.replicaState(event.StatePreReplica, event.StatePreReadOnlyReplica)
	case voter:
		return event.StateFollower
	case c.self.opts.ReadOnly:
		return event.StateReadOnlyReplica
	case c.pull.busy():
		return event.StateCatchingUp
	}
	return event.StateClone
}

// known returns who leads and in which term, as this node's raft knows. It knows
// sooner than others are asked what they are: clients who look for the leader
// in the view find it. Nobody leads a cluster that has fewer voters than it needs.
func (c *Cluster) known() (leader string, term uint64) {
	r := c.self.replica.Load()
	if r == nil {
		return "", 0
	}
	configuration, _, err := r.Configuration()
	if err != nil || voters(configuration) < c.self.opts.Size/2+1 {
		return "", 0
	}
	return c.leader(), r.raft.CurrentTerm()
}
