package replication_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats"
)

// samples are the metrics of a registry by name and labels.
func samples(r *stats.Registry) map[string]float64 {
	all := make(map[string]float64)
	r.Each(func(s stats.Sample) {
		key := s.Name
		for _, l := range s.Labels {
			key += fmt.Sprintf(" %s=%s", l.Name, l.Value)
		}
		if all[key] = s.Value; s.Histogram != nil {
			all[key] = float64(s.Histogram.Count)
		}
	})
	return all
}

// measured gives each node a registry of its own.
func measured(o *replication.ClusterOptions) { o.Replica.Stats = new(stats.Registry) }

// metrics are the metrics of a node.
func (n *node) metrics() map[string]float64 { return samples(replication.StatsOf(n.cluster.Load())) }

func TestConnectionsOfTheLeader(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory, measured)
	replica := h.add(inMemory, measured, func(o *replication.ClusterOptions) { o.ReadOnly = true })
	replica.start()
	eventually(t, "the replica is admitted", func() bool { return replica.state() == event.StateReadOnlyReplica })
	h.writes("s", 0, 20)
	h.alike()
	eventually(t, "the leader has a connection with each, and none lags", func() bool {
		endpoints := make(map[event.ID]string)
		for _, m := range replica.cluster.Load().View().Members {
			endpoints[m.Node] = fmt.Sprintf("%s:%d", m.ReplicationHost, m.ReplicationPort)
		}
		list := h.leader().cluster.Load().Connections()
		for _, c := range list {
			if at := endpoints[c.Node]; at != "" && c.Endpoint != at {
				t.Fatalf("%+v, its member is at %s", c, at)
			}
			if c.Connection.IsZero() || c.Sent == 0 || c.Received == 0 || c.SendQueue != 0 {
				return false
			}
		}
		return len(list) == 3
	})
	if list := replica.cluster.Load().Connections(); len(list) != 0 {
		t.Errorf("a node that does not lead shows %+v", list)
	}
	// A node whose disk hangs has entries waiting for it.
	_, release := replication.HoldStores(replica.cluster.Load())
	h.writes("s", 20, 40)
	eventually(t, "it lacks entries, and some of the log", func() bool {
		leader := h.leader()
		lag := leader.metrics()["annals_raft_peer_lag_bytes node="+replica.id()]
		for _, c := range leader.cluster.Load().Connections() {
			if c.Node == replica.cluster.Load().Node() {
				return c.SendQueue > 0 && lag > 0
			}
		}
		return false
	})
	close(release)
	h.alike()
}

func TestClusterMetrics(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, inMemory, measured)
	h.writes("s", 0, 20)
	h.alike()
	// A leader that was elected just now has not measured everything yet.
	testkit.Eventually(t, patience, func() error {
		leader := h.leader()
		return errors.Join(wrongStatistics(leader.metrics()), wrongFlushes(leader.cluster.Load().Flushes()))
	})
}

// wrongStatistics says what of a leader's metrics is not as it is in a cluster at rest.
func wrongStatistics(f map[string]float64) (err error) {
	if f["annals_cluster_members state=Leader"] != 1 || f["annals_cluster_members state=Follower"] != 2 {
		err = errors.New("the other nodes' states are not known")
	}
	for _, positive := range []string{
		"annals_raft_term", "annals_raft_last_index", "annals_raft_commit_index", "annals_raft_applied_index",
		"annals_raft_leader_changes_total", "annals_raft_elections_total", "annals_raft_log_store_seconds",
		"eventstore_writer_flush_size_max", "eventstore_writer_flush_duration_max_seconds",
		"eventstore_gossip_latency_seconds", "eventstore_gossip_processing_duration_seconds activity=pull-from-peer status=successful",
		"eventstore_gossip_processing_duration_seconds activity=request-from-peer status=successful",
		"annals_wire_connections", "annals_gossip_packets_sent_total",
		"eventstore_queue_processing_duration_seconds message_type=WritePrepares queue=StorageWriterQueue",
	} {
		if f[positive] <= 0 {
			err = errors.Join(err, fmt.Errorf("%s is %v", positive, f[positive]))
		}
	}
	for _, zero := range []string{
		"annals_raft_last_contact_seconds", "annals_catchup_fetches_under_way", "annals_catchup_resumes_total",
		"annals_queue_length queue=StorageWriterQueue",
	} {
		if v, ok := f[zero]; !ok || v != 0 {
			err = errors.Join(err, fmt.Errorf("%s is %v (%t)", zero, v, ok))
		}
	}
	return err
}

func wrongFlushes(f raftdisk.Flushes) error {
	if f.Count == 0 || f.LastSize > f.MaxSize || f.MeanSize > f.MaxSize || f.MaxSize == 0 ||
		f.LastTime > f.MaxTime || f.MeanTime > f.MaxTime || f.MaxTime == 0 || f.Queued != 0 {
		return fmt.Errorf("%+v", f)
	}
	return nil
}

func TestCatchUpMetrics(t *testing.T) {
	t.Parallel()
	h := startHouse(t, 3, onDisk, short, measured)
	n := h.others(h.leader())[0]
	last := n.raft().LastIndex()
	n.stop()
	h.outrun(n, last, "s", 0)
	for _, other := range h.running() {
		other.data.mu.Lock()
		other.data.packed = len(other.data.frames) / 2
		other.data.mu.Unlock()
	}
	n.start()
	h.alike()
	// What was fetched is there before it is counted, and what was sent is counted when it has
	// arrived.
	testkit.Eventually(t, patience, func() error {
		f := n.metrics()
		shipped := 0.0
		for _, other := range h.others(n) {
			shipped += other.metrics()["annals_catchup_shipped_bytes_total"]
		}
		bytes := f["annals_catchup_fetched_bytes_total"]
		if f["annals_catchup_fetched_files_total"] == 0 || bytes == 0 || bytes > shipped || f["annals_catchup_last_fetch_timestamp_seconds"] == 0 {
			return fmt.Errorf("%v files and %v bytes were fetched last at %v, %v bytes sent", f["annals_catchup_fetched_files_total"], bytes,
				f["annals_catchup_last_fetch_timestamp_seconds"], shipped)
		}
		return nil
	})
}
