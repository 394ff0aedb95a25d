package replication

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/throttle"
)

// `incarnation` is the cluster incarnation that a node belongs to. The first one has the id zero.
// One that continues from a copy of the data has an id of its own, so that nodes of both never mix.
type incarnation struct {
	id    event.ID
	fixed bool // it is in raft/; until then the node may still go with another one
}

// incarnations compares this node's history, and the content of its log, with those of the others.
type incarnations struct {
	self  *self
	peers *peers

	others   atomic.Int64 // other nodes whose log differs from this node's
	apart    atomic.Int64 // other nodes of another cluster incarnation
	unsure   reason       // this node may be the one whose history is wrong
	diverged reason       // it is

	said throttle.Lines[event.ID] // of nodes of another cluster incarnation
}

// headerIncarnation carries the cluster incarnation of the asking node, in all requests to other
// nodes.
const headerIncarnation = "Annals-Lineage"

// follows returns the cluster incarnation of a node; known is false for a node that has none yet.
func (s *Status) follows() (id event.ID, known bool) {
	if s.Incarnation != nil {
		return *s.Incarnation, true
	}
	return event.ID{}, s.Running // of a version that knew only one
}

// names reports whether a node is in the configuration of this one.
func (s *Status) names(node string) bool {
	return slices.ContainsFunc(s.Servers, func(m Server) bool { return m.Node == node })
}

// apart reports whether two nodes of one cluster belong to different histories of it: by their
// incarnations, or because their configurations have no node in common, as with nodes that were
// recovered by a version that knew no incarnations.
func apart(a, b *Status) bool {
	ours, known := a.follows()
	theirs, both := b.follows()
	if known && both && ours != theirs {
		return true
	}
	return len(a.Servers) > 0 && len(b.Servers) > 0 && !slices.ContainsFunc(a.Servers, func(s Server) bool { return b.names(s.Node) })
}

const apartRemedy = "decide which history to keep, stop the nodes of the other one, rename their folders raft, and start them: they join with their data if the data fit"

// guide returns the leader by which this node goes: its own, or the one of the cluster that it is
// to join. A node that follows no history yet goes with the leader that acknowledges, and does not
// choose where there is a choice.
func (h *incarnations) guide() (*Status, error) {
	if r := h.self.replica.Load(); r != nil {
		_, node := r.raft.LeaderWithID()
		if p, ok := h.peers.heard(string(node)); ok {
			return &p.status, nil
		}
	}
	own := h.self.incarnation.Load()
	fixed := own != nil && own.fixed
	var all []Status
	var best *Status
	for _, p := range h.peers.heardOthers() {
		s := p.status
		if theirs, known := s.follows(); !known || fixed && theirs != own.id || !s.Running {
			continue
		}
		all = append(all, s)
		if s.Leader == s.Node.String() && (best == nil || s.acknowledges() && !best.acknowledges() ||
			s.acknowledges() == best.acknowledges() && s.Term > best.Term) {
			best = &s
		}
	}
	if best == nil {
		return nil, errNoLeader
	}
	for _, s := range all {
		if !fixed && apart(best, &s) && (!best.acknowledges() || s.acknowledges()) {
			return nil, fmt.Errorf("%s and %s follow different histories of cluster %s, and this node does not choose between them: %s",
				h.peers.where(best.Node.String()), h.peers.where(s.Node.String()), h.self.clusterID(), apartRemedy)
		}
	}
	return best, nil
}

var errNoLeader = errors.New("no leader is known")

// acknowledges reports whether a node leads with as many voters as its cluster needs.
func (s *Status) acknowledges() bool {
	return s.State == event.StateLeader || s.State == event.StateResigningLeader
}

// origin returns which nodes this one may fetch data from: the members of the leader's
// configuration. No node may lead, for example because an election needs this node's data. Then a
// node with consensus state accepts nodes whose configuration holds both it and them.
func (h *incarnations) origin() (func(*Status) bool, error) {
	leader, err := h.guide()
	own := h.self.incarnation.Load()
	switch {
	case err == nil:
		id, _ := leader.follows()
		if own == nil || !own.fixed {
			next := &incarnation{id: id}
			// It has just got its consensus state.
			if !h.self.incarnation.CompareAndSwap(own, next) {
				next = h.self.incarnation.Load()
			}
			own = next
		}
		return func(s *Status) bool {
			theirs, known := s.follows()
			return known && theirs == own.id && leader.names(s.Node.String())
		}, nil
	case own == nil || !own.fixed:
		return nil, err
	}
	return func(s *Status) bool {
		theirs, known := s.follows()
		return known && theirs == own.id && s.names(s.Node.String()) && s.names(h.self.name)
	}, nil
}

// noteApart says, once a minute for each, which nodes follow another history of this cluster.
func (h *incarnations) noteApart() {
	if l := h.self.incarnation.Load(); l == nil || !l.fixed {
		return
	}
	own, count := h.self.status(), 0
	for _, p := range h.peers.heardOthers() {
		s := p.status
		if _, known := s.follows(); !known || !apart(&own, &s) {
			continue
		}
		count++
		if _, due := h.said.Due(s.Node); !due {
			continue
		}
		theirs, _ := s.follows()
		m, _ := h.peers.member(s.Node.String())
		h.self.logger.Error("another node follows another history of this cluster, and the two exchange no data: "+apartRemedy,
			logkey.Node, s.Node.String(), logkey.Address, m.ReplicationAddress, logkey.Theirs, theirs.String(), logkey.Ours, own.Incarnation.String(),
			"their-state", string(s.State), "this-node", h.self.opts.Advertise)
	}
	h.apart.Store(int64(count))
}

// sayEvery is how often a state is said again that an operator must end.
const sayEvery = time.Minute

// settledVoters refuses a change of the configuration as long as this leader has fewer voters than
// a majority, and a node is alive that belongs to another history of its cluster: with the next
// voter there might be two clusters that acknowledge.
func (h *incarnations) settledVoters(configuration raft.Configuration, joiner event.ID) error {
	if voters(configuration) >= h.self.opts.majority() {
		return nil
	}
	own := h.self.status()
	for _, m := range h.peers.others() {
		if m.Node == joiner || m.Cluster != h.self.clusterID() || m.Phase != phaseMember {
			continue
		}
		where := h.peers.where(m.Node.String())
		switch p, heard := h.peers.heard(m.Node.String()); {
		case !heard:
			return fmt.Errorf("%s is alive and has not said yet whose configuration it follows", where)
		case apart(&own, &p.status):
			return refuse("this leader, at %s, has too few voters to acknowledge writes, and %s is alive and follows another history of cluster %s: %s",
				h.self.opts.Advertise, where, h.self.clusterID(), apartRemedy)
		}
	}
	return nil
}

// sameIncarnation refuses what nodes of another history ask for. They may still ask what this node
// is.
func (h *incarnations) sameIncarnation(r *http.Request) error {
	own := h.self.incarnation.Load()
	text := r.Header.Get(headerIncarnation)
	if own == nil || text == "" {
		return nil // It has none yet, or is of a version that knew none.
	}
	theirs, err := event.ParseID(text)
	if err != nil {
		return fmt.Errorf("%s %.60q: %w", headerIncarnation, text, err)
	}
	if theirs == own.id {
		return nil
	}
	return h.otherIncarnation(theirs)
}

func (h *incarnations) otherIncarnation(theirs event.ID) error {
	return refuse("the node at %s belongs to incarnation %s of cluster %s, the asking node to incarnation %s: %s",
		h.self.opts.Advertise, h.self.incarnation.Load().id, h.self.clusterID(), theirs, apartRemedy)
}

// judge raises the alarm when logs differ. The node that is alone with
// its history stops serving it.
//
// Only members that raft counts have a say, and only among themselves: what
// reaches the gossip port with a copy of the data must not be able to silence a cluster.
func (h *incarnations) judge() {
	same, other := 1, 0
	members := h.self.members()
	if !members[h.self.name] {
		return
	}
	for _, m := range h.peers.others() {
		if !members[m.Node.String()] {
			continue
		}
		switch p, _ := h.peers.get(m.Node); p.agrees {
		case agrees:
			same++
		case disagrees:
			other++
		}
	}
	h.others.Store(int64(other))
	if other < same {
		h.unsure.set(nil)
		return
	}
	h.unsure.set(fmt.Errorf("%d of %d other nodes that can be asked hold another history", other, other+same-1))
	if other == same {
		return
	}
	if h.diverged.get() == nil {
		h.diverged.set(errors.New("this node's history differs from that of the other nodes: it serves nothing until its data directory is replaced"))
		h.self.logger.Error(h.diverged.get().Error())
	}
}
