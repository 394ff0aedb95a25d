package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/throttle"
	"github.com/annalsdb/annals/replication/pipeline"
)

// membership changes the members of the cluster, while this node leads.
type membership struct {
	self         *self
	peers        *peers
	incarnations *incarnations
	lead         *leadership

	changes chan struct{}   // capacity 1: held while the configuration is changed
	owned   *sync.WaitGroup // of the Cluster: changes whose callers have gone are waited for

	said throttle.Lines[refusal]
}

// refusal is why a node was not admitted.
type refusal struct {
	node event.ID
	why  string
}

const (
	// between two requests of a node that is not where it wants to be
	joinPace    = 250 * time.Millisecond
	settledPace = 2 * time.Second
	// between two attempts of a change that an operator asked for
	changePace    = 50 * time.Millisecond
	changePersist = 3 * time.Second  // for which attempts are made
	changeTimeout = 10 * time.Second // of one change of the configuration
	voteNear      = 256              // entries that a node may lack when it gets its vote
)

// serve admits a node or gives it its vote, if this node leads.
func (m *membership) serve(w http.ResponseWriter, r *http.Request) {
	var q joinRequest
	if !question(w, r, &q) {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	a, err := m.admit(ctx, q, false)
	if err != nil {
		status := http.StatusServiceUnavailable
		if _, refused := errors.AsType[*event.MemberError](err); refused {
			status = http.StatusConflict
			if _, due := m.said.Due(refusal{q.Node, err.Error()}); due { // It asks again and again.
				m.self.logger.Warn("a node was not admitted", logkey.Node, q.Node.String(), logkey.Address, q.Address, logkey.Error, err)
			}
		}
		http.Error(w, err.Error(), status)
		return
	}
	reply(w, a)
}

func refuse(format string, args ...any) error {
	return &event.MemberError{Text: fmt.Sprintf(format, args...)}
}

// changing lets one change of the configuration happen at a time.
func (m *membership) changing(ctx context.Context) (*Replica, func(), error) {
	select {
	case m.changes <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	done := func() { <-m.changes }
	r := m.self.replica.Load()
	leading := false
	if r != nil {
		// Its barrier is done: it has applied the newest configuration.
		own, _ := r.pipeline.Leadership()
		leading = own.Leading && r.raft.State() == raft.Leader
	}
	if !leading {
		done()
		if address, ok := m.lead.redirect(); ok {
			return nil, nil, &event.NotLeader{Address: address}
		}
		return nil, nil, event.ErrNotReady
	}
	return r, done, nil
}

// admit does the next step for a node that asked, or for which an operator asked: then its vote
// does not depend on the cluster's size, and no member makes room for it. All reasons to refuse it
// are checked before the configuration changes.
func (m *membership) admit(ctx context.Context, q joinRequest, anyway bool) (a joinAnswer, err error) {
	r, done, err := m.changing(ctx)
	if err != nil {
		return a, err
	}
	defer done()
	if err := m.checkJoiner(q); err != nil {
		return a, err
	}
	configuration, index, err := r.Configuration()
	if err != nil {
		return a, err
	}
	if err := m.incarnations.settledVoters(configuration, q.Node); err != nil {
		return a, err
	}
	full := func() bool { return !anyway && voters(configuration) >= m.self.opts.Size }
	id := raft.ServerID(q.Node.String())
	at := slices.IndexFunc(configuration.Servers, func(s raft.Server) bool { return s.ID == id })
	if at >= 0 {
		a.Present, a.Voter = true, configuration.Servers[at].Suffrage == raft.Voter
		if a.Voter || q.ReadOnly || full() || q.Last+voteNear < r.raft.CommitIndex() {
			return a, nil
		}
		if err := m.change(ctx, r, "node gets its vote", q, r.raft.AddVoter(id, raft.ServerAddress(q.Address), index, changeTimeout)); err != nil {
			return a, err
		}
		a.Voter = true
		return a, nil
	}
	if !anyway {
		if err := m.makeRoom(ctx, r, configuration, index, q); err != nil {
			return a, err
		}
		if configuration, index, err = r.Configuration(); err != nil {
			return a, err
		}
	}
	if !q.ReadOnly && !m.self.opts.Surplus && full() {
		return a, refuse("the cluster already has its %d voters: remove one that is gone for good, or admit this node with: annals cluster add %s", m.self.opts.Size, q.Node)
	}
	err = m.change(ctx, r, "node is admitted", q, r.raft.AddNonvoter(id, raft.ServerAddress(q.Address), index, changeTimeout))
	a.Present = err == nil
	return a, err
}

// checkJoiner compares a node's history with this node's.
func (m *membership) checkJoiner(q joinRequest) error {
	switch {
	case q.Cluster != m.self.clusterID():
		return refuse("this is cluster %s, the node belongs to cluster %s", m.self.clusterID(), q.Cluster)
	case q.Format != dataFormat:
		return refuse("the nodes here use data format %d, the node uses %d", dataFormat, q.Format)
	}
	theirs := event.ID{}
	if q.Incarnation != nil {
		theirs = *q.Incarnation
	}
	if own := m.self.incarnation.Load(); theirs != own.id {
		return m.incarnations.otherIncarnation(theirs)
	}
	log := m.self.deps.Load().Log
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
// replaced, so that it cannot come back. It never happens for mere absence, nor to one that is
// alive, and a read-only replica takes the place of a read-only replica alone. Every other one
// stays a member, with the address where gossip has it, or none: addresses are reused, by unrelated
// nodes.
func (m *membership) makeRoom(ctx context.Context, r *Replica, configuration raft.Configuration, index uint64, q joinRequest) error {
	at := slices.IndexFunc(configuration.Servers, func(s raft.Server) bool { return string(s.Address) == q.Address })
	if at < 0 || string(configuration.Servers[at].ID) == q.Node.String() {
		return nil
	}
	old := configuration.Servers[at]
	seen, known := m.peers.member(string(old.ID))
	moved := known && seen.ReplicationAddress != q.Address
	if known && seen.Alive && !moved { // Of one whose directory was replaced gossip says so soon.
		return fmt.Errorf("node %s is alive at %s: each node needs an address of its own", old.ID, q.Address)
	}
	replica := known && seen.ReadOnly && old.Suffrage != raft.Voter
	if moved || q.ReadOnly && !replica {
		address := raft.ServerAddress(old.ID) // No node is reached by that.
		if now := raft.ServerAddress(seen.ReplicationAddress); moved && !slices.ContainsFunc(configuration.Servers, func(s raft.Server) bool { return s.Address == now }) {
			address = now
		}
		m.self.logger.Warn("a member's address belongs to another node now: the member stays", "member", string(old.ID), logkey.Node, q.Node.String(), logkey.Address, q.Address)
		// raft changes the address of a voter by this, and not its vote.
		return m.change(ctx, r, "member gets another address", joinRequest{Node: q.Node, Address: string(address)}, r.raft.AddNonvoter(old.ID, address, index, changeTimeout))
	}
	if old.Suffrage == raft.Voter {
		if err := m.spare(configuration, old); err != nil {
			return err
		}
	}
	m.self.logger.Warn("a node is replaced: its address shows another id", "old", string(old.ID), logkey.Node, q.Node.String(), logkey.Address, q.Address)
	return m.change(ctx, r, "replaced node is removed", q, r.raft.RemoveServer(old.ID, index, changeTimeout))
}

// change waits for a change of the configuration.
func (m *membership) change(ctx context.Context, r *Replica, what string, q joinRequest, f raft.IndexFuture) error {
	done := make(chan error, 1)
	// at the latest it fails when raft has ended
	m.owned.Go(func() { done <- endWith(r.ended, f).Error() })
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%s: %w", what, changeFailed(err))
		}
		m.self.logger.Info(what, logkey.Node, q.Node.String(), logkey.Address, q.Address)
		m.peers.look()
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

// changeFailed translates raft's error for the caller that asked for the change: either nothing
// happened and another node may be asked, or the outcome is unknown.
func changeFailed(err error) error {
	switch {
	case pipeline.NotWritten(err), strings.HasPrefix(err.Error(), "configuration changed since"):
		// raft has no error of its own for it
		return fmt.Errorf("%w: %w", event.ErrNotReady, err)
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", event.ErrOutcomeUnknown, err)
	}
	return err
}

// add does once what Cluster.AddMember promises.
func (m *membership) add(ctx context.Context, node string) error {
	_, done, err := m.changing(ctx)
	if err != nil {
		return err
	}
	done()
	for known := false; ; known = true {
		seen, ok := m.peers.find(node)
		switch {
		case ok && seen.Alive:
		case known:
			// It did answer. Gossip may be wrong for a moment.
			return fmt.Errorf("%w: node %q does not seem to be alive any more", event.ErrNotReady, node)
		default:
			return refuse("no running node %q is known: start it with this cluster's gossip seeds first", node)
		}
		if seen.Node == m.self.node {
			return nil // It leads, so that it has a vote.
		}
		var s Status
		if err := m.peers.caller.call(ctx, seen.ReplicationAddress, http.MethodGet, "/status", nil, &s); err != nil {
			return refuse("node %s does not answer: %v", node, err)
		}
		if s.Node != seen.Node || s.ReadOnly != seen.ReadOnly {
			// It was started again since, with an empty folder or in another role.
			return fmt.Errorf("%w: gossip does not show yet what node %s is at %s", event.ErrNotReady, s.Node, seen.ReplicationAddress)
		}
		if s.Running || s.Tail.End > 0 {
			a, err := m.admit(ctx, joinRequest{
				Node: seen.Node, Address: seen.ReplicationAddress, Cluster: s.Cluster, Format: seen.Format, Incarnation: s.Incarnation, ReadOnly: seen.ReadOnly, Tail: s.Tail, Last: s.Last,
			}, true)
			if err != nil || a.Voter || seen.ReadOnly {
				return err
			}
		}
		if err := clock.Sleep(ctx, joinPace); err != nil {
			return refuse("node %s is still catching up: repeat this later to give it its vote", node)
		}
	}
}

// persist does what an operator asks for again, for a while, when nothing was done because
// leadership or the configuration had changed a moment ago. Each attempt decides again on the
// configuration of that moment.
func (m *membership) persist(ctx context.Context, do func() error) error {
	for until := time.Now().Add(changePersist); ; {
		err := do()
		if !errors.Is(err, event.ErrNotReady) || m.self.stopping.Load() || time.Now().After(until) || clock.Sleep(ctx, changePace) != nil {
			return err
		}
	}
}

// remove does once what Cluster.RemoveMember promises.
func (m *membership) remove(ctx context.Context, node string) error {
	r, done, err := m.changing(ctx)
	if err != nil {
		return err
	}
	defer done()
	configuration, index, err := r.Configuration()
	if err != nil {
		return err
	}
	at := m.named(configuration, node)
	if at < 0 {
		return refuse("%q is not a member of the cluster", node)
	}
	gone := configuration.Servers[at]
	if gone.Suffrage == raft.Voter {
		if err := m.spare(configuration, gone); err != nil {
			return err
		}
	}
	if string(gone.ID) == m.self.name {
		if err := m.lead.resign(ctx); err != nil {
			return err
		}
		if address, ok := m.lead.redirect(); ok {
			return &event.NotLeader{Address: address}
		}
		return refuse("this node leads and no other node could take over")
	}
	return m.change(ctx, r, "node is removed", joinRequest{Address: string(gone.Address)}, r.raft.RemoveServer(gone.ID, index, changeTimeout))
}

// named returns the member that an operator means: by its id, by an address at which gossip has it
// now, or by the one that the configuration has for it, if gossip does not have it elsewhere.
func (m *membership) named(c raft.Configuration, node string) int {
	if at := slices.IndexFunc(c.Servers, func(s raft.Server) bool { return string(s.ID) == node }); at >= 0 {
		return at
	}
	at, alive := -1, false
	for _, seen := range m.peers.members() {
		if seen.ReplicationAddress != node && joinHostPort(seen.HTTPHost, seen.HTTPPort) != node || alive {
			continue
		}
		if i := slices.IndexFunc(c.Servers, func(s raft.Server) bool { return string(s.ID) == seen.Node.String() }); i >= 0 {
			at, alive = i, seen.Alive
		}
	}
	if at >= 0 {
		return at
	}
	return slices.IndexFunc(c.Servers, func(s raft.Server) bool {
		seen, known := m.peers.member(string(s.ID))
		return string(s.Address) == node && (!known || seen.ReplicationAddress == node)
	})
}

// spare refuses to remove a voter without which there would be no majority.
func (m *membership) spare(configuration raft.Configuration, gone raft.Server) error {
	rest, alive := 0, 0
	for _, s := range configuration.Servers {
		if s.Suffrage != raft.Voter || s.ID == gone.ID {
			continue
		}
		rest++
		if seen, ok := m.peers.member(string(s.ID)); string(s.ID) == m.self.name || ok && seen.Alive {
			alive++
		}
	}
	if rest == 0 || alive < rest/2+1 {
		return refuse("without %s the cluster has %d voters, of which %d are alive: no majority", gone.ID, rest, alive)
	}
	if rest < m.self.opts.majority() {
		return refuse("without %s the cluster has %d voters: no majority of the %d that ClusterSize says, so nothing could be written", gone.ID, rest, m.self.opts.Size)
	}
	return nil
}
