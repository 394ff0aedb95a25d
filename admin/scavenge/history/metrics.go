package history

import "github.com/annalsdb/annals/stats"

type metrics struct {
	written, dropped, failed *stats.Counter
	queued                   *stats.Gauge
}

func newMetrics(r *stats.Registry) metrics {
	return metrics{
		written: r.Counter("annals_scavenge_history_written_total", "Events and links of the history of scavenges that were written."),
		dropped: r.Counter("annals_scavenge_history_dropped_total",
			"Events of the history of scavenges that were left out because too many waited, or the node ended."),
		failed: r.Counter("annals_scavenge_history_failed_total", "Events and links of the history of scavenges that were given up after some tries."),
		queued: r.Gauge("annals_scavenge_history_queued", "Events of the history of scavenges that wait to be written."),
	}
}
