package replication

import (
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/replication/gossip"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats"
)

// shownStates are the states that members are counted by.
var shownStates = []event.NodeState{
	event.StateInitializing, event.StateDiscoverLeader, event.StateUnknown, event.StatePreReplica, event.StateCatchingUp,
	event.StateClone, event.StateFollower, event.StatePreLeader, event.StateLeader, event.StateShuttingDown, event.StateShutdown,
	event.StateReadOnlyLeaderless, event.StatePreReadOnlyReplica, event.StateReadOnlyReplica, event.StateResigningLeader,
}

// clusterMetrics are the metrics of a node's part in its cluster that outlive raft.
type clusterMetrics struct {
	registry *stats.Registry

	fetchedBytes  *stats.Counter
	fetchedFrames *stats.Counter
	fetchedFiles  *stats.Counter
	resumed       *stats.Counter
	healed        *stats.Counter
	shipped       *stats.Counter
	lastFetch     *stats.Gauge // Unix time
	hangs         *stats.Counter
	throttled     atomic.Int64 // nanoseconds

	latency            *stats.Histogram
	asked, failed      *stats.Histogram // questions to other nodes for their status
	answered, unserved *stats.Histogram // answers given, and those that were not
}

func newClusterMetrics(r *stats.Registry) *clusterMetrics {
	asked, failed := gossip.Took(r, "pull-from-peer")
	answered, unserved := gossip.Took(r, "request-from-peer")
	return &clusterMetrics{
		registry:      r,
		fetchedBytes:  r.Counter("annals_catchup_fetched_bytes_total", "Bytes of the log fetched from other nodes."),
		fetchedFrames: r.Counter("annals_catchup_fetched_frames_total", "Entries fetched from other nodes that this node lacked, without those in chunk files."),
		fetchedFiles:  r.Counter("annals_catchup_fetched_files_total", "Chunk files fetched from other nodes and taken into the log."),
		resumed:       r.Counter("annals_catchup_resumes_total", "Fetches of a chunk file that resumed where an earlier fetch had ended."),
		healed:        r.Counter("annals_chunks_healed_total", "Damaged chunk files that were replaced with data of other nodes."),
		shipped:       r.Counter("annals_catchup_shipped_bytes_total", "Bytes of the log sent to nodes that fetched them."),
		lastFetch:     r.Gauge("annals_catchup_last_fetch_timestamp_seconds", "When something was fetched from another node last, in seconds since 1970; 0: not since the start."),
		hangs:         r.Counter("annals_disk_hangs_total", "How often an operation on the disk did not return in time, and this node took no part in its cluster until it did."),
		latency: r.Histogram("eventstore_gossip_latency_seconds", "Time from asking another node for its status until its answer.",
			stats.DurationBounds),
		asked: asked, failed: failed, answered: answered, unserved: unserved,
	}
}

// watch registers the metrics that are read on request, once this node has its ports.
func (c *Cluster) watch() {
	m := c.metrics
	r := m.registry
	r.CounterFunc("annals_catchup_throttled_seconds_total", "Time that fetching waited in order not to slow down writes.",
		func() float64 { return time.Duration(m.throttled.Load()).Seconds() })
	flag := func(name, help string, is func() bool) {
		r.GaugeFunc(name, help, func() float64 {
			if is() {
				return 1
			}
			return 0
		})
	}
	flag("annals_disk_hung", "1 while an operation on the disk hangs and this node takes no part in its cluster.",
		func() bool { return c.disk.hanging() != nil })
	flag("annals_catchup_fetches_under_way", "1 while this node fetches what it lacks from others.", c.pull.active.Load)
	flag("annals_clock_wrong", "1 while this node's clock is known to be wrong.", func() bool { return c.Clock.Wrong() != nil })
	seconds := func(of *atomic.Int64) func() float64 {
		return func() float64 { return time.Duration(of.Load()).Seconds() }
	}
	r.GaugeFunc("annals_clock_offset_seconds", "How far this node's clock is ahead of the median of the members' clocks; negative: how far it is behind.", seconds(&c.Clock.offset))
	r.GaugeFunc("annals_clock_behind_log_seconds", "How far this node's clock is behind the newest event of the log; negative: how far it is ahead.", seconds(&c.Clock.behind))
	for _, state := range shownStates {
		r.GaugeFunc("annals_cluster_members", "Members of the cluster that this node knows, by their state.",
			func() float64 {
				n := c.peers.othersIn(state)
				if c.State() == state {
					n++
				}
				return float64(n)
			}, stats.Label{Name: "state", Value: string(state)})
	}
}

// watchPeer registers the metrics of another node, which may have been done before. They are zero
// unless this node leads and has heard that node lately.
func (m *clusterMetrics) watchPeer(c *Cluster, node event.ID) {
	label := stats.Label{Name: "node", Value: node.String()}
	leading := func(f func(peer) float64) func() float64 {
		return func() float64 {
			p, ok := c.peers.heard(node.String())
			if l, _ := c.Leadership(); !ok || !l.Leading {
				return 0
			}
			return f(p)
		}
	}
	m.registry.GaugeFunc("annals_raft_peer_lag_bytes", "On the leader: how much of the log another node had not applied when it was asked last.",
		leading(func(p peer) float64 { return float64(max(0, p.ours-p.status.Tail.End)) }), label)
	m.registry.GaugeFunc("annals_raft_peer_last_contact_seconds", "On the leader: time since another node answered a question.",
		leading(func(p peer) float64 { return time.Since(p.at).Seconds() }), label)
}

// watchRaft registers the metrics of raft that are read when they are asked for.
func (r *Replica) watchRaft(registry *stats.Registry) {
	gauge := func(name, help string, f func() uint64) {
		registry.GaugeFunc(name, help, func() float64 { return float64(f()) })
	}
	gauge("annals_raft_term", "Current Raft term.", r.raft.CurrentTerm)
	gauge("annals_raft_last_index", "Index of the Raft log's last entry.", r.raft.LastIndex)
	gauge("annals_raft_commit_index", "Index of the last entry known to be committed.", r.raft.CommitIndex)
	gauge("annals_raft_applied_index", "Index of the last entry handed to the state machine.", r.raft.AppliedIndex)
	gauge("annals_raft_snapshot_index", "Index of the last entry that the newest snapshot covers.", func() uint64 { index, _ := r.state.Snapshots.Newest(); return index })
	registry.GaugeFunc("annals_raft_last_contact_seconds", "Time since this node heard the leader; 0 on the leader.", func() float64 {
		if at := r.raft.LastContact(); !at.IsZero() && r.raft.State() != raft.Leader {
			return time.Since(at).Seconds()
		}
		return 0
	})
	changes := registry.Counter("annals_raft_leader_changes_total", "Leaders that this node saw.")
	elections := registry.Counter("annals_raft_elections_total", "Times that this node stood for election.")
	// The filter is all that is wanted: nothing is ever sent to the observer.
	r.raft.RegisterObserver(raft.NewObserver(nil, false, func(o *raft.Observation) bool {
		switch what := o.Data.(type) {
		case raft.LeaderObservation:
			if what.LeaderID != "" {
				changes.Inc()
			}
		case raft.RaftState:
			if what == raft.Candidate {
				elections.Inc()
			}
		}
		return false
	}))
}

// metrics are those of the Raft log and the snapshots of one node.
type metrics struct {
	snapshots *stats.Counter
	flushes   *raftdisk.FlushMeter
	erasures  *stats.Histogram
}

func newMetrics(r *stats.Registry) *metrics {
	return &metrics{
		flushes: raftdisk.NewFlushMeter(r),
		erasures: r.Histogram("annals_replication_log_rewrite_stall_seconds",
			"How long writes waited while the Raft log was rewritten to erase what is applied.", stats.DurationBounds),
		snapshots: r.Counter("annals_replication_manifests_total", "Raft snapshots written."),
	}
}

// Flushes returns statistics of storing entries in the Raft log, zeros while raft does not run.
func (c *Cluster) Flushes() raftdisk.Flushes {
	r := c.self.replica.Load()
	if r == nil {
		return raftdisk.Flushes{}
	}
	f := r.metrics.flushes.Flushes()
	f.Queued, _ = r.pipeline.Depth()
	return f
}
