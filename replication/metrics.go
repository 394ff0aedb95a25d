package replication

import (
	"time"

	"github.com/annalsdb/annals/replication/raftdisk"
	"github.com/annalsdb/annals/stats"
)

// Keys of log lines.
const (
	keyTerm     = "term"
	keyError    = "error"
	keyRequests = "requests"
	keyIndex    = "index"
	keyNode     = "node"
)

// sizeBounds are buckets for the size of entries, in bytes.
var sizeBounds = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}

// metrics are the figures of the write path and the manifests of one node.
type metrics struct {
	requests  *stats.Counter
	size      *stats.Histogram
	commit    *stats.Histogram
	barriers  *stats.Counter
	refused   *stats.Counter
	unknown   *stats.Counter
	busy      *stats.Counter
	timeouts  *stats.Counter
	snapshots *stats.Counter
	queue     *stats.Queue
	writes    *stats.Work // of that queue
	flushes   *raftdisk.FlushMeter
	erasures  *stats.Histogram
}

func newMetrics(r *stats.Registry) *metrics {
	queue := r.Queue("StorageWriterQueue", "", 1)
	return &metrics{
		queue: queue, writes: queue.Work("WritePrepares"), flushes: raftdisk.NewFlushMeter(r),
		requests: r.Counter("annals_replication_requests_total", "Requests that went into Raft entries."),
		size:     r.Histogram("annals_replication_entry_bytes", "Size of the Raft entries proposed.", sizeBounds),
		commit:   r.Histogram("annals_replication_commit_seconds", "Time from proposing a Raft entry until it was applied.", stats.DurationBounds),
		barriers: r.Counter("annals_replication_barriers_total", "Raft barriers proposed."),
		refused:  r.Counter("annals_replication_entries_refused_total", "Raft entries that the fence refused, decided again."),
		unknown:  r.Counter("annals_replication_outcomes_unknown_total", "Raft entries whose outcome stayed unknown."),
		busy:     r.Counter("annals_replication_writes_refused_total", "Writes refused because too many were waiting."),
		timeouts: r.Counter("annals_replication_writes_timed_out_total", "Writes whose time was over before they were answered."),
		erasures: r.Histogram("annals_replication_log_rewrite_stall_seconds",
			"How long writes waited while the Raft log was rewritten to erase what is applied.", stats.DurationBounds),
		snapshots: r.Counter("annals_replication_manifests_total", "Manifests written."),
	}
}

// watch registers the figures that are read when somebody asks.
func (r *Replica) watch(registry *stats.Registry) {
	registry.GaugeFunc("annals_replication_queue_requests", "Requests not yet answered.",
		func() float64 { n, _ := r.pipeline.queue.depth(); return float64(n) })
	registry.GaugeFunc("annals_replication_queue_bytes", "Data of the requests not yet answered.",
		func() float64 { _, n := r.pipeline.queue.depth(); return float64(n) })
	registry.GaugeFunc("annals_replication_leading", "1 while this node leads.", func() float64 {
		if l, _ := r.pipeline.lead(); l.Leading {
			return 1
		}
		return 0
	})
	r.watchRaft(registry)
}

func (m *metrics) entry(requests, bytes int) {
	m.requests.Add(uint64(requests))
	m.size.Observe(float64(bytes))
}

func (m *metrics) committed(took time.Duration) { m.commit.Observe(took.Seconds()) }

func (m *metrics) erased(stalled time.Duration) { m.erasures.Observe(stalled.Seconds()) }

// Stats are figures of the write path.
type Stats struct {
	Requests        uint64        // writes and confirmations that went into entries
	Entries         uint64        // entries proposed
	EntryBytes      uint64        // bytes of these entries
	Barriers        uint64        // barriers proposed
	Refused         uint64        // entries that the fence refused
	OutcomesUnknown uint64        // entries whose outcome stayed unknown
	Busy            uint64        // writes refused because the queue was full
	Timeouts        uint64        // writes whose callers did not wait for the answer
	CommitTime      time.Duration // sum over all entries, from proposal to applied
	SlowestCommit   time.Duration // of the last 16 to 20 seconds
	Manifests       uint64        // manifests written
	QueueRequests   int           // not yet answered
	QueueBytes      int64
}

func (m *metrics) stats() Stats {
	size, commit := m.size.Snapshot(), m.commit.Snapshot()
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return Stats{
		Requests: m.requests.Value(), Entries: size.Count, EntryBytes: uint64(size.Sum),
		Barriers: m.barriers.Value(), Refused: m.refused.Value(), OutcomesUnknown: m.unknown.Value(),
		Busy: m.busy.Value(), Timeouts: m.timeouts.Value(), Manifests: m.snapshots.Value(),
		CommitTime: seconds(commit.Sum), SlowestCommit: seconds(commit.RecentMax),
	}
}

// Flushes returns figures of storing entries in the Raft log.
func (r *Replica) Flushes() raftdisk.Flushes {
	f := r.metrics.flushes.Flushes()
	f.Queued, _ = r.pipeline.queue.depth()
	return f
}

// Flushes returns figures of storing entries in the Raft log, zeros while raft does not run.
func (c *Cluster) Flushes() raftdisk.Flushes {
	if r := c.replica.Load(); r != nil {
		return r.Flushes()
	}
	return raftdisk.Flushes{}
}
