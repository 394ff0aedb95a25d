package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// machine remembers what it applied.
type machine struct {
	committed func(index, term uint64)

	mu      sync.Mutex
	applied [][]byte
}

func (m *machine) Apply(l *raft.Log) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied = append(m.applied, l.Data)
	return nil
}

func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	last := logs[len(logs)-1]
	m.committed(last.Index, last.Term)
	answers := make([]any, len(logs))
	for i, l := range logs {
		if l.Type == raft.LogCommand {
			answers[i] = m.Apply(l)
		}
	}
	return answers
}

func (m *machine) state() [][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.applied)
}

// Snapshot and Restore move the whole state: length and bytes of each entry.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return frozen(m.state()), nil }

func (m *machine) Restore(r io.ReadCloser) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied = bytes.Split(text, []byte{'\n'})
	return nil
}

type frozen [][]byte

func (f frozen) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(bytes.Join(f, []byte{'\n'})); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (f frozen) Release() {}

// member of a test cluster.
type peer struct {
	id    raft.ServerID
	port  *Port
	trans *Raft
	raft  *raft.Raft
	fsm   *machine
	logs  *raft.InmemStore
	snaps *raft.InmemSnapshotStore
	conf  *raft.Config
}

// cluster is some nodes in one process.
type cluster struct {
	t     testing.TB
	log   *lines
	peers []*peer
	conf  raft.Configuration
}

type setup struct {
	port      func(i int, o *Options)
	transport func(i int, o *RaftOptions)
	wrap      func(*Raft) raft.Transport
	config    func(i int, c *raft.Config)
}

// newCluster starts nodes, of which the first leads; the last `apart` of them are
// not in the configuration.
func newCluster(t testing.TB, nodes, apart int, s setup) *cluster {
	t.Helper()
	c := &cluster{t: t, log: &lines{}}
	for i := range nodes {
		o := Options{Node: node(byte(i + 1)), Cluster: member(clusterA), Logger: c.log.logger(hclog.Warn)}
		if s.port != nil {
			s.port(i, &o)
		}
		p := &peer{id: raft.ServerID(o.Node.String()), port: open(t, o), fsm: &machine{}, logs: raft.NewInmemStore(), snaps: raft.NewInmemSnapshotStore()}
		if i < nodes-apart {
			c.conf.Servers = append(c.conf.Servers, raft.Server{ID: p.id, Address: raft.ServerAddress(p.port.Advertised())})
		}
		c.peers = append(c.peers, p)
	}
	for i, p := range c.peers {
		var o RaftOptions
		if s.transport != nil {
			s.transport(i, &o)
		}
		p.trans = p.port.Raft(o)
		p.fsm.committed = p.trans.Committed
		var trans raft.Transport = p.trans
		if s.wrap != nil {
			trans = s.wrap(p.trans)
		}
		p.conf = raft.DefaultConfig()
		p.conf.LocalID = p.id
		// No node is elected or deposed because time went by: this does not test a machine that
		// stands still for a moment.
		p.conf.HeartbeatTimeout, p.conf.ElectionTimeout, p.conf.LeaderLeaseTimeout = patience, patience, patience
		p.conf.CommitTimeout = 5 * time.Millisecond
		p.conf.BatchApplyCh = true
		p.conf.Logger = c.log.logger(hclog.Warn).Named(fmt.Sprintf("node-%d", i+1))
		if s.config != nil {
			s.config(i, p.conf)
		}
		if i < nodes-apart {
			check.Must(t, raft.BootstrapCluster(p.conf, p.logs, p.logs, p.snaps, trans, c.conf))
		}
		var err error
		if p.raft, err = raft.NewRaft(p.conf, p.fsm, p.logs, p.logs, p.snaps, trans); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, p := range c.peers {
			check.NoError(t, p.raft.Shutdown().Error(), "shutdown")
		}
	})
	first := c.peers[0]
	stand := raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	check.Must(t, c.peers[1].trans.TimeoutNow(first.id, raft.ServerAddress(first.port.Advertised()), &stand, &raft.TimeoutNowResponse{}))
	return c
}

// leader waits for one.
func (c *cluster) leader() *peer {
	c.t.Helper()
	var found *peer
	testkit.Eventually(c.t, patience, func() error {
		for _, p := range c.peers {
			if p.raft.State() == raft.Leader && p.raft.VerifyLeader().Error() == nil {
				found = p
				return nil
			}
		}
		return errors.New("no leader")
	})
	return found
}

// converge waits until all peers have applied what the first of them has.
func (c *cluster) converge(peers ...*peer) {
	c.t.Helper()
	testkit.Eventually(c.t, patience, func() error {
		want := peers[0].fsm.state()
		for _, p := range peers[1:] {
			if got := p.fsm.state(); !slices.EqualFunc(got, want, bytes.Equal) {
				return fmt.Errorf("%s has %d entries, %s has %d (or others)", p.id, len(got), peers[0].id, len(want))
			}
		}
		return nil
	})
}
