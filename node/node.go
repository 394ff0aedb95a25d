package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/admin/backup/session"
	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/admin/indexmerge"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats"
	"github.com/annalsdb/annals/stats/latency"
	"github.com/annalsdb/annals/subscription"
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
	Stats        *stats.Registry // where figures are registered; default: one of the node's own

	// LinesDropped is how many lines of the log were dropped because what they are
	// written to did not take them. Default: none ever.
	LinesDropped func() uint64

	// Reload reads the configuration again when a client asks for it and takes over
	// what may change while a node runs. It says itself what came of it. Default: nothing is read.
	Reload func()
	// Settings returns the options in force, for /info/options. Default: those of Config.
	Settings func() []config.Value

	// Seeds, when given, is asked for the gossip addresses of other nodes in place of
	// what Config says.
	Seeds func(context.Context) ([]string, error)

	// PasswordIterations is the cost of hashing a password, default as package access says.
	PasswordIterations int
	// ClosePatience is how long Close waits, once a disk hangs; default 25 s, as long as a replica may take to close.
	ClosePatience time.Duration
	Now           func() time.Time // the clock by which events are written and ages are judged, default time.Now
	// DiskReserve is how many free bytes the node keeps on its volume by refusing writes; default 128 MiB.
	DiskReserve int64
}

// Node is one running node.
type Node struct {
	opts    Options
	config  *config.Config
	logger  hclog.Logger
	started time.Time

	cluster    atomic.Pointer[replication.Cluster] // nil until it was opened
	relay      atomic.Pointer[relay]               // nil in a cluster of one
	security   *certificates                       // nil without
	users      *users
	store      *store
	figures    *statistics
	start      startup
	api        *httpapi.Server
	http       *httpServer
	relayed    *httpServer // requests that other nodes pass on; nil in a cluster of one
	merges     *indexmerge.Jobs
	chunks     chunklock.Lock // of the one job that may rewrite chunk files
	scavenge   *scavenging
	backups    *session.Service
	backupRuns *manager.Manager
	redact     *redacting
	policy     *access.Policy
	groups     *subscription.Service
	queries    *projection.Service // nil: no projections run
	load       firstLoad
	leading    leading

	disk    *hang.Watch // operations on the disk that are under way
	fatal   sync.Once
	ending  sync.Once       // of done
	running context.Context // ends when the node closes
	cancel  context.CancelFunc
	owned   sync.WaitGroup
	done    chan struct{}
	closing sync.Once
	closed  chan struct{} // everything is closed
	err     error         // valid after closed
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
	if o.ClosePatience == 0 {
		o.ClosePatience = 25 * time.Second
	}
	if o.Stats == nil {
		o.Stats = new(stats.Registry)
	}
	if o.LinesDropped != nil {
		o.Stats.CounterFunc("annals_log_lines_dropped_total", "Lines of the log that were dropped because what they are written to did not take them.",
			func() float64 { return float64(o.LinesDropped()) })
	}
	if o.Settings == nil {
		o.Settings = o.Config.Values
	}
	n := newNode(o)
	n.opts.FS = vfs.NewWatched(o.FS, n.disk)
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if err := n.openSecurity(); err != nil {
		return nil, err
	}
	n.figures = newStatistics(n)
	if n.http, err = listen(n.config.ListenAddr(), &n.figures.traffic, n.logger.Named("http")); err != nil {
		return nil, err
	}
	n.store = newStore(n)
	if n.users, err = newUsers(n); err != nil {
		return nil, err
	}
	n.policy = access.NewPolicy(n.store, access.PolicyOptions{Insecure: n.config.Insecure, AllowAnonymousStreamAccess: n.config.AllowAnonymousStreamAccess, Stats: n.opts.Stats})
	n.queries = newProjections(n)
	n.groups = subscription.New(subscription.Options{
		Store: n.store, Logger: n.logger.Named("subscriptions"), Stats: n.opts.Stats, WriteTimeout: n.config.WriteTimeout,
		CorrelationMember: (&correlations{projections: n.queries}).member,
	})
	n.leading.services = []service{n.groups}
	if n.queries != nil {
		n.leading.services = append(n.leading.services, n.queries)
	}
	if n.config.ClusterSize == 1 {
		n.load.queries = n.queries
	}
	if n.scavenge, err = newScavenging(n); err != nil {
		return nil, fmt.Errorf("option ScavengeSchedule: %w", err)
	}
	n.backups = newBackupSessions(n)
	if n.backupRuns, err = newBackupManager(n, o.FS); err != nil {
		return nil, err
	}
	if n.redact, err = newRedacting(n); err != nil {
		return nil, err
	}
	// From here on clients are answered, most of them with a 503, and are told how far the start is.
	if err := n.serve(); err != nil {
		return nil, err
	}
	cluster, err := replication.OpenCluster(n.clusterOptions())
	if err != nil {
		return nil, err
	}
	n.cluster.Store(cluster)
	n.serveNodes(cluster)
	n.owned.Go(func() { n.users.run(n.running, cluster) })
	n.owned.Go(func() { n.leading.follow(n.running, cluster) })
	n.owned.Go(func() { n.figures.run(n.running) })
	if n.security != nil {
		n.owned.Go(func() { n.security.watch(n.running, n.opts.Now) })
	}
	n.scavenge.start()
	n.owned.Go(func() { n.backUp(n.running) })
	if n.config.EnableUnixSocket && !n.config.MemDb {
		if err := n.redact.listen(n); err != nil {
			return nil, err
		}
	}
	if !n.config.MemDb {
		guard := diskGuard{fs: o.FS, dirs: []string{n.config.Db, n.config.Index}, reserve: o.DiskReserve, logger: n.logger.Named("disk"), refuse: cluster.SetReadOnly, full: cluster.SetFull, release: n.endBackups}
		n.owned.Go(func() { guard.run(n.running) })
	}
	if n.config.ClusterSize == 1 {
		if err := errors.Join(awaitLeadership(ctx, cluster), n.users.wait(ctx), n.load.wait(ctx)); err != nil {
			return nil, fmt.Errorf("open node: %w", err)
		}
	}
	n.logger.Info("node started", "address", n.Addr(), "node", cluster.Node().String(), "end", n.store.LogEnd(), "took", time.Since(n.started).Round(time.Millisecond))
	return n, nil
}

// newNode returns a node of which nothing was opened. Its options are complete.
func newNode(o Options) *Node {
	if o.Now == nil {
		o.Now = time.Now
	}
	n := &Node{
		opts: o, config: o.Config, logger: o.Logger, started: time.Now(),
		done: make(chan struct{}), closed: make(chan struct{}), disk: new(hang.Watch), merges: indexmerge.New(o.Logger.Named("admin")),
	}
	n.running, n.cancel = context.WithCancel(context.Background())
	return n
}

// awaitLeadership returns when this node leads.
func awaitLeadership(ctx context.Context, c *replication.Cluster) error {
	for {
		l, changed := c.Leadership()
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
		SkipVerify: c.SkipDbVerify, CheckEvery: time.Duration(c.ChunkCheckDays) * 24 * time.Hour, Now: n.opts.Now, Logger: n.logger.Named("log"), Stats: n.opts.Stats,
		OnFatal:  n.stopHard,
		OnSync:   func(took time.Duration) { n.store.latencies.Record(latency.ChaserFlush, took) },
		OnDamage: func(error) { n.heal() },
		BeforeCut: func(at int64) error {
			return errors.Join(raftdisk.Restored(vfs.OS, c.Db, n.logger.Named("cluster")), n.redact.ledger.Cut(at))
		},
		Redacted: n.redact.ledger.Between,
		Progress: n.start.note,
	})
	if event.IsCorruption(err) || errors.Is(err, event.ErrDataMissing) {
		return nil, fmt.Errorf("%w (annals verify --db %s tells more, and with --repair-from and the address of another node it fetches complete chunks from there)", err, c.Db)
	}
	if err != nil {
		return nil, err
	}
	n.store.log.Store(log)
	if err := n.redact.service.Resume(); err != nil { // Before anybody reads what was to be blanked.
		return nil, errors.Join(err, log.Close())
	}
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
	options := httpapi.Options{
		Store: sabotagedStore(n.store), Waiter: n.store, Cluster: cluster{n}, Access: gate{n.users.logins, n.policy},
		Membership: membership{n}, Users: n.users.manager, Subscriptions: n.groups, Operations: operations{n}, Scavenges: n.scavenge.runs, Redactions: n.redact.service, Backups: n.backups, BackupRuns: n.backupRuns, Doctor: (&examination{n: n}).examine, Statistics: n.figures, Startup: progress{n}, Settings: n.opts.Settings,
		Relay: relayWhenThere{n}, RelayWrites: c.FollowerWrites == config.FollowerWritesForward,
		Logger: n.logger.Named("http"), Version: n.opts.Version,
		AdvertiseHost: c.AdvertiseHostToClientAs, AdvertisePort: c.AdvertiseNodePortToClientAs,
		PrepareTimeout: c.PrepareTimeout, CommitTimeout: c.CommitTimeout, MaxAppendBytes: c.AppendLimit(),
		DisableHTTPCaching: c.DisableHttpCaching, DisableAtomPub: !c.EnableAtomPubOverHttp,
		DisableAdminUI: c.DisableAdminUi, DisableGossip: c.DisableGossipOnHttp, DisableStats: c.DisableStatsOnHttp, Insecure: c.Insecure,
		LogRequests: c.LogHttpRequests, LogFailedLogins: c.LogFailedAuthenticationAttempts,
		ReferenceStatusCodes:                     c.ReferenceStatusCodes,
		OverrideAnonymousEndpointAccessForGossip: c.OverrideAnonymousEndpointAccessForGossip,
		AllowAnonymousEndpointAccess:             c.AllowAnonymousEndpointAccess,
	}
	if n.queries != nil {
		options.Projections, options.ProjectionsMode = n.queries, string(c.RunProjections)
		options.Subsystems = func() []string { return []string{httpapi.SubsystemProjections} }
	}
	if err := options.Validate(); err != nil {
		return err
	}
	n.api = httpapi.New(options)
	if n.https() {
		n.http.serve(n.handler(), n.security.Store)
	} else {
		n.http.serve(n.handler(), nil)
	}
	return nil
}

// handler is the HTTP interface with its work counted.
func (n *Node) handler() http.Handler { return n.figures.counted(n.api.Handler()) }

// serveNodes serves what other nodes pass on.
func (n *Node) serveNodes(c *replication.Cluster) {
	port := c.Port()
	if port == nil {
		return
	}
	n.relay.Store(newRelay(c, n.config.PrepareTimeout+n.config.CommitTimeout, n.logger.Named("relay")))
	n.relayed = serveRelayed(port, n.handler(), n.logger.Named("relayed"))
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
func (n *Node) GossipAddr() string { return n.cluster.Load().GossipAddr() }

// State returns the node's state.
func (n *Node) State() event.NodeState {
	if c := n.cluster.Load(); c != nil {
		return c.State()
	}
	return event.StateInitializing
}

// Unready returns what /health/ready says: why the node should not be sent requests, nothing when it should.
func (n *Node) Unready() string { return n.api.Unready() }

// Done is closed when the node has been asked to stop by one of its users.
func (n *Node) Done() <-chan struct{} { return n.done }

// Close stops the node: answers in flight finish, the log and its checkpoints
// are flushed. It is idempotent. When a disk hangs it gives up with an error, and what
// it waited for is left alone.
func (n *Node) Close() error {
	n.closing.Do(func() {
		go func() {
			defer close(n.closed)
			n.err = n.close()
		}()
	})
	begun := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-n.closed:
			return n.err
		case <-tick.C:
		}
		if time.Since(begun) < n.opts.ClosePatience {
			continue
		}
		if op, since := n.disk.Overdue(time.Second); op != nil {
			return fmt.Errorf("close node: the disk hangs: %s %s is under way for %s", op.Doing, op.File, since.Round(time.Second))
		}
	}
}

func (n *Node) close() (err error) {
	if n.api != nil {
		n.api.Drain()
	}
	if n.backupRuns != nil {
		n.backupRuns.Cancel()
	}
	// Whoever copies from here reads no further: the files must be closed before the log is.
	if n.backups != nil {
		n.backups.Close()
	}
	// While there is a leader to record it.
	if n.scavenge != nil {
		n.scavenge.close()
	}
	if n.redact != nil {
		err = n.redact.close()
	}
	// Before leadership goes: what runs by it must not begin what the next leader begins as well.
	n.leading.rest(n.running)
	// Leadership goes first: clients that are redirected from here on find a leader that stays.
	cluster := n.cluster.Load()
	if cluster != nil {
		cluster.Leave()
	}
	if n.http != nil {
		err = errors.Join(err, n.http.close())
	}
	if n.relayed != nil {
		err = errors.Join(err, n.relayed.close())
	}
	if relay := n.relay.Load(); relay != nil {
		relay.close()
	}
	// A place for backups that does not answer delays the end, but has not delayed the handing over.
	if n.backupRuns != nil {
		n.backupRuns.Close()
	}
	n.cancel()
	n.merges.Close()
	if n.users != nil {
		n.users.close()
	}
	if cluster != nil {
		err = errors.Join(err, cluster.Close())
	}
	n.owned.Wait()
	if log, none := n.store.Log(); none == nil {
		err = errors.Join(err, log.Close())
	}
	return err
}

// gate is authentication and authorisation in one.
type gate struct {
	*access.Authenticator
	*access.Policy
}

var _ httpapi.Access = gate{}
