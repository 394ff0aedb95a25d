package replication

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/throttle"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// Entries of one batch to apply, and of one message to a follower.
const maxAppendEntries = 64

// Replica is this node's part in the cluster: raft, its stores, and the write pipeline.
type Replica struct {
	opts     Options
	logger   hclog.Logger
	fail     *raftdisk.FailStop
	state    *raftdisk.State
	machine  *raftdisk.Machine
	raft     *raft.Raft
	pipeline *pipeline.Pipeline
	snaps    *snapshotter
	silence  *silence
	metrics  *metrics
	begin    raft.Configuration // that raft began with
	naming   *naming

	configMu sync.Mutex         // guards exchanging raft's configuration of itself
	running  context.Context    // until it is closed
	stop     context.CancelFunc // ends running
	// capacity 1: held by the call of EraseLog that works, and for good once it is closed
	erasing chan struct{}
	// closed when raft must be restarted, by closing and opening the Replica
	anew     chan struct{}
	voided   sync.Once
	closing  sync.Once
	ended    chan struct{} // raft has ended: it resolves nothing any more
	closed   chan struct{} // everything is down
	closeErr error         // valid after closed
}

// Open makes or reads the consensus state in the data directory, checks it
// against the event log, and starts raft and the write pipeline.
func Open(o Options) (*Replica, error) {
	r, err := prepare(o)
	var rot *raftdisk.RotError
	if errors.As(err, &rot) && o.Transport == nil {
		return nil, fmt.Errorf("%w; %s; restore this node from its newest backup, or stop here, keep a copy of the data folder, and accept the loss: "+
			"annals cluster accept-loss, with the options that the node is started with", err, rot.Loss(o.Log.Tail()))
	}
	if errors.Is(err, raftdisk.ErrStateLost) && o.Transport == nil {
		err = fmt.Errorf("%w; restore the parts that belong together, or move the folder raft away: this single node then starts again from its event log", err)
	}
	if err != nil {
		return nil, err
	}
	return r, r.start(o.Transport)
}

// prepare does everything that needs no other node. What it returns is to be
// started or abandoned.
func prepare(o Options) (*Replica, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	r := &Replica{
		opts: o, logger: o.Logger.Named("replication"), metrics: newMetrics(o.Stats), anew: make(chan struct{}),
		ended: make(chan struct{}), closed: make(chan struct{}),
		fail: &raftdisk.FailStop{OnFatal: o.OnFatal, Disk: o.Disk},
	}
	r.naming = &naming{address: o.NodeAddress, stopping: o.Stopping, late: o.ElectionTimeout, silent: throttle.Lines[string]{Every: sayEvery}}
	var err error
	if r.state, err = raftdisk.Open(o.disk(), r.logger, r.fail); err != nil {
		return nil, err
	}
	r.state.Logs.Covered = r.state.Snapshots.Newest
	r.running, r.stop = context.WithCancel(context.Background())
	r.erasing = make(chan struct{}, 1)
	r.state.Logs.Flushes, r.metrics.flushes.Told = r.metrics.flushes, r.opts.OnFlush
	if r.begin, err = r.state.CheckStart(o.Log); err != nil {
		return nil, errors.Join(err, r.state.Close())
	}
	return r, nil
}

// abandon closes what prepare opened.
func (r *Replica) abandon() error { return r.state.Close() }

// start starts raft. When it fails, everything is closed.
func (r *Replica) start(trans raft.Transport) (err error) {
	r.opts.Transport = trans
	r.machine = raftdisk.NewMachine(r.opts.FSM, r.state, r.fail, r.metrics.snapshots, r.opts.Behind, func() { r.voided.Do(func() { close(r.anew) }) })
	if t, ok := trans.(interface{ Committed(index, term uint64) }); ok {
		r.machine.Committed = t.Committed
	}
	if t, ok := trans.(interface{ Storing([]*raft.Log) }); ok {
		r.state.Logs.Storing = t.Storing
	}
	r.snaps = newSnapshotter(r)
	r.silence = &silence{replica: r, quit: make(chan struct{})}
	if trans == nil {
		_, trans = raft.NewInmemTransport(raft.ServerAddress(r.state.ID.Node.String()))
	}
	if r.raft, err = r.newRaft(trans); err != nil {
		return errors.Join(fmt.Errorf("start raft: %w", err), r.state.Close())
	}
	r.naming.raft.Store(r.raft)
	r.pipeline = pipeline.New(r.dependencies(), watchDecider(r.opts.Decider, r.opts.Dir, r.opts.Disk), pipeline.Options{
		Logger: r.logger, Stats: r.opts.Stats, QueueRequests: r.opts.QueueRequests, QueueBytes: r.opts.QueueBytes, DrainTimeout: r.opts.DrainTimeout,
	})
	r.snaps.start()
	if r.opts.Transport != nil {
		r.silence.start()
	}
	r.watchRaft(r.opts.Stats)
	return nil
}

// newRaft starts raft. Before it does anything else it reads its log, and panics when it cannot.
func (r *Replica) newRaft(trans raft.Transport) (started *raft.Raft, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		failed, isError := p.(error)
		if _, isBug := p.(runtime.Error); isBug || !isError {
			panic(p)
		}
		err = failed
	}()
	return raft.NewRaft(r.config(r.begin), r.machine, r.state.Logs, r.state.Stable, r.state.Snapshots, trans)
}

// config is raft's configuration.
func (r *Replica) config(configuration raft.Configuration) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(r.state.ID.Node.String())
	c.Logger = quiet{r.opts.Logger.Named("raft"), r.naming}
	c.HeartbeatTimeout = r.patience()
	c.LeaderLeaseTimeout = r.opts.ElectionTimeout * 45 / 100
	// How often an idle leader repeats to its followers what is committed. They have heard of it
	// before, from Transport. As with heartbeats, patient nodes hear less often.
	c.CommitTimeout = max(c.CommitTimeout, r.opts.ElectionTimeout/20)
	if r.opts.Transport == nil && lone(configuration, c.LocalID) {
		// No other node can ever lead: waiting longer would only delay the start.
		c.HeartbeatTimeout = r.opts.LoneElectionTimeout
		c.LeaderLeaseTimeout = c.HeartbeatTimeout
	}
	c.ElectionTimeout = c.HeartbeatTimeout
	// With the buffer of this option, proposing never waits for the leader's sync.
	c.BatchApplyCh = true
	c.MaxAppendEntries = maxAppendEntries
	c.ShutdownOnRemove = false
	c.NoSnapshotRestoreOnStart = true // the event log is there; entries it has are skipped by index
	c.NoLegacyTelemetry = true
	// Snapshots are taken by the snapshotter, which counts bytes.
	c.SnapshotInterval = 365 * 24 * time.Hour
	c.SnapshotThreshold = math.MaxUint64
	c.TrailingLogs = uint64(r.opts.TrailingEntries)
	return c
}

// patience is how long a follower waits for a sign of the leader, at least, before it stands for
// election. raft looks at random times only, up to three times as late, so that silence has it look
// in time. A second attempt may be needed, up to twice as long again. Half of the option keeps all
// of it below three times the option. A node that is outranked by another voter waits longer for a
// second attempt. Both are above the leader's lease.
func (r *Replica) patience() time.Duration {
	if r.opts.Outranked() {
		return r.opts.ElectionTimeout * 65 / 100
	}
	return r.opts.ElectionTimeout / 2
}

// Rank has the node's place among the voters looked at again.
func (r *Replica) Rank() error {
	if r.opts.Transport == nil {
		return nil
	}
	r.configMu.Lock()
	defer r.configMu.Unlock()
	patience := r.patience()
	if r.raft.ReloadableConfig().HeartbeatTimeout == patience {
		return nil
	}
	return r.wait(patience, patience)
}

// lookNow has raft look whether the leader is silent. It does that when it is to wait less long
// than before.
func (r *Replica) lookNow() error {
	r.configMu.Lock()
	defer r.configMu.Unlock()
	patience := r.patience()
	if err := r.wait(patience-1, patience); err != nil {
		return err
	}
	return r.wait(patience, patience)
}

// wait sets how long raft waits for a sign of the leader, and for an election.
func (r *Replica) wait(heartbeat, election time.Duration) error {
	config := r.raft.ReloadableConfig()
	config.HeartbeatTimeout, config.ElectionTimeout = heartbeat, election
	if err := r.raft.ReloadConfig(config); err != nil {
		return fmt.Errorf("set election timeouts: %w", err)
	}
	return nil
}

// lone reports whether the node is the only voter.
func lone(c raft.Configuration, node raft.ServerID) bool {
	return voters(c) == 1 && slices.ContainsFunc(c.Servers, func(s raft.Server) bool { return s.Suffrage == raft.Voter && s.ID == node })
}

func (r *Replica) dependencies() pipeline.Dependencies {
	self := raft.ServerID(r.state.ID.Node.String())
	return pipeline.Dependencies{
		Propose: func(entry []byte) pipeline.Future { return endWith(r.ended, r.raft.Apply(entry, 0)) },
		Barrier: func() pipeline.Future { return endWith(r.ended, r.raft.Barrier(0)) },
		Term:    r.raft.CurrentTerm,
		Leader:  func() bool { return r.raft.State() == raft.Leader },
		Quorum: func() pipeline.Quorum {
			c, index, err := r.Configuration()
			return pipeline.Quorum{Configuration: index, Enough: err == nil && voters(c) >= r.opts.LeastVoters, Alone: err == nil && lone(c, self)}
		},
		Hint: r.raft.LeaderCh(),
		Redirect: func() string {
			_, node := r.raft.LeaderWithID()
			if node == "" || node == self {
				return ""
			}
			return r.opts.LeaderAddress(string(node))
		},
		Fatal: func(err error) { _ = r.fail.Fail(err) },
	}
}

// Configuration returns the latest configuration, committed or not, and the index of
// the newest one that was applied by then. raft refuses a change that builds on that
// index if its latest configuration is another one.
func (r *Replica) Configuration() (raft.Configuration, uint64, error) {
	for {
		index := r.machine.Configured.Load()
		f := r.raft.GetConfiguration() // does not wait; the index that it gives is always 0
		if err := f.Error(); err != nil {
			return raft.Configuration{}, 0, fmt.Errorf("read configuration: %w", err)
		}
		if r.machine.Configured.Load() == index {
			return f.Configuration(), index.Index, nil
		}
	}
}

// Close answers every waiting request, lets the entry in flight resolve, writes a last snapshot and
// stops raft. It returns even when a disk hangs, then with an error. The state machine must be
// closed after it.
func (r *Replica) Close() error {
	r.closing.Do(func() {
		go func() {
			defer close(r.closed)
			r.closeErr = r.shutdown()
		}()
	})
	select {
	case <-r.closed:
		return r.closeErr
	case <-time.After(r.opts.CloseTimeout):
		return fmt.Errorf("close replication: not done after %s, a disk may hang", r.opts.CloseTimeout)
	}
}

func (r *Replica) shutdown() error {
	resolved := r.pipeline.Close()
	if !resolved {
		r.logger.Warn("the outcome of the entry in flight was not known before shutdown")
	}
	r.silence.stop()
	r.snaps.stop()
	r.stop()
	r.erasing <- struct{}{} // What was begun is finished.
	if r.fail.Check() == nil && r.machine.Dirty() && !r.state.Logs.Frozen.Load() {
		if err := r.snaps.take(uint64(r.opts.TrailingEntries)); err != nil {
			r.logger.Warn("no snapshot was written at shutdown, the next start replays more", logkey.Error, err)
		}
	}
	ended := r.raft.Shutdown()
	var err error
	if t, ok := r.opts.Transport.(raft.WithClose); ok {
		err = t.Close() // raft need not wait for nodes that do not answer
	}
	err = errors.Join(err, ended.Error())
	close(r.ended)
	if !resolved && !r.pipeline.Close() {
		r.logger.Error("raft has ended, but a goroutine still waits for an entry")
	}
	return errors.Join(err, r.state.Close())
}

// endWith makes a future of raft fail with raft.ErrRaftShutdown once a channel is closed, unless it
// is resolved. By itself raft v1.7.3 never resolves what lies in the channels between its
// goroutines while it shuts down. Its futures have a field for such a channel, which raft fills for
// restores only. No goroutine may wait for the future yet.
func endWith(ended chan struct{}, f raft.Future) raft.Future {
	if v := reflect.ValueOf(f); v.Kind() == reflect.Pointer { // the others are resolved
		v.Elem().FieldByName("ShutdownCh").Set(reflect.ValueOf(ended))
	}
	return f
}
