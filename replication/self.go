package replication

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// self is what a node is and holds, as all parts of a Cluster read it: its ids, its event log, its
// raft.
type self struct {
	opts   ClusterOptions
	logger hclog.Logger
	node   event.ID // both are set before other goroutines begin
	name   string   // the node's id as text, as raft has it

	id          atomic.Pointer[event.ID] // of the cluster, once known
	deps        atomic.Pointer[Dependencies]
	replica     atomic.Pointer[Replica]
	incarnation atomic.Pointer[incarnation] // nil: none yet
	readOnly    reason                      // why writes are refused; nil: they are not
	full        atomic.Bool
	pulled      atomic.Bool // the mark is there, and durable
	stopping    atomic.Bool
}

// reason is why something is so; nil: it is not so.
type reason struct{ err atomic.Pointer[error] }

func (r *reason) get() error {
	if err := r.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (r *reason) set(err error) { r.err.Store(&err) }

// clusterID is the id of the cluster, zero as long as it is not known.
func (s *self) clusterID() event.ID {
	if id := s.id.Load(); id != nil {
		return *id
	}
	return event.ID{}
}

func (s *self) openLog(cluster event.ID) (*Dependencies, error) {
	m, err := s.opts.OpenLog(cluster)
	if err != nil {
		return nil, err
	}
	s.id.Store(&m.ClusterID)
	s.deps.Store(&m)
	return &m, nil
}

// unfit says why this node cannot decide writes, nil when it can.
func (s *self) unfit() error {
	if m := s.deps.Load(); m != nil && m.Unfit != nil {
		return m.Unfit()
	}
	return nil
}

// end is where this node's event log ends.
func (s *self) end() int64 {
	if m := s.deps.Load(); m != nil {
		return m.Log.Tail().End
	}
	return 0
}

// mark identifies the cluster incarnation in preambles.
func (s *self) mark() uint32 {
	if l := s.incarnation.Load(); l != nil {
		return binary.BigEndian.Uint32(l.id[:])
	}
	return 0
}

// fix notes the cluster incarnation that consensus state names.
func (s *self) fix(id event.ID) { s.incarnation.Store(&incarnation{id: id, fixed: true}) }

// configuration is raft's latest one, empty while raft does not run.
func (s *self) configuration() raft.Configuration {
	if r := s.replica.Load(); r != nil {
		if configuration, _, err := r.Configuration(); err == nil {
			return configuration
		}
	}
	return raft.Configuration{}
}

// members are the ids of the nodes in raft's configuration.
func (s *self) members() map[string]bool {
	list := make(map[string]bool)
	for _, server := range s.configuration().Servers {
		list[string(server.ID)] = true
	}
	return list
}

// suffrage is this node's place in raft's configuration, as far as it knows.
func (s *self) suffrage() (voter, present bool) {
	for _, server := range s.configuration().Servers {
		if string(server.ID) == s.name {
			return server.Suffrage == raft.Voter, true
		}
	}
	return false, false
}

// replicaState returns the first state for a node that votes and the second for one that does not.
func (s *self) replicaState(voter, readOnly event.NodeState) event.NodeState {
	if s.opts.ReadOnly {
		return readOnly
	}
	return voter
}

// markPulled records that the event log may be ahead of the Raft log. There need not be a Raft log
// yet.
func (s *self) markPulled() (err error) {
	if s.pulled.Load() {
		return nil
	}
	marked := true
	if r := s.replica.Load(); r != nil {
		err = r.state.Mark(raftdisk.PulledFile)
	} else {
		marked, err = raftdisk.MarkPulled(s.opts.Replica.Files, s.opts.Replica.Dir)
	}
	s.pulled.Store(marked && err == nil)
	return err
}

func (s *self) warn(doing string, err error) {
	if err != nil {
		s.logger.Warn(doing, logkey.Error, err)
	}
}

func (s *self) warnDebug(err error) {
	if err != nil {
		s.logger.Debug("connection between nodes", logkey.Error, err)
	}
}

// newest is the time of the newest event of the log.
func (s *self) newest() (nanoseconds int64, ok bool) {
	if m := s.deps.Load(); m != nil {
		return m.Log.Tail().Time, true
	}
	return 0, false
}

func voters(configuration raft.Configuration) (n int) {
	for _, server := range configuration.Servers {
		if server.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}
