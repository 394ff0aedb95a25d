package gossip

import "github.com/annalsdb/annals/stats"

const keySeed = "seed" // of log lines

// metrics are those of the gossip of one node.
type metrics struct {
	sent      *stats.Counter
	received  *stats.Counter
	dropped   *stats.Counter
	refused   *stats.Counter
	greeted   *stats.Histogram
	ungreeted *stats.Histogram
}

func newMetrics(r *stats.Registry) *metrics {
	// Package replication registers the same for the questions that nodes ask each other.
	took := func(status string) *stats.Histogram {
		return r.Histogram("eventstore_gossip_processing_duration_seconds", "Time taken to exchange with another node what the two are.",
			stats.DurationBounds, stats.Label{Name: "activity", Value: "push-to-peer"}, stats.Label{Name: "status", Value: status})
	}
	return &metrics{
		greeted: took("successful"), ungreeted: took("failed"),
		sent:     r.Counter("annals_gossip_packets_sent_total", "Gossip packets sent."),
		received: r.Counter("annals_gossip_packets_received_total", "Gossip packets received."),
		dropped:  r.Counter("annals_gossip_packets_dropped_total", "Gossip packets that were not sent: the other node took no more, or there was no connection to it in time."),
		refused:  r.Counter("annals_gossip_members_refused_total", "Announcements of nodes that do not belong to this cluster."),
	}
}
