package replication

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/gossip"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/replication/wire"
)

// live takes the node from whatever it was at the start to a running Replica, and
// starts that anew whenever raft has to begin on an empty Raft log.
func (c *Cluster) live(ctx context.Context, prepared *Replica) error {
	defer func() {
		if prepared != nil {
			c.self.warn("close consensus state", prepared.abandon())
		}
	}()
	if !c.made {
		var err error
		if prepared, err = c.begin(ctx); err != nil {
			return err
		}
	}
	for {
		for prepared == nil {
			var behind *raftdisk.BehindError
			r, err := c.prepareExisting(c.self.materials.Load())
			if err != nil && !errors.As(err, &behind) {
				return err
			}
			if err == nil {
				prepared = r
				break
			}
			c.state.Store(event.StateCatchingUp)
			c.self.logger.Warn("this node lacks data that it had promised to hold; they are fetched from other nodes first", keyError, err)
			if err := c.pull.until(ctx, behind.End); err != nil {
				return err
			}
		}
		c.peers.tell(func(s *gossip.Self) { s.Cluster, s.Phase = c.self.clusterID(), phaseMember })
		r := prepared
		prepared = nil
		if err := r.start(c.transport(r)); err != nil {
			return err
		}
		done := c.follow(ctx, r)
		select {
		case <-ctx.Done():
			err := r.Close()
			<-done
			return err
		case <-r.anew:
			c.self.logger.Warn("raft is started anew: its log held entries that no quorum had")
			c.self.replica.CompareAndSwap(r, nil)
			if err := r.Close(); err != nil {
				return err
			}
			<-done
			if c.self.opts.Replica.InMemory {
				var err error
				if prepared, err = prepareOn(c.replicaOptions(c.self.materials.Load()), r.state); err != nil {
					return err
				}
			}
		}
	}
}

// transport is what connects the raft of a Replica.
func (c *Cluster) transport(r *Replica) raft.Transport {
	return c.port.Raft(wire.RaftOptions{
		Address: func(id raft.ServerID) (string, bool) {
			m, ok := c.peers.member(string(id))
			return m.ReplicationAddress, ok
		},
		Prepare: c.pull.install,
		Append:  func(a *raft.AppendEntriesRequest) { trimAppend(a, r.state.Snapshots.Newest) },
		Silent:  c.disk.hanging,
		Logger:  quiet{c.self.opts.Replica.Logger},

		Candidate: c.twins.candidate,
	})
}

// begin makes consensus state for a node that has none. A node without data takes
// part in forming a cluster, or finds that there is one. One with data has been
// restored from files, or lost its consensus state, or was interrupted when it
// joined: it belongs to the cluster of its data, and asks to be admitted there.
func (c *Cluster) begin(ctx context.Context) (*Replica, error) {
	c.state.Store(event.StateDiscoverLeader)
	form := false
	m := c.self.materials.Load()
	if m == nil || m.Log.Tail().End == 0 {
		// The cluster's id was agreed upon before the log was made with it.
		outcome, err := c.engine.Run(ctx)
		if err != nil {
			return nil, err
		}
		if m == nil {
			if m, err = c.self.openLog(outcome.Cluster); err != nil {
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
		c.peers.tell(func(s *gossip.Self) { s.Cluster, s.Phase = c.self.clusterID(), phaseJoining })
		c.state.Store(c.self.replicaState(event.StateCatchingUp, event.StatePreReadOnlyReplica))
		if err := c.pull.level(ctx); err != nil {
			return nil, err
		}
		c.state.Store(c.self.replicaState(event.StatePreReplica, event.StatePreReadOnlyReplica))
	}
	o := c.replicaOptions(m)
	o.Joining = !form
	o.Transport = addressOnly{address: raft.ServerAddress(c.self.opts.Advertise)}
	r, err := prepare(o)
	if err == nil {
		c.self.fix(r.state.ID.Lineage)
	}
	return r, err
}

// addressOnly is a transport that only knows where this node is.
type addressOnly struct {
	raft.Transport
	address raft.ServerAddress
}

func (a addressOnly) LocalAddr() raft.ServerAddress { return a.address }

// follow makes a running Replica the one that serves, and passes its leadership
// on. The channel is closed when that has ended: with the Replica or the context,
// whichever is first, as a Replica whose disk hangs never ends.
func (c *Cluster) follow(ctx context.Context, r *Replica) <-chan struct{} {
	if reason := c.self.readOnly.Load(); reason != nil {
		r.pipeline.SetReadOnly(*reason)
	}
	r.state.Logs.Full.Store(c.self.full.Load())
	c.self.replica.Store(r)
	c.self.warn("see who is to lead", r.Rank())
	done := make(chan struct{})
	c.owned.Go(func() {
		defer close(done)
		for {
			_, changed := c.lead.note(r)
			c.peers.look()
			select {
			case <-changed:
				continue
			case <-r.closed:
			case <-ctx.Done():
			}
			c.lead.publish(pipeline.Leadership{})
			return
		}
	})
	return done
}

func voters(configuration raft.Configuration) (n int) {
	for _, server := range configuration.Servers {
		if server.Suffrage == raft.Voter {
			n++
		}
	}
	return n
}

// Submit does what Pipeline.Submit does, also while there is no Replica.
func (c *Cluster) Submit(ctx context.Context, w *event.Write) (event.Written, error) {
	r, err := c.serving()
	if err != nil {
		return event.Written{}, err
	}
	return r.pipeline.Submit(ctx, w)
}

// Confirm does what Pipeline.Confirm does, also while there is no Replica.
func (c *Cluster) Confirm(ctx context.Context) error {
	r, err := c.serving()
	if err != nil {
		return err
	}
	return r.pipeline.Confirm(ctx)
}

func (c *Cluster) serving() (*Replica, error) {
	r := c.self.replica.Load()
	if r == nil {
		if address, ok := c.Redirect(); ok {
			return nil, &event.NotLeader{Address: address}
		}
		return nil, event.ErrNotReady
	}
	if err := c.histories.diverged.Load(); err != nil {
		return nil, fmt.Errorf("%w: %w", event.ErrNotReady, *err)
	}
	if err := c.disk.hanging(); err != nil && c.self.opts.Size > 1 {
		if address, ok := c.Redirect(); ok {
			return nil, &event.NotLeader{Address: address}
		}
		return nil, fmt.Errorf("%w: %w", event.ErrNotReady, err)
	}
	return r, nil
}

// SetReadOnly makes Submit fail with the reason; nil lifts it. A leader that must
// refuse writes hands over to a node that need not.
func (c *Cluster) SetReadOnly(reason error) {
	if reason == nil {
		c.self.readOnly.Store(nil)
	} else {
		c.self.readOnly.Store(&reason)
	}
	if r := c.self.replica.Load(); r != nil {
		r.pipeline.SetReadOnly(reason)
	}
	c.peers.look()
}

// SetFull says that this node has no room for more entries from a leader. It lags
// behind then, until there is room again.
func (c *Cluster) SetFull(full bool) {
	if c.self.full.Swap(full) == full {
		return
	}
	if r := c.self.replica.Load(); r != nil {
		r.state.Logs.Full.Store(full)
	}
}

// Recover makes consensus state in a data directory that has an event log and
// none: this node becomes the only voter of the cluster of its data, which the
// others join. It begins a new lineage, so that a node which still follows the history from before
// takes no part in it. It is for restoring a whole cluster from copies, and must be done on one node only.
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
		return fmt.Errorf("%s has consensus state: it must be moved away first, and with it every vote of this node", filepath.Join(o.Replica.Dir, raftdisk.Dir))
	}
	if m.Log.Tail().End == 0 {
		return errors.New("the event log is empty: there is nothing to recover")
	}
	// What this node had promised before it had data means nothing any more.
	if err := o.Replica.Files.RemoveAll(filepath.Join(o.Replica.Dir, raftdisk.Dir)); err != nil {
		return err
	}
	options := o.Replica
	options.FSM, options.Decider, options.Log, options.ClusterID, options.DirectoryID = m.FSM, m.Decider, m.Log, m.ClusterID, m.DirectoryID
	options.Transport = addressOnly{address: raft.ServerAddress(o.Advertise)}
	r, err := prepare(options)
	if err != nil {
		return err
	}
	return r.abandon()
}

// waitSome waits a moment, or until the context ends.
func waitSome(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
