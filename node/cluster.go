package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/network"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats/latency"
)

// https says whether clients are served with TLS.
func (n *Node) https() bool { return n.security != nil && !n.config.DisableHttps }

func (n *Node) clusterOptions() replication.ClusterOptions {
	c := n.config
	store := raftdisk.BoltDB
	if c.RaftLogStore == config.LogStoreWal {
		store = raftdisk.Wal
	}
	host, port := n.clientEndpoint()
	o := replication.ClusterOptions{
		Replica: replication.Options{
			Options:  raftdisk.Options{Dir: c.Db, Files: n.files, LogStore: store, TrailingEntries: n.opts.TrailingEntries},
			InMemory: c.MemDb,
			OnFatal:  n.stopHard, Logger: n.logger, Stats: n.opts.Stats,
			ElectionTimeout: c.LeaderElectionTimeout, SnapshotEntries: n.opts.SnapshotEntries,
			Disk:    n.disk,
			OnFlush: func(took time.Duration) { n.store.latencies.Record(latency.WriterFlush, took) },
		},
		HangTimeout: c.DiskHangTimeout, ClockTolerance: c.ClockTolerance, Now: n.opts.Now,
		HasLog: n.hasLog, OpenLog: n.openDependencies,
		Size: c.ClusterSize, ReadOnly: c.ReadOnlyReplica, Surplus: c.UnsafeAllowSurplusNodes, Priority: c.NodePriority, Version: n.opts.Version,
		Bind:           endpoint(c.ReplicationIp.String(), c.ReplicationPort),
		Advertise:      endpoint(cmp.Or(c.ReplicationHostAdvertiseAs, c.ReplicationIp.String()), cmp.Or(c.ReplicationTcpPortAdvertiseAs, c.ReplicationPort)),
		Network:        n.opts.Network,
		Seeds:          n.seeds(),
		AskSeed:        n.askSeed,
		GossipInterval: c.GossipInterval, GossipTimeout: c.GossipTimeout, DeadRemoval: c.DeadMemberRemovalPeriod,
		ClientHost: host, ClientPort: port, ClientSecure: n.https(),
		CatchUpRate: int64(c.CatchUpThrottleMiB) << 20,
		Answer:      func(ctx context.Context, question []byte) (any, error) { return n.scavenge.answer(ctx, question) },
	}
	if n.opts.Seeds != nil {
		o.Seeds = n.opts.Seeds
	}
	// A free port is known only once it is bound.
	if c.ReplicationPort == 0 && c.ReplicationTcpPortAdvertiseAs == 0 {
		o.Advertise = ""
	}
	if c.ClockTolerance == 0 {
		o.ClockTolerance = -1
	}
	if c.CatchUpThrottleMiB == 0 {
		o.CatchUpRate = -1
	}
	if n.security != nil {
		o.Security = n.security
	}
	o.Secret = n.secret.Secret
	return o
}

// clientEndpoint is where clients reach this node.
func (n *Node) clientEndpoint() (host string, port int) {
	c := n.config
	port = c.NodePort
	if n.http != nil {
		if a, ok := n.http.Addr().(*net.TCPAddr); ok {
			port = a.Port
		}
	}
	host = cmp.Or(c.AdvertiseHostToClientAs, c.NodeHostAdvertiseAs, c.NodeIp.String())
	return host, cmp.Or(c.AdvertiseNodePortToClientAs, c.NodePortAdvertiseAs, port)
}

// endpoint is where clients reach this node, as host:port.
func (n *Node) endpoint() string { return endpoint(n.clientEndpoint()) }

func endpoint(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// seeds returns how the other nodes are found.
func (n *Node) seeds() func(context.Context) ([]string, error) {
	c := n.config
	if !c.ViaDNS() {
		return func(context.Context) ([]string, error) { return c.Seeds(), nil }
	}
	return func(ctx context.Context) ([]string, error) {
		found, err := network.Lookup(ctx, n.network, c.ClusterDns)
		if err != nil {
			return nil, fmt.Errorf("look up ClusterDns: %w", err)
		}
		addresses := make([]string, len(found))
		for i, ip := range found {
			addresses[i] = endpoint(ip.Unmap().String(), c.DNSPort())
		}
		return addresses, nil
	}
}

// Recover makes the node of a data directory the only voter of the cluster of its
// data, which the others then join: for restoring a whole cluster from copies. The
// node must not run; Config says where the data are and how the node is reached.
func Recover(o Options) error { return offline(o, replication.Recover) }

// TakenOver is what TakeOver tells.
type TakenOver = replication.TakenOver

// TakeOver does the same on a node that survived when a majority of the cluster is lost for good.
// Its consensus state is set aside, after the entries of the Raft log were added to the event log.
func TakeOver(o Options) (taken TakenOver, err error) {
	err = offline(o, func(c replication.ClusterOptions) (err error) {
		taken, err = replication.TakeOver(c)
		return err
	})
	return taken, err
}

// AcceptLoss has a node on its own start without the entries of its Raft log that are damaged, and
// returns a line that describes the result. The node must not run.
func AcceptLoss(o Options) (done string, err error) {
	err = offline(o, func(c replication.ClusterOptions) (err error) {
		done, err = replication.AcceptLoss(c)
		return err
	})
	return done, err
}

// offline does something to the data directory of a node that does not run.
func offline(o Options, do func(replication.ClusterOptions) error) (err error) {
	o.FS = vfs.OS
	c := *o.Config
	c.BackupTo, o.Config = "", &c // It backs nothing up.
	n := newNode(o)
	if err := n.build(); err != nil {
		return err
	}
	// Opening the log finishes an interrupted change of it.
	defer func() { err = errors.Join(err, n.Close()) }()
	if found, err := n.hasLog(); err != nil || !found {
		return errors.Join(err, fmt.Errorf("%s holds no event log", c.Db))
	}
	return do(n.clusterOptions())
}
