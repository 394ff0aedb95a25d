package gossip

import "github.com/annalsdb/annals/stats"

const keySeed = "seed" // of log lines

// metrics are the figures of the gossip of one node.
type metrics struct {
	sent      *stats.Counter
	received  *stats.Counter
	waited    *stats.Counter
	unknown   *stats.Counter
	forged    *stats.Counter
	replayed  *stats.Counter
	exchanges *stats.Counter
	failed    *stats.Counter
	refused   *stats.Counter
	greeted   *stats.Histogram
	ungreeted *stats.Histogram
}

func newMetrics(r *stats.Registry) *metrics {
	const dropped, droppedHelp = "annals_gossip_packets_dropped_total", "Gossip packets received and dropped."
	reason := func(text string) stats.Label { return stats.Label{Name: "reason", Value: text} }
	// Package replication registers the same for the questions that nodes ask each other.
	took := func(status string) *stats.Histogram {
		return r.Histogram("eventstore_gossip_processing_duration_seconds", "Time taken to exchange with another node what the two are.",
			stats.DurationBounds, stats.Label{Name: "activity", Value: "push-to-peer"}, stats.Label{Name: "status", Value: status})
	}
	return &metrics{
		greeted: took("successful"), ungreeted: took("failed"),
		sent:      r.Counter("annals_gossip_packets_sent_total", "Gossip packets sent."),
		received:  r.Counter("annals_gossip_packets_received_total", "Gossip packets received and accepted."),
		waited:    r.Counter("annals_gossip_packets_waited_total", "Gossip packets that could not be sent before a key was exchanged."),
		unknown:   r.Counter(dropped, droppedHelp, reason("unknown-key")),
		forged:    r.Counter(dropped, droppedHelp, reason("not-authentic")),
		replayed:  r.Counter(dropped, droppedHelp, reason("replayed")),
		exchanges: r.Counter("annals_gossip_hellos_total", "Hellos exchanged with other nodes."),
		failed:    r.Counter("annals_gossip_hellos_failed_total", "Hellos that were not answered, or refused."),
		refused:   r.Counter("annals_gossip_members_refused_total", "Announcements of nodes that do not belong to this cluster."),
	}
}
