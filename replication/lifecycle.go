package replication

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/replication/bootstrap"
	"github.com/annalsdb/annals/replication/gossip"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// lifecycle takes a node from whatever it was at the start to a running Replica, and keeps that
// running.
type lifecycle struct {
	self      *self
	peers     *peers
	lead      *leadership
	pull      *puller
	transport func(*Replica) raft.Transport
	owned     *sync.WaitGroup // of the Cluster

	made   bool              // there was consensus state at the start
	engine *bootstrap.Engine // nil in a cluster of one
	state  atomic.Value      // event.NodeState while there is no Replica
}

// phase is how far a node has come; gossip tells it to the others.
const (
	phaseFresh   = "fresh"   // has no consensus state
	phaseJoining = "joining" // has data, and is not admitted yet
	phaseMember  = "member"
)

// openAlone starts the node of a cluster of one.
func (l *lifecycle) openAlone(ctx context.Context) error {
	m, err := l.self.openLog(event.ID{})
	if err != nil {
		return err
	}
	r, err := Open(l.options(m))
	if err != nil {
		return err
	}
	l.self.node = r.state.ID.Node
	l.self.name = l.self.node.String()
	l.self.fix(r.state.ID.Incarnation)
	l.follow(ctx, r)
	return nil
}

func (l *lifecycle) options(m *Dependencies) Options {
	o := l.self.opts.Replica
	o.FSM, o.Decider, o.Log = m.FSM, m.Decider, m.Log
	if l := l.self.incarnation.Load(); l != nil {
		o.Incarnation = l.id
	}
	o.ClusterID, o.DirectoryID, o.Node = m.ClusterID, m.DirectoryID, l.self.node
	o.LeaderAddress = l.peers.clientAddress
	o.NodeAddress, o.Stopping = l.peers.address, l.self.stopping.Load
	o.Outranked = l.lead.outranked
	o.LeastVoters = l.self.opts.majority()
	o.Awaited = l.peers.awaited
	o.Behind = func() { bell.Ring(l.pull.wake) }
	return o
}

// settle finds out what this node is, without any other: it opens the event log if there is one,
// and the consensus state. Consensus state that is incomplete or foreign is set aside: the node
// takes a new id, keeps its data, and is admitted again, because a node that forgot its votes must
// not vote.
func (l *lifecycle) settle() (*Replica, error) {
	dir := l.self.opts.Replica.Dir
	hasLog, err := l.self.opts.HasLog()
	if err != nil {
		return nil, err
	}
	var m *Dependencies
	if hasLog {
		if m, err = l.self.openLog(event.ID{}); err != nil {
			return nil, err
		}
	}
	record := bootstrap.FileStore(l.self.opts.Replica.Files, filepath.Join(dir, raftdisk.Dir, raftdisk.PromiseFile))
	if l.made, err = raftdisk.SettleCreation(l.self.opts.Replica.Files, dir); err != nil {
		return nil, err
	}
	if l.made {
		prepared, err := l.prepareExisting(m)
		var behind *raftdisk.BehindError
		if err == nil || errors.As(err, &behind) { // What is missing is fetched later.
			err := l.promise(record)
			if err == nil && prepared != nil {
				err = prepared.state.SettlePulled(m.Log.Tail())
			}
			if err != nil && prepared != nil {
				err = errors.Join(err, prepared.abandon())
			}
			return prepared, err
		}
		if !errors.Is(err, raftdisk.ErrStateLost) {
			return nil, err
		}
		aside, failed := raftdisk.SetAside(l.self.opts.Replica.Files, dir, raftdisk.AsideLost)
		if failed != nil {
			return nil, errors.Join(err, failed)
		}
		l.self.logger.Error("this node's consensus state is not usable and was set aside: the node gets a new id, keeps its data, and asks to be admitted again", logkey.Folder, aside, logkey.Error, err)
		l.made, l.self.node = false, event.ID{}
		l.self.incarnation.Store(nil)
	}
	if err := l.self.opts.Replica.Files.MkdirAll(filepath.Join(dir, raftdisk.Dir)); err != nil {
		return nil, err
	}
	// The folder may be there since a process that was killed before it could sync the name. What
	// this node promises lies in it.
	if err := l.self.opts.Replica.Files.SyncDir(dir); err != nil {
		return nil, err
	}
	return nil, l.promise(record)
}

// prepareExisting opens consensus state that is there. A node that lacks data gets
// no Replica yet: live fetches them first.
func (l *lifecycle) prepareExisting(m *Dependencies) (*Replica, error) {
	if m == nil {
		return nil, fmt.Errorf("%w: there is a folder raft, but no event log", raftdisk.ErrStateLost)
	}
	id, err := raftdisk.ReadIdentity(l.self.opts.Replica.Files, filepath.Join(l.self.opts.Replica.Dir, raftdisk.Dir))
	if err != nil {
		return nil, err
	}
	if l.self.node.IsZero() { // Later it is read by many goroutines, and does not change.
		l.self.node = id.Node
	}
	l.self.fix(id.Incarnation)
	return prepare(l.options(m))
}

// promise makes what takes part in forming a cluster. A node without consensus
// state takes its id from what it promised before, or makes and records one.
func (l *lifecycle) promise(store bootstrap.Store) (err error) {
	if l.self.node.IsZero() {
		if l.self.node, err = bootstrap.Identify(store); err != nil {
			return err
		}
	} else if _, err := store.Load(); errors.Is(err, fs.ErrNotExist) {
		// It was a cluster of one before, or was recovered from a copy: it has promised nothing.
		if err := store.Save(bootstrap.Record{Node: l.self.node}); err != nil {
			return err
		}
	}
	o := bootstrap.Options{
		Node: l.self.node, ClusterSize: l.self.opts.Size, ReadOnly: l.self.opts.ReadOnly, Store: store,
		Peers: l.peers.founders, Changed: func() <-chan struct{} { return l.peers.gossip.Changed() },
		Call: l.peers.caller.bootstrap, Logger: l.self.logger,
		RecordPlace: filepath.Join(l.self.opts.Replica.Dir, raftdisk.Dir),
	}
	if m := l.self.deps.Load(); m != nil && (l.made || m.Log.Tail().End > 0) {
		o.Cluster = m.ClusterID
	}
	l.engine, err = bootstrap.New(o)
	return err
}

// run takes the node from its state at the start to a running Replica, and restarts the Replica
// whenever raft must begin on an empty Raft log.
func (l *lifecycle) run(ctx context.Context, prepared *Replica) error {
	defer func() {
		if prepared != nil {
			l.self.warn("close consensus state", prepared.abandon())
		}
	}()
	if !l.made {
		var err error
		if prepared, err = l.begin(ctx); err != nil {
			return err
		}
	}
	for {
		for prepared == nil {
			var behind *raftdisk.BehindError
			r, err := l.prepareExisting(l.self.deps.Load())
			if err != nil && !errors.As(err, &behind) {
				return err
			}
			if err == nil {
				prepared = r
				break
			}
			l.state.Store(event.StateCatchingUp)
			l.self.logger.Warn("this node lacks data that its snapshot refers to: it fetches them from other nodes first", logkey.Error, err)
			if err := l.pull.until(ctx, behind.End); err != nil {
				return err
			}
		}
		l.peers.tell(func(s *gossip.Self) { s.Cluster, s.Phase = l.self.clusterID(), phaseMember })
		r := prepared
		prepared = nil
		if err := r.start(l.transport(r)); err != nil {
			return err
		}
		done := l.follow(ctx, r)
		select {
		case <-ctx.Done():
			err := r.Close()
			<-done
			return err
		case <-r.anew:
			l.self.logger.Warn("raft is restarted: its log held entries that no quorum had")
			l.self.replica.CompareAndSwap(r, nil)
			if err := r.Close(); err != nil {
				return err
			}
			<-done
		}
	}
}

// begin makes consensus state for a node that has none. A node without data takes
// part in forming a cluster, or finds that there is one. One with data has been
// restored from files, or lost its consensus state, or was interrupted when it
// joined: it belongs to the cluster of its data, and asks to be admitted there.
func (l *lifecycle) begin(ctx context.Context) (*Replica, error) {
	l.state.Store(event.StateDiscoverLeader)
	form := false
	m := l.self.deps.Load()
	if m == nil || m.Log.Tail().End == 0 {
		// The cluster's id was agreed upon before the log was made with it.
		outcome, err := l.engine.Run(ctx)
		if err != nil {
			return nil, err
		}
		if m == nil {
			if m, err = l.self.openLog(outcome.Cluster); err != nil {
				return nil, err
			}
		}
		if m.ClusterID != outcome.Cluster {
			return nil, fmt.Errorf("the empty event log belongs to cluster %s, but the other nodes to %s: "+
				"remove the data directory to have this node join them", m.ClusterID, outcome.Cluster)
		}
		form = outcome.Form
	}
	if !form {
		l.peers.tell(func(s *gossip.Self) { s.Cluster, s.Phase = l.self.clusterID(), phaseJoining })
		l.state.Store(l.self.replicaState(event.StateCatchingUp, event.StatePreReadOnlyReplica))
		if err := l.pull.level(ctx); err != nil {
			return nil, err
		}
		l.state.Store(l.self.replicaState(event.StatePreReplica, event.StatePreReadOnlyReplica))
	}
	o := l.options(m)
	o.Joining, o.Others = !form, l.self.opts.Size-1
	o.Address = raft.ServerAddress(l.self.opts.Advertise)
	r, err := prepare(o)
	if err == nil {
		l.self.fix(r.state.ID.Incarnation)
	}
	return r, err
}

// follow makes a running Replica the one that serves, and passes its leadership
// on. The channel is closed when that has ended: with the Replica or the context,
// whichever is first, as a Replica whose disk hangs never ends.
func (l *lifecycle) follow(ctx context.Context, r *Replica) <-chan struct{} {
	r.pipeline.SetReadOnly(l.self.readOnly.get())
	r.state.Logs.Full.Store(l.self.full.Load())
	l.self.replica.Store(r)
	l.self.warn("see who is to lead", r.Rank())
	done := make(chan struct{})
	if l.self.opts.Size > 1 {
		l.owned.Go(func() { l.sayLeaders(ctx, r) })
	}
	l.owned.Go(func() {
		defer close(done)
		for {
			_, changed := l.lead.note(r)
			l.peers.look()
			select {
			case <-changed:
				continue
			case <-r.closed:
			case <-ctx.Done():
			}
			l.lead.Publish(pipeline.Leadership{})
			return
		}
	})
	return done
}

// serveBootstrap answers a node that wants to form a cluster.
func (l *lifecycle) serveBootstrap(w http.ResponseWriter, r *http.Request) {
	var q bootstrap.Request
	r.Body = http.MaxBytesReader(w, r.Body, bootstrap.MaxMessageBytes)
	if !question(w, r, &q) {
		return
	}
	reply(w, l.engine.Handle(q))
}

// Recover makes consensus state in a data directory that has an event log and none: this node
// becomes the only voter of the cluster of its data, which the others join. It begins a new cluster
// incarnation, so that a node of the earlier one takes no part in it. It is for restoring a whole
// cluster from copies, and must be done on one node only.
func Recover(o ClusterOptions) error {
	o.EnsureDefaults()
	m, err := o.OpenLog(event.ID{}) // sets the consensus state of restored files aside
	if err != nil {
		return err
	}
	made, err := raftdisk.SettleCreation(o.Replica.Files, o.Replica.Dir)
	if err != nil {
		return err
	}
	if made {
		return fmt.Errorf("%s has consensus state: move it away first, and with it every vote of this node; "+
			"if a majority of the cluster is lost for good: annals cluster recover --majority-lost", filepath.Join(o.Replica.Dir, raftdisk.Dir))
	}
	return o.beginAlone(&m)
}

// beginAlone makes the consensus state of the only voter. There is none in the data directory.
func (o *ClusterOptions) beginAlone(m *Dependencies) error {
	if m.Log.Tail().End == 0 {
		return errors.New("the event log is empty: there is nothing to recover")
	}
	// What this node had promised before it had data means nothing any more.
	if err := o.Replica.Files.RemoveAll(filepath.Join(o.Replica.Dir, raftdisk.Dir)); err != nil {
		return err
	}
	r, err := prepare(o.replicaOver(m))
	if err != nil {
		return err
	}
	return r.abandon()
}

// AcceptLoss has a node on its own start again without the damaged entries of its Raft log that
// exist nowhere else. It returns a line that says what was done and what is lost.
func AcceptLoss(o ClusterOptions) (string, error) {
	o.EnsureDefaults()
	m, err := o.OpenLog(event.ID{})
	if err != nil {
		return "", err
	}
	return raftdisk.AcceptLoss(o.Replica.Files, o.Replica.Dir, m.Log.Tail(), o.Replica.Logger)
}

// replicaOver is what a Replica over a log is made with.
func (o *ClusterOptions) replicaOver(m *Dependencies) Options {
	options := o.Replica
	options.FSM, options.Decider, options.Log, options.ClusterID, options.DirectoryID = m.FSM, m.Decider, m.Log, m.ClusterID, m.DirectoryID
	options.Address = raft.ServerAddress(o.Advertise)
	return options
}
