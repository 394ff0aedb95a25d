package replication

import (
	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats"
)

// metrics are those of the Raft log and the manifests of one node.
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
		snapshots: r.Counter("annals_replication_manifests_total", "Manifests written."),
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
