package replication

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/gossip"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats"
)

// StopSnapshots has no more snapshots written until Close, so that a copy of the folder is one that
// a crash could leave.
func StopSnapshots(r *Replica) { r.snaps.stop() }

// Abandon has nothing more written to the Raft log, and no snapshot at Close: the files are then as
// a crash would leave them.
func Abandon(r *Replica) {
	r.snaps.stop()
	r.state.Logs.Frozen.Store(true)
}

// GossipsAddress has gossip say that a node is reached elsewhere.
func GossipsAddress(c *Cluster, address string) {
	c.peers.tell(func(s *gossip.Self) { s.ReplicationAddress = address })
}

// Asks asks the node at an address what it is.
func Asks(ctx context.Context, c *Cluster, address string) error {
	_, err := c.peers.ask(ctx, address)
	return err
}

// RaftOf returns a node's raft; one that never started has no leader and no servers.
func RaftOf(c *Cluster) *raft.Raft {
	if r := c.self.replica.Load(); r != nil {
		return r.raft
	}
	return nil
}

// ServersOf is raft's latest configuration; none while raft does not run.
func ServersOf(c *Cluster) []raft.Server {
	r := c.self.replica.Load()
	if r == nil {
		return nil
	}
	configuration, _, err := r.Configuration()
	if err != nil {
		return nil
	}
	return configuration.Servers
}

// ForgeEntries appends so many entries to the Raft log of a stopped node, in the
// term of its last one: a leader had stored them and no other node got them.
func ForgeEntries(dir string, kind raftdisk.LogStore, count int) (last uint64, err error) {
	store, err := raftdisk.OpenBacking(filepath.Join(dir, raftdisk.Dir), kind, hclog.NewNullLogger())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if last, err = store.LastIndex(); err != nil {
		return 0, err
	}
	var entry raft.Log
	if err := store.GetLog(last, &entry); err != nil {
		return 0, err
	}
	return last + uint64(count), store.StoreLogs(forged(last, entry.Term, count))
}

// forged are entries behind one of a term.
func forged(last, term uint64, count int) (list []*raft.Log) {
	for i := range uint64(count) {
		list = append(list, &raft.Log{Index: last + 1 + i, Term: term, Type: raft.LogNoop})
	}
	return list
}

// FirstIndex is the first entry in a running node's Raft log.
func FirstIndex(c *Cluster) (uint64, error) { return c.self.replica.Load().state.Logs.FirstIndex() }

// ForgeRunning does the same to a running node in memory that hears no other.
func ForgeRunning(c *Cluster, count int) (last uint64, err error) {
	logs := c.self.replica.Load().state.Logs
	if last, err = logs.LastIndex(); err != nil {
		return 0, err
	}
	var entry raft.Log
	if err := logs.GetLog(last, &entry); err != nil {
		return 0, err
	}
	return last + uint64(count), logs.StoreLogs(forged(last, entry.Term, count))
}

// heldLog stores nothing until it is released.
type heldLog struct {
	raftdisk.Backing
	entered, release chan struct{}
	once             sync.Once
}

func (h *heldLog) StoreLogs(logs []*raft.Log) error {
	h.once.Do(func() { close(h.entered) })
	<-h.release
	return h.Backing.StoreLogs(logs)
}

// HoldStores has the next entry of a node's Raft log wait for the disk: entered is closed when it
// does, and closing release lets it continue.
func HoldStores(c *Cluster) (entered <-chan struct{}, release chan<- struct{}) {
	h := &heldLog{entered: make(chan struct{}), release: make(chan struct{})}
	c.self.replica.Load().state.Logs.Wrap(func(inner raftdisk.Backing) raftdisk.Backing {
		h.Backing = inner
		return h
	})
	return h.entered, h.release
}

// Pause has a leader take writes and decide none until resume is called.
func Pause(ctx context.Context, c *Cluster) (resume func()) {
	p := c.self.replica.Load().pipeline
	if err := p.Pause(ctx); err != nil {
		panic(err)
	}
	return sync.OnceFunc(p.Resume)
}

// Propose hands raft an entry past the pipeline.
func Propose(r *Replica, entry []byte) pipeline.Future { return r.dependencies().Propose(entry) }

// Raft is a Replica's.
func Raft(r *Replica) *raft.Raft { return r.raft }

// Queued is how many requests a node's pipeline has not answered.
func Queued(c *Cluster) int {
	n, _ := c.self.replica.Load().pipeline.Depth()
	return n
}

// SnapshotsWritten returns how many snapshots a Replica has written.
func SnapshotsWritten(r *Replica) uint64 { return r.metrics.snapshots.Value() }

// StatsOf is where a node registers its metrics.
func StatsOf(c *Cluster) *stats.Registry { return c.self.opts.Replica.Stats }

// RewriteStalls is how long the Raft log was closed to everybody while it was rewritten.
func RewriteStalls(r *Replica) (mean, most time.Duration) {
	h := r.metrics.erasures.Snapshot()
	return time.Duration(h.Sum / float64(max(h.Count, 1)) * float64(time.Second)), time.Duration(h.RecentMax * float64(time.Second))
}

// IncarnationOf is the history that a node follows.
func IncarnationOf(c *Cluster) event.ID { return c.self.incarnation.Load().id }

// HoldChanges has a node admit no other to the cluster until release is called.
func HoldChanges(c *Cluster) (release func()) {
	c.membership.changes <- struct{}{}
	return func() { <-c.membership.changes }
}

// OpenCluster makes a node's part in its cluster and starts it.
func OpenCluster(o ClusterOptions) (*Cluster, error) {
	c := NewCluster(o)
	if err := c.Start(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// EraseLog does what Cluster.EraseLog does, without waiting for other nodes.
func (r *Replica) EraseLog(ctx context.Context, upTo int64) error { return r.erase(ctx, upTo, nil) }

// Identity says who this node is.
func (r *Replica) Identity() raftdisk.Identity { return r.state.ID }

// Pipeline is the write path. It leads, and answers, only while this node does.
func (r *Replica) Pipeline() *pipeline.Pipeline { return r.pipeline }
