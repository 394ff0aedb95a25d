package replication

import (
	"errors"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/wire"
)

// Standing is how this node stands in its cluster: what it can do without a leader, and what keeps
// it from others.
type Standing struct {
	self       *self
	join       *joiner
	disk       *disk
	leaderless *leaderless
	ready      func() bool
	port       func() *wire.Port // nil: there is none
}

// Removed says that the cluster runs without this node, nil when it does not.
func (s *Standing) Removed() error {
	if !s.join.removed.Load() {
		return nil
	}
	return errors.New("this node was removed from the cluster: stop it, or admit it again with: annals cluster add " + s.self.name)
}

// Member reports whether a node is one, as far as this node knows. As long as it does not know, any
// node may be one.
func (s *Standing) Member(node event.ID) bool {
	members := s.self.members()
	return len(members) == 0 || members[node.String()]
}

// Serves reports whether this node answers requests for what it has, be there a leader or not: its
// raft runs, it is a member, and its disk works.
func (s *Standing) Serves() bool {
	if s.self.opts.Size == 1 {
		return s.ready()
	}
	return s.self.replica.Load() != nil && !s.self.stopping.Load() && !s.join.removed.Load() && s.disk.hanging() == nil
}

// NoLeader returns which nodes are missing when this node has known no leader for longer than an
// election takes; nil otherwise.
func (s *Standing) NoLeader() *NoLeaderError {
	e, _ := errors.AsType[*NoLeaderError](s.leaderless.why.get())
	return e
}

// Distrust says which certificate was refused of late between this node and another one, empty when
// none was.
func (s *Standing) Distrust() string {
	if port := s.port(); port != nil {
		return port.Distrust()
	}
	return ""
}

// explain adds which certificate was refused, if one was: that keeps nodes apart.
func (s *Standing) explain(doing string) string {
	if d := s.Distrust(); d != "" {
		return doing + "; " + d
	}
	return doing
}
