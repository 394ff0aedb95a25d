package replication

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// leaderless says in plain words that the cluster has no leader, and which nodes are missing.
type leaderless struct {
	self  *self
	peers *peers
	lead  *leadership
	// a certificate that was refused between this node and another one; empty: none
	distrust func() string

	// These belong to the goroutine that looks.
	since time.Time // this node knows of no leader; zero: it knows one
	said  time.Time // in the log, last
	deaf  bool      // what was said last: that there is a leader which does not reach this node

	why reason // nil: there is a leader, or the search for one is young
}

const (
	// An election takes up to three election timeouts, and a second one is not rare under load.
	electionsBefore = 5
	// As long as a node that is gone may seem to answer: so late, the count is right.
	reachedFor = 2 * peerTimeout
)

// NoLeaderError says that this node follows no leader.
type NoLeaderError struct {
	Leader          string   // address of a node that says it leads; empty: none does
	Reached, Voters int      // this node included, if it votes
	Missing         []string // addresses of the other voters
}

func (e *NoLeaderError) Error() string {
	if e.Leader != "" {
		return "the leader " + e.Leader + " answers this node, but does not reach it"
	}
	if needed := e.Voters/2 + 1; e.Reached < needed {
		return fmt.Sprintf("%d of %d voting nodes can be reached, %d are needed", e.Reached, e.Voters, needed)
	}
	return fmt.Sprintf("%d of %d voting nodes can be reached, and they do not agree on a leader", e.Reached, e.Voters)
}

// look notes whether there is a leader, and says once in a while that there is none.
func (l *leaderless) look(now time.Time) {
	trouble := l.trouble(now)
	if trouble == nil {
		l.why.set(nil)
		return
	}
	l.why.set(trouble)
	if deaf := trouble.Leader != ""; deaf != l.deaf {
		l.deaf, l.said = deaf, time.Time{}
	}
	if now.Sub(l.said) < sayEvery {
		return
	}
	l.said = now
	var more []any
	if len(trouble.Missing) > 0 {
		more = []any{"missing", strings.Join(trouble.Missing, ",")}
	}
	if d := l.distrust(); d != "" {
		more = append(more, logkey.Reason, d)
	}
	if trouble.Leader != "" {
		l.self.logger.Error("this node gets no more writes: "+trouble.Error(), more...)
		return
	}
	l.self.logger.Error("this cluster has no leader: "+trouble.Error()+"; writes are refused", more...)
}

// trouble is what to say of a cluster without a leader, nil when it has one, or when an election
// may still be in progress.
func (l *leaderless) trouble(now time.Time) *NoLeaderError {
	r := l.self.replica.Load()
	if r == nil || l.self.stopping.Load() || l.lead.disk.hanging() != nil || l.lead.removed() || r.state.Joining() {
		l.since = time.Time{} // It has other troubles, which are said.
		return nil
	}
	if _, leader := r.raft.LeaderWithID(); leader != "" {
		l.since, l.said = time.Time{}, time.Time{}
		return nil
	}
	if l.since.IsZero() {
		l.since = now
	}
	if now.Sub(l.since) < max(electionsBefore*l.self.opts.Replica.ElectionTimeout, reachedFor) {
		return nil
	}
	e := new(NoLeaderError)
	said := l.peers.all()
	for _, server := range l.self.configuration().Servers {
		if server.Suffrage != raft.Voter {
			continue
		}
		e.Voters++
		if string(server.ID) == l.self.name {
			e.Reached++
			continue
		}
		answered := false
		for id, p := range said {
			if id.String() != string(server.ID) || now.Sub(p.at) >= reachedFor {
				continue
			}
			answered = true
			if p.status.State == event.StateLeader {
				e.Leader = l.peers.place(string(server.ID))
			}
		}
		if answered {
			e.Reached++
			continue
		}
		e.Missing = append(e.Missing, l.peers.place(string(server.ID)))
	}
	if e.Voters == 0 {
		return nil // It does not know its cluster yet.
	}
	slices.Sort(e.Missing)
	return e
}

// sayLeaders logs each leader that a Replica's raft follows, until the Replica or the context ends.
func (l *lifecycle) sayLeaders(ctx context.Context, r *Replica) {
	observed, stop := r.leaders()
	defer stop()
	type lead struct {
		node raft.ServerID
		term uint64
	}
	var said lead
	for {
		term := r.raft.CurrentTerm()
		if _, node := r.raft.LeaderWithID(); node != "" && said != (lead{node, term}) {
			said = lead{node, term}
			l.self.logger.Info("the leader is "+l.peers.place(string(node)), logkey.Term, term)
		}
		select {
		case <-observed:
		case <-r.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}
