package replication

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// joiner seeks this node's place in the cluster, and notices when it is gone.
type joiner struct {
	self         *self
	peers        *peers
	incarnations *incarnations
	lead         *leadership

	waiting reason      // why this node is not admitted; nil: it is, or has not asked
	removed atomic.Bool // the cluster runs without this node
}

// joinRequest is what a node says that wants to be admitted, or to get its vote.
type joinRequest struct {
	Node    event.ID `json:"node"`
	Address string   `json:"address"`
	Cluster event.ID `json:"cluster"`
	Format  int      `json:"format"`
	// nil: the node is of a version that knew only one
	Incarnation *event.ID  `json:"lineage,omitempty"`
	ReadOnly    bool       `json:"readOnly"`
	Tail        event.Tail `json:"tail"`
	Last        uint64     `json:"last"` // index of its Raft log's last entry
}

// joinAnswer tells a node its place in the configuration.
type joinAnswer struct {
	Present bool `json:"present"`
	Voter   bool `json:"voter"`
}

// run asks the leader for this node's place: to be admitted if it never
// was, and to get a vote once it has caught up. A node that was a member once and
// is not any more does not ask: an operator removed it.
func (j *joiner) run(ctx context.Context) {
	said := time.Now() // So long an ordinary start may take.
	for {
		pace := settledPace
		if r := j.self.replica.Load(); r != nil {
			voter, present := j.self.suffrage()
			if r.state.Joining() && j.admitted(r) {
				j.self.warn("record that the cluster admitted this node", r.state.Unmark(raftdisk.JoiningFile))
			}
			var hindered error
			if !voter && (r.state.Joining() || present && !j.self.opts.ReadOnly) {
				pace = joinPace
				err := j.ask(ctx, r)
				if err != nil && !present {
					hindered = fmt.Errorf("waiting to be admitted: %w", err)
				}
				if err != nil && ctx.Err() == nil && time.Since(said) > j.self.opts.AdviceEvery {
					said = time.Now()
					j.self.logger.Warn("this node does not have its place in the cluster yet", "voter", voter, "admitted", present, logkey.Error, err)
				}
			}
			j.waiting.set(hindered)
		} else {
			pace = joinPace
		}
		if clock.Sleep(ctx, pace) != nil {
			return
		}
	}
}

// admitted reports whether a configuration with this node is committed: one that is not may go with
// its leader, and the node must ask again.
func (j *joiner) admitted(r *Replica) bool {
	return slices.ContainsFunc(r.machine.Configured.Load().Servers, func(s raft.Server) bool { return string(s.ID) == j.self.name })
}

func (j *joiner) ask(ctx context.Context, r *Replica) error {
	address, ok := j.leaderForJoin()
	if !ok {
		return errors.New("no leader is known")
	}
	ctx, cancel := context.WithTimeout(ctx, 2*changeTimeout)
	defer cancel()
	var a joinAnswer
	return j.peers.caller.call(ctx, address, http.MethodPost, "/join", joinRequest{
		Node: j.self.node, Address: j.self.opts.Advertise, Cluster: j.self.clusterID(), Format: dataFormat, Incarnation: j.self.status().Incarnation, ReadOnly: j.self.opts.ReadOnly,
		Tail: j.self.deps.Load().Log.Tail(), Last: r.raft.LastIndex(),
	}, &a)
}

// leaderForJoin finds the leader also when it has not spoken to this node yet.
func (j *joiner) leaderForJoin() (string, bool) {
	if address, ok := j.lead.address(); ok {
		return address, true
	}
	s, err := j.incarnations.guide()
	if err != nil {
		return "", false
	}
	m, ok := j.peers.member(s.Node.String())
	return m.ReplicationAddress, ok
}

// noteRemoval notices that the leader's configuration does not hold this node any more.
func (j *joiner) noteRemoval() {
	r := j.self.replica.Load()
	if r == nil || r.state.Joining() || r.raft.State() == raft.Leader {
		return
	}
	removed := false
	term := uint64(0)
	incarnation := j.self.incarnation.Load().id
	for _, m := range j.peers.others() {
		p, ok := j.peers.get(m.Node)
		if !ok || p.status.State != event.StateLeader || p.status.Cluster != j.self.clusterID() || p.status.Term < term {
			continue
		}
		if theirs, _ := p.status.follows(); theirs != incarnation {
			continue // It leads others.
		}
		term = p.status.Term
		removed = term >= r.raft.CurrentTerm() && !slices.ContainsFunc(p.status.Servers, func(s Server) bool { return s.Node == j.self.name })
	}
	if removed != j.removed.Swap(removed) && removed {
		j.self.logger.Error("this node was removed from the cluster: it gets no more writes. Stop it, or admit it again with: annals cluster add " + j.self.name)
	}
}
