package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/fsm"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/replication"
)

// Options of a node. Config is needed; the rest has defaults.
type Options struct {
	Config  *config.Config
	Logger  hclog.Logger // default: none
	Version string       // of the product, for /info

	// OnFatal is told once of an error after which nothing more may be
	// acknowledged: a failed write or sync. It should end the process. The default panics.
	OnFatal func(error)

	FS vfs.FS // of the log and the index; default: the real one, or memory with MemDb

	// PasswordIterations is the cost of hashing a password, default as package access says.
	PasswordIterations int
	// DiskReserve is how many free bytes the node keeps on its volume by refusing writes; default 128 MiB.
	DiskReserve int64
}

// Node is one running node.
type Node struct {
	opts    Options
	config  *config.Config
	logger  hclog.Logger
	started time.Time

	log     *eventlog.Log
	replica *replication.Replica
	users   *users
	store   *store
	api     *httpapi.Server
	http    *httpServer

	damaged atomic.Bool // a complete chunk is not what was written
	fatal   sync.Once
	cancel  context.CancelFunc
	owned   sync.WaitGroup
	done    chan struct{}
	closing sync.Once
	err     error
}

// Open starts a node. It returns when the node serves requests: on a single
// node, when it leads and the built-in users exist.
func Open(ctx context.Context, o Options) (_ *Node, err error) {
	if o.Config == nil {
		return nil, errors.New("open node: no configuration")
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.OnFatal == nil {
		o.OnFatal = func(err error) { panic(err) }
	}
	if o.FS == nil {
		o.FS = vfs.OS
		if o.Config.MemDb {
			o.FS = vfs.NewMem()
		}
	}
	if o.DiskReserve == 0 {
		o.DiskReserve = 128 << 20
	}
	owned, cancel := context.WithCancel(context.Background())
	n := &Node{opts: o, config: o.Config, logger: o.Logger, started: time.Now(), cancel: cancel, done: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := n.openLog(); err != nil {
		return nil, err
	}
	if err := n.openReplica(); err != nil {
		return nil, err
	}
	n.store = &store{log: n.log, replica: n.replica}
	if n.users, err = newUsers(n.store, n.log, o); err != nil {
		return nil, err
	}
	if err := n.openHTTP(); err != nil {
		return nil, err
	}
	n.owned.Go(func() { n.users.run(owned, n.replica) })
	n.owned.Go(func() { n.users.follow(owned) })
	if !n.config.MemDb {
		n.owned.Go(func() { n.keepCheckpoints(owned) })
		guard := diskGuard{fs: o.FS, dir: n.config.Db, reserve: o.DiskReserve, logger: n.logger.Named("disk"), refuse: n.replica.SetReadOnly}
		n.owned.Go(func() { guard.run(owned) })
	}
	if err := n.users.wait(ctx); err != nil {
		return nil, fmt.Errorf("open node: %w", err)
	}
	n.logger.Info("node started", "address", n.Addr(), "end", n.log.Tail().End, "took", time.Since(n.started).Round(time.Millisecond))
	return n, nil
}

func (n *Node) openLog() error {
	c := n.config
	log, err := eventlog.Open(eventlog.Options{
		Dir: c.Db, IndexDir: c.Index, FS: n.opts.FS,
		Index: index.Options{
			MaxMemTable: c.MaxMemTableSize, MaxAutoMergeLevel: c.MaxAutoMergeIndexLevel,
			NoBloom: !c.UseIndexBloomFilters, ExistenceFilterMax: filterSize(c.StreamExistenceFilterSize), SkipVerify: c.SkipIndexVerify,
		},
		StreamCache: c.StreamInfoCacheCapacity, MaxTruncate: c.MaxTruncation,
		SkipVerify: c.SkipDbVerify, Logger: n.logger.Named("log"),
		OnFatal:  n.stopHard,
		OnDamage: func(error) { n.damaged.Store(true) },
	})
	n.log = log
	return err
}

// filterSize turns the option's 0 for "none" into the index's way of saying so.
func filterSize(option int64) int64 {
	if option == 0 {
		return -1
	}
	return option
}

func (n *Node) openReplica() error {
	store := replication.BoltDB
	if n.config.RaftLogStore == config.LogStoreWal {
		store = replication.Wal
	}
	replica, err := replication.Open(replication.Options{
		Dir: n.config.Db, InMemory: n.config.MemDb, LogStore: store,
		ClusterID: n.log.Cluster(), DirectoryID: n.log.Directory(),
		FSM:     fsm.NewMachine(n.log, n.logger.Named("fsm"), n.stopHard),
		Decider: fsm.NewDecider(n.log, time.Now),
		Log:     n.log,
		OnFatal: n.stopHard, Logger: n.logger,
		ElectionTimeout: n.config.LeaderElectionTimeout,
	})
	n.replica = replica
	return err
}

func (n *Node) openHTTP() error {
	c := n.config
	policy := access.NewPolicy(n.store, access.PolicyOptions{Insecure: c.Insecure, AllowAnonymousStreamAccess: c.AllowAnonymousStreamAccess})
	options := httpapi.Options{
		Store: n.store, Waiter: n.store, Cluster: cluster{n}, Access: gate{n.users.logins, policy},
		Logger: n.logger.Named("http"), Version: n.opts.Version,
		AdvertiseHost: c.AdvertiseHostToClientAs, AdvertisePort: c.AdvertiseNodePortToClientAs,
		PrepareTimeout: c.PrepareTimeout, CommitTimeout: c.CommitTimeout,
		DisableHTTPCaching: c.DisableHttpCaching,
		DisableAdminUI:     c.DisableAdminUi, Insecure: c.Insecure,
	}
	if err := options.Validate(); err != nil {
		return err
	}
	n.api = httpapi.New(options)
	var err error
	n.http, err = listen(c.ListenAddr(), n.api, n.logger.Named("http"))
	return err
}

// stopHard passes on the first error after which the node must not go on.
func (n *Node) stopHard(err error) {
	n.fatal.Do(func() { n.opts.OnFatal(err) })
}

// Addr returns the host and port that HTTP is served on.
func (n *Node) Addr() string { return n.http.addr().String() }

// Done is closed when the node has been asked to stop by one of its users.
func (n *Node) Done() <-chan struct{} { return n.done }

// Close stops the node: answers in flight finish, the log and its checkpoints
// are flushed. It is idempotent.
func (n *Node) Close() error {
	n.closing.Do(func() {
		var err error
		if n.api != nil {
			n.api.Drain()
		}
		if n.http != nil {
			err = n.http.close()
		}
		n.cancel()
		n.owned.Wait()
		if n.replica != nil {
			err = errors.Join(err, n.replica.Close())
		}
		if n.log != nil {
			err = errors.Join(err, n.log.Close())
		}
		n.err = err
	})
	return n.err
}

// cluster tells the HTTP interface who leads.
type cluster struct{ n *Node }

func (c cluster) Role() string { return c.n.replica.State().Role }

// Redirect: a node on its own has nobody to send clients to.
func (c cluster) Redirect() (string, bool) { return "", false }

func (c cluster) Confirm(ctx context.Context) error { return c.n.replica.Confirm(ctx) }

func (c cluster) Ready() bool {
	return c.n.replica.Ready() && c.n.users.ready() == nil && !c.n.damaged.Load() && c.n.log.Failed() == nil
}

// gate is authentication and authorisation in one.
type gate struct {
	*access.Authenticator
	*access.Policy
}

var (
	_ httpapi.Access  = gate{}
	_ httpapi.Cluster = cluster{}
)
