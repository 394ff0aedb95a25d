package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication/gossip"
	"github.com/annalsdb/annals/replication/pipeline"
)

// leadership knows which node leads, and has this node take the lead and hand over.
type leadership struct {
	self         *self
	peers        *peers
	incarnations *incarnations
	disk         *disk
	clock        *Clock
	removed      func() bool // the cluster runs without this node

	priority  atomic.Int64
	resigning atomic.Bool // one goroutine at a time hands over
	offers    offers      // belongs to the one that does
	few       atomic.Bool // fewer voters than a majority of the cluster's size are known
	stayed    time.Time   // when leaveUnfit failed last; belongs to the goroutine that looks

	noting sync.Mutex // held while leadership is looked at and announced
	pipeline.Announced
}

// note publishes a Replica's leadership. Two goroutines do: one at a time,
// or the one that looked first might have the last word.
func (l *leadership) note(r *Replica) (pipeline.Leadership, <-chan struct{}) {
	l.noting.Lock()
	defer l.noting.Unlock()
	own, changed := r.pipeline.Leadership()
	l.Publish(l.counts(r, own))
	return own, changed
}

// counts says whether leadership counts: as long as a cluster that is being
// formed has fewer voters than a majority of its size, an answer would promise
// more than is so.
func (l *leadership) counts(r *Replica, own pipeline.Leadership) pipeline.Leadership {
	if !own.Leading || l.self.opts.Size == 1 {
		return own
	}
	if l.disk.hanging() != nil {
		return pipeline.Leadership{} // Another node may lead already.
	}
	configuration, _, err := r.Configuration()
	few := err != nil || voters(configuration) < l.self.opts.majority()
	l.few.Store(few)
	if few {
		return pipeline.Leadership{}
	}
	return own
}

// leader returns the leader's node id, empty when it is not known. A node without
// raft of its own, or one that takes no part because its disk hangs, goes by what the others say.
func (l *leadership) leader() string {
	if r := l.self.replica.Load(); r != nil && l.disk.hanging() == nil {
		_, node := r.raft.LeaderWithID()
		return string(node)
	}
	if s, err := l.incarnations.guide(); err == nil {
		return s.Node.String()
	}
	return ""
}

// redirect returns the leader's address for clients, as Cluster.Redirect does.
func (l *leadership) redirect() (address string, ok bool) {
	if l.self.opts.Size == 1 {
		return "", false
	}
	node := l.leader()
	if node == "" || node == l.self.name {
		return "", false
	}
	address = l.peers.clientAddress(node)
	return address, address != ""
}

// address is where other nodes reach the leader, as Cluster.LeaderAddress says.
func (l *leadership) address() (string, bool) {
	node := l.leader()
	if node == "" || node == l.self.name {
		return "", false
	}
	m, ok := l.peers.member(node)
	return m.ReplicationAddress, ok
}

// known returns which node leads and in which term, as this node's raft knows it. raft knows it
// before the other nodes' answers do, so clients find the leader in the view at once. A cluster
// with fewer voters than it needs has no leader.
func (l *leadership) known() (leader string, term uint64) {
	r := l.self.replica.Load()
	if r == nil || voters(l.self.configuration()) < l.self.opts.majority() {
		return "", 0
	}
	return l.leader(), r.raft.CurrentTerm()
}

// setPriority changes the node's priority until it is restarted.
func (l *leadership) setPriority(priority int) error {
	l.priority.Store(int64(priority))
	if l.peers.gossip == nil {
		return nil
	}
	return l.peers.gossip.Update(func(s *gossip.Self) { s.Priority = priority })
}

// outranked reports whether another voter has a higher priority than this node.
func (l *leadership) outranked() bool {
	if l.incarnations.diverged.get() != nil || l.clock.Wrong() != nil || l.self.unfit() != nil {
		return true // It must not lead.
	}
	for _, m := range l.peers.others() {
		if !m.ReadOnly && m.Priority > int(l.priority.Load()) {
			return true
		}
	}
	return false
}

// offers are the offers of leadership within a term that came to nothing. raft may leave the
// question of such a one in the queue of a follower that does not answer. A second one would then
// wait for room there, and if the leadership ends meanwhile it waits for ever, and raft takes no
// entry from this node any more, in whatever term. So a node is asked again only when it has all
// that it lacked: then the queue was read.
type offers struct {
	term uint64
	last map[event.ID]uint64 // the end of the Raft log when the node was given up
}

func (o *offers) declined(term uint64, node event.ID, last uint64) {
	if o.term != term || o.last == nil {
		o.term, o.last = term, map[event.ID]uint64{}
	}
	o.last[node] = last
}

func (o *offers) open(term uint64, s Status) bool {
	return o.term != term || s.Last >= o.last[s.Node]
}

// errNobody says that no other node could take over.
var errNobody = errors.New("no other voter that has everything answers")

// resign does what Cluster.Resign promises.
func (l *leadership) resign(ctx context.Context) error {
	r := l.self.replica.Load()
	if r == nil || l.self.opts.Size == 1 || l.disk.hanging() != nil || r.raft.State() != raft.Leader || !l.resigning.CompareAndSwap(false, true) {
		return nil
	}
	defer l.resigning.Store(false)
	err := l.handOver(ctx, r, func(Status) bool { return true })
	if errors.Is(err, errNobody) { // Nothing is wrong with that when a cluster is stopped.
		l.self.logger.Info("no other node can take over the leadership: this node keeps leading")
		return nil
	}
	if err != nil && !errors.Is(err, event.ErrClosed) {
		l.self.logger.Warn("no other node took over the leadership: this node keeps leading", logkey.Error, err)
		return nil
	}
	return err
}

// handOver pauses the pipeline, and transfers leadership to one of those nodes
// that suit after the other, until one of them leads.
func (l *leadership) handOver(ctx context.Context, r *Replica, suits func(Status) bool) error {
	if len(l.successors(ctx, r, suits)) == 0 {
		return errNobody
	}
	if err := r.pipeline.Pause(ctx); err != nil {
		return fmt.Errorf("wait for the writes in flight: %w", err)
	}
	defer r.pipeline.Resume()
	last := errNobody
	// They are asked again: the writes in flight have reached a quorum meanwhile.
	for _, s := range l.successors(ctx, r, suits) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !l.offers.open(r.raft.CurrentTerm(), s) {
			continue
		}
		address, _ := l.peers.member(s.Node.String())
		begun := time.Now()
		if err := r.raft.LeadershipTransferToServer(raft.ServerID(s.Node.String()), raft.ServerAddress(address.ReplicationAddress)).Error(); err != nil {
			last = fmt.Errorf("hand over to %s: %w", s.Node, err)
			if r.raft.State() == raft.Leader {
				l.offers.declined(r.raft.CurrentTerm(), s.Node, r.raft.LastIndex())
				l.self.logger.Warn("leadership was not handed over", logkey.To, l.peers.place(s.Node.String()), logkey.Error, err)
				continue
			}
			// It took longer than raft waits, and came to pass.
		}
		l.awaitLeader(ctx, r)
		l.self.logger.Info("leadership was handed over", logkey.To, l.peers.place(s.Node.String()), logkey.Took, time.Since(begun).Round(time.Millisecond))
		return nil
	}
	return last
}

// successors are the other voters that answer and suit, the best first.
func (l *leadership) successors(ctx context.Context, r *Replica, suits func(Status) bool) []Status {
	l.peers.askAll(ctx)
	configuration, _, err := r.Configuration()
	if err != nil {
		return nil
	}
	// A node that lacks more than a moment's entries would hold up everybody while it is brought up
	// to date.
	const near = 1024
	last := r.raft.LastIndex()
	odd := l.incarnations.diverged.get() != nil // the others are right, and any of them will do
	var list []Status
	for _, m := range l.peers.others() {
		p, ok := l.peers.get(m.Node)
		voter := slices.ContainsFunc(configuration.Servers, func(s raft.Server) bool {
			return s.Suffrage == raft.Voter && string(s.ID) == m.Node.String()
		})
		if ok && voter && time.Since(p.at) < 2*peerTimeout && p.status.Running && p.status.Last+near >= last &&
			p.status.Applied+near >= last && (p.agrees != disagrees || odd) && !p.status.Full && !p.status.WrongClock && !p.status.Unfit && suits(p.status) {
			list = append(list, p.status)
		}
	}
	slices.SortStableFunc(list, func(a, b Status) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(b.Last, a.Last), cmp.Compare(a.Node.String(), b.Node.String()))
	})
	return list
}

// leaders tells of each leader that raft follows, until it is stopped.
func (r *Replica) leaders() (observed chan raft.Observation, stop func()) {
	observed = make(chan raft.Observation, 16)
	observer := raft.NewObserver(observed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	r.raft.RegisterObserver(observer)
	return observed, func() { r.raft.DeregisterObserver(observer) }
}

// awaitLeader waits until this node knows the new leader, so that requests in the queue can be sent
// there. It gives up after an election timeout.
func (l *leadership) awaitLeader(ctx context.Context, r *Replica) {
	observed, stop := r.leaders()
	defer stop()
	over := time.After(l.self.opts.Replica.ElectionTimeout)
	for {
		if _, node := r.raft.LeaderWithID(); node != "" && string(node) != l.self.name {
			return
		}
		select {
		case <-observed:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// stayPace is how long an unfit leader keeps leading after handing over has failed.
const stayPace = 10 * time.Second

// leaveUnfit hands leadership over when this node must not serve its history, has a wrong clock,
// cannot decide writes, or refuses them because its disk is full and another node has room. What
// failed is tried again after a while: each try stops the writes for a moment.
func (l *leadership) leaveUnfit(ctx context.Context, r *Replica, own pipeline.Leadership) {
	undecided := l.self.unfit()
	fit := undecided == nil && l.self.readOnly.get() == nil && l.incarnations.diverged.get() == nil && l.clock.Wrong() == nil
	// Without decisions its leadership may not count.
	leads := own.Leading || undecided != nil && r.raft.State() == raft.Leader
	if fit || !leads || l.disk.hanging() != nil || time.Since(l.stayed) < stayPace || l.self.stopping.Load() || !l.resigning.CompareAndSwap(false, true) {
		return
	}
	defer l.resigning.Store(false)
	ctx, cancel := context.WithTimeout(ctx, l.self.opts.Replica.DrainTimeout)
	defer cancel()
	if err := l.handOver(ctx, r, func(s Status) bool { return !s.Full }); err != nil && !errors.Is(err, errNobody) {
		l.stayed = time.Now()
		l.self.logger.Warn("leadership was not handed over, although this node should not lead", logkey.Error, err)
	}
}

// wanted is how long the log of the leader is, or as long as none is known the
// longest of the cluster, as the nodes said last.
func (l *leadership) wanted() (end int64, ok bool) {
	if p, known := l.peers.heard(l.leader()); known {
		return p.status.Tail.End, true
	}
	for _, p := range l.peers.heardOthers() {
		if p.status.Running {
			end, ok = max(end, p.status.Tail.End), true
		}
	}
	return end, ok
}
