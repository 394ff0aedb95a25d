package pipeline

import (
	"github.com/annalsdb/annals/stats"
)

const keyRequests = "requests" // of log lines

// sizeBounds are buckets for the size of entries, in bytes.
var sizeBounds = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}

type metrics struct {
	requests *stats.Counter
	size     *stats.Histogram
	commit   *stats.Histogram
	barriers *stats.Counter
	refused  *stats.Counter
	unknown  *stats.Counter
	busy     *stats.Counter
	timeouts *stats.Counter
	queue    *stats.Queue
	writes   *stats.Work // of that queue
}

func newMetrics(r *stats.Registry) *metrics {
	queue := r.Queue("StorageWriterQueue", "", 1)
	return &metrics{
		queue: queue, writes: queue.Work("WritePrepares"),
		requests: r.Counter("annals_replication_requests_total", "Requests that went into Raft entries."),
		size:     r.Histogram("annals_replication_entry_bytes", "Size of the Raft entries proposed.", sizeBounds),
		commit:   r.Histogram("annals_replication_commit_seconds", "Time from proposing a Raft entry until it was applied.", stats.DurationBounds),
		barriers: r.Counter("annals_replication_barriers_total", "Raft barriers proposed."),
		refused:  r.Counter("annals_replication_entries_refused_total", "Raft entries that the fence refused and that were decided again."),
		unknown:  r.Counter("annals_replication_outcomes_unknown_total", "Raft entries whose outcome stayed unknown."),
		busy:     r.Counter("annals_replication_writes_refused_total", "Writes refused because too many were waiting."),
		timeouts: r.Counter("annals_replication_writes_timed_out_total", "Writes that timed out before they were answered."),
	}
}

// watch registers the metrics that are read on request.
func (p *Pipeline) watch(registry *stats.Registry) {
	registry.GaugeFunc("annals_replication_queue_requests", "Requests not yet answered.",
		func() float64 { n, _ := p.Depth(); return float64(n) })
	registry.GaugeFunc("annals_replication_queue_bytes", "Data of the requests not yet answered.",
		func() float64 { _, n := p.Depth(); return float64(n) })
	registry.GaugeFunc("annals_replication_leading", "1 while this node leads.", func() float64 {
		if l, _ := p.Leadership(); l.Leading {
			return 1
		}
		return 0
	})
}

func (m *metrics) entry(requests, bytes int) {
	m.requests.Add(uint64(requests))
	m.size.Observe(float64(bytes))
}
