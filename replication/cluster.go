package replication

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/network"
	"github.com/annalsdb/annals/internal/throttle"
	"github.com/annalsdb/annals/replication/gossip"
	"github.com/annalsdb/annals/replication/peersecret"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/replication/wire"
)

// Dependencies are the open event log and the parts that use it.
type Dependencies struct {
	FSM     raft.BatchingFSM
	Decider pipeline.Decider
	Log     raftdisk.Log
	Data    Data
	Healer  Healer // nil: damaged chunk files stay
	// what the log says of the conditions of a write, in a copy of it, before it is decided
	Look func(context.Context, *event.Write) (*event.Write, error)
	// why this node cannot decide writes, though it can store them; nil: it always can
	Unfit       func() error
	ClusterID   event.ID
	DirectoryID event.ID
}

// ClusterOptions say how a node takes part in its cluster. OpenLog must be given.
type ClusterOptions struct {
	// Replica is what a Replica is made with; what Dependencies give is filled in.
	Replica Options

	// HasLog reports whether there is an event log in the data directory. OpenLog
	// opens it, or makes one of the given cluster; zero: of a new one. It is called once.
	HasLog  func() (bool, error)
	OpenLog func(cluster event.ID) (Dependencies, error)

	Size     int  // voters of the cluster; 1, the default, needs nothing of what follows
	ReadOnly bool // never votes
	Surplus  bool // let more nodes than Size join without being asked
	Priority int  // the higher, the sooner this node is to lead
	Version  string

	// host:port of the port between nodes; Advertise is the address for others, default the bound
	// one
	Bind, Advertise string
	Network         network.Network // nil: TCP
	Security        wire.Security
	// by which nodes of one machine authenticate each other without Security; nil: any process is
	// accepted
	Secret *peersecret.Secret
	// ports of other nodes, as host:port
	Seeds func(ctx context.Context) ([]string, error)
	// as gossip.Options.Ask
	AskSeed        func(ctx context.Context, address, host string) ([]string, error)
	GossipInterval time.Duration
	GossipTimeout  time.Duration
	DeadRemoval    time.Duration // dead nodes are shown for so long

	// HangTimeout is how long an operation on the disk may take before the disk counts
	// as one that hangs. Default: twice Replica.ElectionTimeout, at least 2 s.
	HangTimeout time.Duration

	// ClockTolerance is how far this node's clock may be from those of most members, and how far it
	// may be behind the newest event of the log, before it counts as wrong; default 60 s, negative:
	// any clock is right.
	ClockTolerance time.Duration
	Now            func() time.Time // this node's clock, default time.Now

	ClientHost   string // where clients reach this node
	ClientPort   int
	ClientSecure bool

	// CatchUpRate bounds the bytes a second that this node fetches from others while
	// the cluster is being written to; default 96 MiB, negative: no bound.
	CatchUpRate int64

	// Answer answers what the leader asks of this node's jobs, in JSON; nil: nothing is.
	Answer func(ctx context.Context, question []byte) (answer any, err error)

	// AdviceEvery is how often it is logged that a node waits for its place or for data in the
	// cluster, and how long an ordinary start may take before; default 30 s.
	AdviceEvery time.Duration
}

// EnsureDefaults replaces zero values by defaults.
func (o *ClusterOptions) EnsureDefaults() {
	o.Replica.EnsureDefaults()
	o.Size = cmp.Or(o.Size, 1)
	o.ClockTolerance = cmp.Or(o.ClockTolerance, time.Minute)
	// Shorter elections are for quicker networks. Disks do not get quicker by them.
	o.HangTimeout = cmp.Or(o.HangTimeout, max(2*o.Replica.ElectionTimeout, 2*time.Second))
	o.CatchUpRate = cmp.Or(o.CatchUpRate, 96<<20)
	o.AdviceEvery = cmp.Or(o.AdviceEvery, 30*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.HasLog == nil {
		o.HasLog = func() (bool, error) { return true, nil }
	}
}

// majority is how many voters must be there for anything to be acknowledged.
func (o *ClusterOptions) majority() int { return o.Size/2 + 1 }

// Cluster is this node's part in its cluster: it finds the other nodes, forms or joins a cluster
// with them, keeps the Replica running, and fetches data that this node lacks. In a cluster of one
// a node talks to no other.
type Cluster struct {
	Clock    *Clock    // this node's
	Standing *Standing // this node's
	Jobs     *Jobs
	Writes   *Writes

	self *self

	port   *wire.Port // these are nil in a cluster of one
	gossip *gossip.Gossip
	server *http.Server

	pull         *puller
	heal         *healer
	metrics      *clusterMetrics
	caller       *caller
	peers        *peers
	duplicates   *duplicates
	disk         *disk
	lead         *leadership
	membership   *membership
	join         *joiner
	incarnations *incarnations
	lifecycle    *lifecycle

	running context.Context // ends with Close
	started atomic.Bool
	cancel  context.CancelFunc
	owned   sync.WaitGroup
	leaving sync.Once
	closing sync.Once
	err     error
}

// NewCluster returns a node's part in its cluster, which has not begun. Until Start it is
// initializing, knows no other node, and answers requests with event.ErrNotReady.
func NewCluster(o ClusterOptions) *Cluster {
	o.EnsureDefaults()
	c := &Cluster{self: &self{opts: o, logger: o.Replica.Logger.Named("cluster")}}
	c.duplicates = &duplicates{self: c.self, said: throttle.Lines[Duplicate]{Every: sayEvery}, refused: make(map[Duplicate]time.Time)}
	c.caller = &caller{self: c.self, duplicate: c.duplicates.end}
	c.metrics = newClusterMetrics(o.Replica.Stats)
	c.peers = &peers{
		self: c.self, caller: c.caller, metrics: c.metrics, poke: make(chan struct{}, 1), byID: make(map[event.ID]peer),
		answered:  func(node event.ID) { c.metrics.watchPeer(c, node) },
		duplicate: func(t Duplicate) { c.duplicates.note(t, false) },
	}
	c.duplicates.peers = c.peers
	c.disk = &disk{watch: o.Replica.Disk, limit: o.HangTimeout, logger: c.self.logger, count: c.metrics.hangs, changed: func() {
		if r := c.self.replica.Load(); r != nil {
			c.lead.note(r)
		}
		c.peers.look()
	}}
	c.Clock = &Clock{
		now: o.Now, tolerance: o.ClockTolerance, alone: o.Size == 1, members: c.peers.clocks, newest: c.self.newest, logger: c.self.logger,
		known: make(chan struct{}),
	}
	c.incarnations = &incarnations{self: c.self, peers: c.peers, said: throttle.Lines[event.ID]{Every: sayEvery}}
	c.lead = &leadership{self: c.self, peers: c.peers, incarnations: c.incarnations, disk: c.disk, clock: c.Clock}
	c.lead.priority.Store(int64(o.Priority))
	c.lead.few.Store(o.Size > 1)
	c.membership = &membership{
		self: c.self, peers: c.peers, incarnations: c.incarnations, lead: c.lead, changes: make(chan struct{}, 1), owned: &c.owned,
		said: throttle.Lines[refusal]{Every: o.AdviceEvery},
	}
	c.join = &joiner{self: c.self, peers: c.peers, incarnations: c.incarnations, lead: c.lead}
	c.lead.removed = c.join.removed.Load
	c.Jobs = &Jobs{self: c.self, peers: c.peers, caller: c.caller}
	c.Standing = &Standing{self: c.self, join: c.join, disk: c.disk, ready: c.Ready, port: c.Port}
	c.Standing.leaderless = &leaderless{self: c.self, peers: c.peers, lead: c.lead, distrust: c.Standing.Distrust}
	c.pull = newPuller(c.incarnations, c.metrics)
	c.heal = &healer{self: c.self, pull: c.pull, wake: make(chan struct{}, 1)}
	c.lifecycle = &lifecycle{self: c.self, peers: c.peers, lead: c.lead, pull: c.pull, transport: c.transport, owned: &c.owned}
	c.lifecycle.state.Store(event.StateInitializing)
	c.Writes = &Writes{self: c.self, disk: c.disk, incarnations: c.incarnations, lead: c.lead, redirect: c.Redirect, started: c.Started}
	c.Writes.own = &ownWrites{self: c.self, caller: &caller{self: c.self, duplicate: c.duplicates.end}, incarnations: c.incarnations, lead: c.lead, submit: c.Writes.Submit}
	c.running, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start begins it. In a cluster of one it returns when raft runs. Otherwise it returns when other
// nodes can find this one. Everything else happens in the background: State says how far it is, and
// OnFatal gets an error that ends the node. After an error of Start, call Close.
func (c *Cluster) Start() error {
	ctx := c.running
	c.owned.Go(func() { c.disk.run(ctx) })
	if c.self.opts.Size == 1 {
		if err := c.lifecycle.openAlone(ctx); err != nil {
			return err
		}
		c.started.Store(true)
		c.watch()
		c.owned.Go(func() { c.Clock.watch(ctx) })
		c.owned.Go(func() { c.heal.run(ctx) })
		return nil
	}
	prepared, err := c.lifecycle.settle()
	if err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		if prepared != nil {
			err = errors.Join(err, prepared.abandon())
		}
		return err
	}
	c.started.Store(true)
	c.watch()
	c.owned.Go(func() {
		if err := c.lifecycle.run(ctx, prepared); err != nil && ctx.Err() == nil {
			c.self.opts.Replica.OnFatal(err)
		}
	})
	c.owned.Go(func() { c.watchPeers(ctx) })
	c.owned.Go(func() { c.join.run(ctx) })
	c.owned.Go(func() { c.pull.run(ctx) })
	c.owned.Go(func() { c.heal.run(ctx) })
	return nil
}

// Started reports whether Start has got so far that the node takes part.
func (c *Cluster) Started() bool { return c.started.Load() }

// connect opens the port between nodes, and gossip over it.
func (c *Cluster) connect() (err error) {
	o := &c.self.opts
	c.self.name = c.self.node.String()
	o.Replica.Stats.GaugeFunc("annals_cluster_other_histories", "Nodes of this cluster whose log differs from this node's.",
		func() float64 { return float64(c.incarnations.others.Load()) })
	o.Replica.Stats.GaugeFunc("annals_cluster_other_lineages", "Nodes that belong to another incarnation of this node's cluster.",
		func() float64 { return float64(c.incarnations.apart.Load()) })
	c.port, err = wire.Open(wire.Options{
		Bind: o.Bind, Advertise: o.Advertise, Node: c.self.node, Cluster: c.self.clusterID, Incarnation: c.self.mark, Network: o.Network, Security: o.Security, Secret: o.Secret, Logger: c.self.logger,
		Stats: o.Replica.Stats,
	})
	if err != nil {
		return err
	}
	o.Advertise = c.port.Advertised()
	c.caller.client = &http.Client{Transport: c.port.HTTPTransport(wire.KindService)}
	writes := c.port.HTTPTransport(wire.KindService)
	writes.MaxConnsPerHost, writes.MaxIdleConnsPerHost = writeConnections, writeConnections
	c.Writes.own.caller.client = &http.Client{Transport: writes}
	c.server = c.port.HTTPServer(c.services())
	phase := phaseFresh
	if c.lifecycle.made || c.self.deps.Load() != nil {
		phase = phaseJoining
	}
	c.gossip, err = gossip.Open(gossip.Options{
		Port: c.port, Seeds: o.Seeds, Ask: o.AskSeed,
		Interval: o.GossipInterval, Timeout: o.GossipTimeout, DeadRemoval: o.DeadRemoval, Logger: c.self.logger,
		Stats: o.Replica.Stats,
		Self: gossip.Self{
			Node: c.self.node, Cluster: c.self.clusterID(), ReplicationAddress: o.Advertise,
			HTTPHost: o.ClientHost, HTTPPort: o.ClientPort, HTTPSecure: o.ClientSecure,
			ReadOnly: o.ReadOnly, Priority: o.Priority, ClusterSize: o.Size, Version: o.Version, Format: dataFormat, Phase: phase,
		},
	})
	if err != nil {
		return err
	}
	c.peers.gossip = c.gossip
	listener := c.port.Listener(wire.KindService) // What it serves asks gossip.
	c.owned.Go(func() {
		if err := c.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) && !c.self.stopping.Load() {
			c.self.logger.Error("other nodes are no longer served", logkey.Error, err)
		}
	})
	return nil
}

// dataFormat is the version of what nodes send each other of their logs,
// chunk size included. Nodes with different ones do not form a cluster. Do not
// change without changing the format.
const dataFormat = 1

// Node is the id of this node, zero before the start.
func (c *Cluster) Node() event.ID {
	if !c.Started() {
		return event.ID{}
	}
	return c.self.node
}

// PeerAddr is where other nodes reach this one, empty in a cluster of one.
func (c *Cluster) PeerAddr() string {
	if port := c.Port(); port != nil {
		return port.Advertised()
	}
	return ""
}

// Port is the port between nodes; nil in a cluster of one, and before the start.
func (c *Cluster) Port() *wire.Port {
	if !c.Started() {
		return nil
	}
	return c.port
}

// Replica returns the running Replica, nil while there is none.
func (c *Cluster) Replica() *Replica { return c.self.replica.Load() }

// Leave hands leadership over if this node leads, and tells the others that it
// goes. It is the first step of Close, and may be taken before.
func (c *Cluster) Leave() {
	c.leaving.Do(func() {
		if c.port != nil {
			ctx, cancel := context.WithTimeout(context.Background(), c.self.opts.Replica.DrainTimeout)
			defer cancel()
			c.self.warn("hand leadership over", c.lead.resign(ctx))
		}
		c.self.stopping.Store(true)
	})
}

// Close leaves, answers every waiting request and stops everything. It is
// idempotent and returns even when a disk or a peer hangs.
func (c *Cluster) Close() error {
	c.closing.Do(func() {
		c.Leave()
		c.cancel()
		var errs []error
		if r := c.self.replica.Swap(nil); r != nil {
			errs = append(errs, r.Close())
		}
		if c.gossip != nil {
			errs = append(errs, c.gossip.Close())
		}
		if c.server != nil {
			errs = append(errs, c.server.Close())
			c.caller.client.CloseIdleConnections()
			c.Writes.own.caller.client.CloseIdleConnections()
		}
		if c.port != nil {
			errs = append(errs, c.port.Close())
		}
		c.owned.Wait()
		c.lead.Publish(pipeline.Leadership{})
		c.err = errors.Join(errs...)
	})
	return c.err
}

// ID is the id of the cluster, zero as long as it is not known.
func (c *Cluster) ID() event.ID { return c.self.clusterID() }

// Hangs returns what a disk of this node hangs in, nil when it does not.
func (c *Cluster) Hangs() error { return c.disk.hanging() }

// View is the cluster as this node sees it: gossip's members joined with what they last said of
// themselves. It does not wait.
func (c *Cluster) View() event.ClusterView {
	if !c.Started() {
		return beginning(&c.self.opts)
	}
	s := viewInput{now: c.self.opts.Now(), opts: &c.self.opts, own: c.status(), members: c.peers.members(), said: c.peers.all(), voters: make(map[string]bool)}
	for _, server := range c.self.configuration().Servers {
		s.voters[string(server.ID)] = server.Suffrage == raft.Voter
	}
	s.leader, s.term = c.lead.known()
	return s.view()
}

// Heal has damaged chunk files fetched again. It does not wait.
func (c *Cluster) Heal() { bell.Ring(c.heal.wake) }

// Leadership says whether this node leads and may acknowledge writes, and returns
// a channel that is closed when that changes.
func (c *Cluster) Leadership() (pipeline.Leadership, <-chan struct{}) { return c.lead.Current() }

// LeaderAddress is the leader's address for other nodes; ok is false when this node leads or does
// not know the leader.
func (c *Cluster) LeaderAddress() (string, bool) {
	if !c.Started() {
		return "", false
	}
	return c.lead.address()
}

// Redirect returns the leader's address for clients; ok is false when this node leads or does not
// know the leader.
func (c *Cluster) Redirect() (address string, ok bool) {
	if !c.Started() {
		return "", false
	}
	return c.lead.redirect()
}

// Resign hands leadership to the voter with the highest priority among those that have everything.
// Writes in flight finish first; new ones wait, and are then sent to the new leader. It returns nil
// as well when this node does not lead, or when no node could take over: then this node keeps
// leading.
func (c *Cluster) Resign(ctx context.Context) error { return c.lead.resign(ctx) }

// SetPriority changes the node's priority until it is restarted.
func (c *Cluster) SetPriority(priority int) error {
	if !c.Started() {
		return event.ErrNotReady
	}
	return c.lead.setPriority(priority)
}

// AddMember admits a node that is running and known to gossip, also beyond the
// cluster's size, and gives it a vote unless it is a read-only replica. It
// returns when that is done, which takes as long as the node needs to catch up.
func (c *Cluster) AddMember(ctx context.Context, node string) error {
	if !c.Started() {
		return event.ErrNotReady
	}
	return c.membership.persist(ctx, func() error { return c.membership.add(ctx, node) })
}

// RemoveMember removes a node from the cluster, dead or alive. It refuses what
// would leave the others without a majority.
func (c *Cluster) RemoveMember(ctx context.Context, node string) error {
	if !c.Started() {
		return event.ErrNotReady
	}
	return c.membership.persist(ctx, func() error { return c.membership.remove(ctx, node) })
}

// SetReadOnly makes writes fail with the reason; nil lifts it. A leader that must
// refuse writes hands over to a node that need not.
func (c *Cluster) SetReadOnly(reason error) {
	c.self.readOnly.set(reason)
	if r := c.self.replica.Load(); r != nil {
		r.pipeline.SetReadOnly(reason)
	}
	c.peers.look()
}

// SetFull says that this node has no room for more entries from a leader. It lags
// behind then, until there is room again.
func (c *Cluster) SetFull(full bool) {
	c.self.full.Store(full)
	if r := c.self.replica.Load(); r != nil {
		r.state.Logs.Full.Store(full)
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
		Holds:   r.state.Logs.Holds,
		Append:  func(a *raft.AppendEntriesRequest) { trimAppend(a, r.state.Snapshots.Newest) },
		InTerm:  r.state.Stable.InTerm,
		Silent:  c.disk.hanging,
		// TLS takes its time on a busy machine
		Patience: max(c.self.opts.Replica.ElectionTimeout, time.Second),
		Logger:   quiet{c.self.opts.Replica.Logger, r.naming},

		Candidate: c.duplicates.candidate,
	})
}
