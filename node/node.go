package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/admin/backup/session"
	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/admin/indexmerge"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/hang"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/network"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node/relay"
	"github.com/annalsdb/annals/node/serve"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/subscription"
)

// Node is one running node.
type Node struct {
	opts    Options
	fs      vfs.FS // as that of opts, which is watched; for what may hang without the node
	files   vfs.FS // as patient as that of opts, and not watched
	network network.Network
	config  *config.Config
	logger  hclog.Logger
	started time.Time

	security   *certificates // nil without
	secret     peerSecret
	http       *serve.Server // nil while a cluster is recovered
	relayed    *serve.Server // requests that other nodes pass on; nil in a cluster of one
	traffic    serve.Traffic // of clients
	starved    starved
	metrics    *statistics
	web        *os.Root // of WebDir; nil: there is none
	cluster    *replication.Cluster
	store      *store
	users      *users
	startup    startup
	memory     *api.Memory // of requests
	api        *httpapi.Server
	rpc        *grpcapi.Server
	shares     *api.Shares // of what clients hold, over both
	relay      *relay.Relay
	merges     *indexmerge.Jobs
	chunks     chunklock.Lock // of the one job that may rewrite chunk files
	scavenge   *scavenging
	backups    *session.Service
	backupRuns *manager.Manager
	redact     *redacting
	activity   *activity.Recorder
	policy     *access.Policy
	leases     *api.Leases
	groups     *subscription.Service
	queries    *projection.Service // nil: no projections run
	load       firstLoad
	leading    leading

	disk     *hang.Watch           // operations on the disk that are in flight
	diskFull atomic.Pointer[error] // why no entries are taken from a leader

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
func Open(ctx context.Context, o Options) (*Node, error) {
	if o.Config == nil {
		return nil, errors.New("open node: no configuration")
	}
	n := newNode(o)
	var err error
	if n.security, err = certificatesOf(n).open(); err != nil {
		return nil, err
	}
	n.traffic.MaxConnections = maxConnections(n.config.MaxConnections)
	if n.http, err = serve.Listen(ctx, n.network, n.config.ListenAddr(), &n.traffic, n.logger.Named("http")); err != nil {
		return nil, err
	}
	if err := n.build(); err != nil {
		return nil, errors.Join(err, n.http.Close())
	}
	if err := n.start(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// newNode returns a node without its parts.
func newNode(o Options) *Node {
	o.EnsureDefaults()
	n := &Node{
		opts: o, fs: o.FS, config: o.Config, logger: o.Logger, started: time.Now(),
		network: cmp.Or[network.Network](o.Network, network.TCP{}),
		done:    make(chan struct{}), closed: make(chan struct{}), disk: new(hang.Watch), merges: indexmerge.New(o.Logger.Named("admin")),
	}
	if o.LinesDropped != nil {
		o.Stats.CounterFunc("annals_log_lines_dropped_total", "Log lines dropped because their destination did not accept them.",
			func() float64 { return float64(o.LinesDropped()) })
	}
	n.running, n.cancel = context.WithCancel(context.Background())
	n.openFilesPatiently()
	return n
}

// build makes all parts. They have no log yet and no leader: requests fail with event.ErrNotReady
// until start has got that far. When one cannot be made those before it are closed, the last first.
func (n *Node) build() (err error) {
	made := []func() error{func() error { n.cancel(); return nil }}
	defer func() {
		if err != nil {
			for _, closePart := range slices.Backward(made) {
				err = errors.Join(err, closePart())
			}
		}
	}()
	c := n.config
	if err := n.openSecret(); err != nil {
		return err
	}
	made = append(made, n.secret.close)
	n.cluster = replication.NewCluster(n.clusterOptions())
	n.metrics = newStatistics(n)
	n.relay = relay.New(n.cluster, c.PrepareTimeout+c.CommitTimeout, n.logger.Named("relay"))
	n.store = newStore(n)
	n.users = newUsers(n)
	n.policy = access.NewPolicy(n.store, access.PolicyOptions{Insecure: c.Insecure, AllowAnonymousStreamAccess: c.AllowAnonymousStreamAccess, Stats: n.opts.Stats})
	n.leases = api.NewLeases(n.users.logins)
	made = append(made, func() error { n.leases.Close(); return nil })
	n.queries = newProjections(n)
	n.groups = subscription.New(subscription.Options{
		Store: n.store, Logger: n.logger.Named("subscriptions"), Stats: n.opts.Stats, WriteTimeout: c.WriteTimeout,
		CorrelationMember: (&correlations{projections: n.queries}).member,
	})
	n.leading.services = []service{n.groups}
	if n.queries != nil {
		n.leading.services = append(n.leading.services, n.queries)
	}
	if c.ClusterSize == 1 {
		n.load.queries = n.queries
	}
	n.backups = newBackupSessions(n)
	if n.backupRuns, err = newBackupManager(n); err != nil {
		return err
	}
	made = append(made, func() error { n.backupRuns.Close(); return nil })
	if n.redact, err = newRedacting(n); err != nil {
		return err
	}
	made = append(made, n.redact.close)
	n.activity = activity.New(activity.Options{
		Store: n.store, Logger: n.logger.Named("activity"), Endpoint: n.endpoint, WriteTimeout: c.WriteTimeout, Stats: n.opts.Stats,
	})
	made = append(made, func() error { n.activity.Close(); return nil })
	if n.scavenge, err = newScavenging(n); err != nil {
		return fmt.Errorf("option ScavengeSchedule: %w", err)
	}
	made = append(made, func() error { n.scavenge.close(); return nil })
	if n.web, err = openWebDir(c.WebDir); err != nil {
		return err
	}
	if n.web != nil {
		made = append(made, n.web.Close)
	}
	n.shares = api.NewShares(api.SharesOptions{Tails: c.MaxLiveConnections, Insecure: c.Insecure, Stats: n.opts.Stats})
	n.memory = requestMemory(c.RequestMemoryMiB)
	if n.api, err = newAPI(n); err != nil {
		return err
	}
	if n.rpc, err = newRPC(n); err != nil {
		return err
	}
	n.leading.lost = n.rpc.LostLead
	return nil
}

// start has the parts begin, and returns when the node may be used.
func (n *Node) start(ctx context.Context) error {
	// From here on clients are answered, most of them with a 503, and learn how far the start is.
	n.serve()
	if err := n.cluster.Start(); err != nil {
		return err
	}
	n.serveNodes()
	n.owned.Go(func() { n.users.run(n.running, n.cluster) })
	if !n.config.Insecure && !n.config.NodeIp.IsLoopback() {
		n.owned.Go(func() { n.users.watchDefaults(n.running) })
	}
	n.owned.Go(func() { n.leading.follow(n.running, n.cluster) })
	n.owned.Go(func() { n.sayReady(n.running) })
	n.owned.Go(func() { n.metrics.run(n.running) })
	if n.security != nil {
		n.owned.Go(func() { n.security.watch(n.running, n.opts.Now) })
	}
	n.scavenge.start()
	n.owned.Go(func() { n.backUp(n.running) })
	if n.config.EnableUnixSocket && !n.config.MemDb && n.opts.Network == nil && vfs.IsOS(n.fs) {
		if err := n.redact.listen(n); err != nil {
			return err
		}
	}
	if !n.config.MemDb {
		n.owned.Go(func() { newDiskGuard(n).run(n.running) })
	}
	if n.config.ClusterSize == 1 {
		if err := errors.Join(awaitLeadership(ctx, n.cluster), n.users.wait(ctx), n.load.wait(ctx)); err != nil {
			return fmt.Errorf("open node: %w", err)
		}
	}
	n.logger.Info("node started", logkey.Address, n.Addr(), logkey.Node, n.cluster.Node().String(), logkey.End, n.store.LogEnd(), logkey.Took, time.Since(n.started).Round(time.Millisecond))
	return nil
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

// stopHard passes on the first error after which the node must stop.
func (n *Node) stopHard(err error) {
	n.fatal.Do(func() { n.opts.OnFatal(err) })
}

// Addr returns the host and port that HTTP is served on.
func (n *Node) Addr() string { return n.http.Addr().String() }

// URL returns where the node serves clients.
func (n *Node) URL() string {
	if n.https() {
		return "https://" + n.Addr()
	}
	return "http://" + n.Addr()
}

// PeerAddr returns the address of the port between nodes, empty for a node on its own.
func (n *Node) PeerAddr() string { return n.cluster.PeerAddr() }

// State returns the node's state.
func (n *Node) State() event.NodeState { return n.cluster.State() }

// Unready returns what /health/ready says: why the node should not be sent requests, nothing when
// it should.
func (n *Node) Unready() string { return n.api.Unready() }

// Done is closed when the node has been asked to stop by one of its users.
func (n *Node) Done() <-chan struct{} { return n.done }

// Close stops the node: answers in flight finish, the log and its checkpoints are flushed. It is
// idempotent. When a disk hangs it gives up with an error, and leaves the hanging operation alone.
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
			return fmt.Errorf("close node: the disk hangs: %s %s has been running for %s", op.Doing, op.File, since.Round(time.Second))
		}
	}
}

func (n *Node) close() (err error) {
	n.api.Drain()
	n.rpc.Drain()
	n.backupRuns.Cancel()
	// Nodes that copy from here must stop: the files must be closed before the log is.
	n.backups.Close()
	// While there is a leader to record it.
	n.scavenge.close()
	err = n.redact.close()
	n.activity.Close()
	// Before leadership goes: what runs by it must not begin what the next leader begins as well.
	n.leading.rest(n.running)
	// Leadership goes first: clients that are redirected from here on find a leader that stays.
	n.cluster.Leave()
	for _, s := range []*serve.Server{n.http, n.relayed} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	n.rpc.Close()
	n.leases.Close()
	// A place for backups that does not answer delays the end, but has not delayed the handing
	// over.
	n.backupRuns.Close()
	n.cancel()
	n.merges.Close()
	n.users.close()
	err = errors.Join(err, n.cluster.Close())
	n.owned.Wait()
	if log, none := n.store.Log(); none == nil {
		err = errors.Join(err, log.Close())
	}
	if n.web != nil {
		err = errors.Join(err, n.web.Close())
	}
	return errors.Join(err, n.secret.close())
}
