package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/wire"
	"github.com/annalsdb/annals/stats"
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

	// Certificates, when given, are used in place of the files that Config names.
	Certificates *certs.Set
	Stats        *stats.Registry // where figures are registered; default: nowhere

	// Seeds, when given, is asked for the gossip addresses of other nodes in place of
	// what Config says.
	Seeds func(context.Context) ([]string, error)

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

	log      atomic.Pointer[eventlog.Log] // nil until the cluster's id is known
	cluster  *replication.Cluster
	security *certs.Store // nil without certificates
	users    *users
	store    *store
	api      *httpapi.Server
	http     *httpServer
	relayed  *httpServer // requests that other nodes pass on; nil in a cluster of one

	damaged atomic.Bool // a complete chunk is not what was written
	fatal   sync.Once
	running context.Context // ends when the node closes
	cancel  context.CancelFunc
	owned   sync.WaitGroup
	done    chan struct{}
	closing sync.Once
	err     error
}

// Open starts a node. A node on its own is returned when it serves requests: when
// it leads and the built-in users exist. A node of a cluster of several is
// returned when it listens: what it can serve then depends on the others, and
// /health/live and /gossip tell how far it is.
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
	if o.Stats == nil {
		o.Stats = new(stats.Registry)
	}
	owned, cancel := context.WithCancel(context.Background())
	n := &Node{
		opts: o, config: o.Config, logger: o.Logger, started: time.Now(),
		running: owned, cancel: cancel, done: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := n.openSecurity(); err != nil {
		return nil, err
	}
	if n.http, err = listen(n.config.ListenAddr(), n.logger.Named("http")); err != nil {
		return nil, err
	}
	n.store = &store{log: &n.log}
	if n.users, err = newUsers(n.store, o); err != nil {
		return nil, err
	}
	if n.cluster, err = replication.OpenCluster(n.clusterOptions()); err != nil {
		return nil, err
	}
	n.store.cluster.Store(n.cluster)
	if err := n.serve(); err != nil {
		return nil, err
	}
	n.owned.Go(func() { n.users.run(owned, n.cluster) })
	if !n.config.MemDb {
		guard := diskGuard{fs: o.FS, dir: n.config.Db, reserve: o.DiskReserve, logger: n.logger.Named("disk"), refuse: n.cluster.SetReadOnly, full: n.cluster.SetFull}
		n.owned.Go(func() { guard.run(owned) })
	}
	if n.config.ClusterSize == 1 {
		if err := errors.Join(n.awaitLeadership(ctx), n.users.wait(ctx)); err != nil {
			return nil, fmt.Errorf("open node: %w", err)
		}
	}
	n.logger.Info("node started", "address", n.Addr(), "node", n.cluster.Node().String(), "end", n.store.LogEnd(), "took", time.Since(n.started).Round(time.Millisecond))
	return n, nil
}

// awaitLeadership returns when this node leads.
func (n *Node) awaitLeadership(ctx context.Context) error {
	for {
		l, changed := n.cluster.Leadership()
		if l.Leading {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// openLog opens the event log, or makes one of the given cluster, and starts
// what works on it.
func (n *Node) openLog(cluster event.ID) (*eventlog.Log, error) {
	c := n.config
	log, err := eventlog.Open(eventlog.Options{
		Dir: c.Db, IndexDir: c.Index, FS: n.opts.FS, ClusterID: cluster,
		Index: index.Options{
			MaxMemTable: c.MaxMemTableSize, MaxAutoMergeLevel: c.MaxAutoMergeIndexLevel,
			NoBloom: !c.UseIndexBloomFilters, ExistenceFilterMax: filterSize(c.StreamExistenceFilterSize), SkipVerify: c.SkipIndexVerify,
		},
		StreamCache: c.StreamInfoCacheCapacity, MaxTruncate: c.MaxTruncation,
		SkipVerify: c.SkipDbVerify, Logger: n.logger.Named("log"),
		OnFatal:  n.stopHard,
		OnDamage: func(error) { n.damaged.Store(true) },
	})
	if err != nil {
		return nil, err
	}
	n.log.Store(log)
	n.owned.Go(func() { n.users.follow(n.running, log) })
	if !c.MemDb {
		n.owned.Go(func() { n.keepCheckpoints(n.running, log) })
	}
	return log, nil
}

// filterSize turns the option's 0 for "none" into the index's way of saying so.
func filterSize(option int64) int64 {
	if option == 0 {
		return -1
	}
	return option
}

// serve starts the HTTP interface.
func (n *Node) serve() error {
	c := n.config
	policy := access.NewPolicy(n.store, access.PolicyOptions{Insecure: c.Insecure, AllowAnonymousStreamAccess: c.AllowAnonymousStreamAccess})
	options := httpapi.Options{
		Store: n.store, Waiter: n.store, Cluster: cluster{n}, Access: gate{n.users.logins, policy},
		Membership: membership{n.cluster, n.clientEndpoint},
		Logger:     n.logger.Named("http"), Version: n.opts.Version,
		AdvertiseHost: c.AdvertiseHostToClientAs, AdvertisePort: c.AdvertiseNodePortToClientAs,
		PrepareTimeout: c.PrepareTimeout, CommitTimeout: c.CommitTimeout,
		DisableHTTPCaching: c.DisableHttpCaching,
		DisableAdminUI:     c.DisableAdminUi, DisableGossip: c.DisableGossipOnHttp, Insecure: c.Insecure,
		OverrideAnonymousEndpointAccessForGossip: c.OverrideAnonymousEndpointAccessForGossip,
		AllowAnonymousEndpointAccess:             c.AllowAnonymousEndpointAccess,
	}
	if c.FollowerWrites == config.FollowerWritesForward && c.ClusterSize > 1 {
		options.Relay, options.RelayWrites = newRelay(n.cluster, n.logger.Named("relay")), true
	}
	if err := options.Validate(); err != nil {
		return err
	}
	n.api = httpapi.New(options)
	if port := n.cluster.Port(); port != nil {
		n.relayed = newServer(plain{port.Listener(wire.KindRelay)}, n.logger.Named("relayed"))
		n.relayed.serve(n.api, nil)
	}
	if n.https() {
		n.http.serve(n.api, n.security)
	} else {
		n.http.serve(n.api, nil)
	}
	return nil
}

// stopHard passes on the first error after which the node must not go on.
func (n *Node) stopHard(err error) {
	n.fatal.Do(func() { n.opts.OnFatal(err) })
}

// Addr returns the host and port that HTTP is served on.
func (n *Node) Addr() string { return n.http.addr().String() }

// URL returns where the node serves clients.
func (n *Node) URL() string {
	if n.https() {
		return "https://" + n.Addr()
	}
	return "http://" + n.Addr()
}

// GossipAddr returns the address of gossip, empty for a node on its own.
func (n *Node) GossipAddr() string { return n.cluster.GossipAddr() }

// State returns the node's state.
func (n *Node) State() event.NodeState { return n.cluster.State() }

// Ready reports whether the node serves requests.
func (n *Node) Ready() bool { return cluster{n}.Ready() }

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
		// Leadership goes first: whoever is redirected from here on finds a leader that stays.
		if n.cluster != nil {
			n.cluster.Leave()
		}
		if n.http != nil {
			err = n.http.close()
		}
		if n.relayed != nil {
			err = errors.Join(err, n.relayed.close())
		}
		n.cancel()
		if n.cluster != nil {
			err = errors.Join(err, n.cluster.Close())
		}
		n.owned.Wait()
		if log := n.log.Load(); log != nil {
			err = errors.Join(err, log.Close())
		}
		n.err = err
	})
	return n.err
}

// cluster tells the HTTP interface who leads.
type cluster struct{ n *Node }

func (c cluster) Role() string { return strings.ToLower(string(c.n.cluster.State())) }

func (c cluster) Redirect() (string, bool) { return c.n.cluster.Redirect() }

func (c cluster) Confirm(ctx context.Context) error { return c.n.cluster.Confirm(ctx) }

func (c cluster) Ready() bool {
	log := c.n.log.Load()
	doubt, diverged := c.n.cluster.Healthy()
	return log != nil && doubt == nil && diverged == nil && c.n.cluster.Ready() && c.n.users.ready() == nil &&
		!c.n.damaged.Load() && log.Failed() == nil
}

// membership is the cluster as an operator sees it.
type membership struct {
	*replication.Cluster
	client func() (host string, port int)
}

// View is the cluster's, with the address at which clients reach this node.
func (m membership) View() event.ClusterView {
	view := m.Cluster.View()
	view.ServerHost, view.ServerPort = m.client()
	return view
}

// gate is authentication and authorisation in one.
type gate struct {
	*access.Authenticator
	*access.Policy
}

var (
	_ httpapi.Access     = gate{}
	_ httpapi.Cluster    = cluster{}
	_ httpapi.Membership = membership{}
)
