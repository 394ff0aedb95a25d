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
	greeted, ungreeted := Took(r, "push-to-peer")
	return &metrics{
		greeted: greeted, ungreeted: ungreeted,
		sent:     r.Counter("annals_gossip_packets_sent_total", "Gossip packets sent."),
		received: r.Counter("annals_gossip_packets_received_total", "Gossip packets received."),
		dropped:  r.Counter("annals_gossip_packets_dropped_total", "Gossip packets that were not sent: the other node took no more, or there was no connection to it in time."),
		refused:  r.Counter("annals_gossip_members_refused_total", "Announcements of nodes that do not belong to this cluster."),
	}
}

// Took registers how long status exchanges of one kind take. Clients of the interface know them as
// gossip: the status requests of nodes to each other count as well.
func Took(r *stats.Registry, activity string) (successful, failed *stats.Histogram) {
	of := func(status string) *stats.Histogram {
		return r.Histogram("eventstore_gossip_processing_duration_seconds", "Time taken to exchange the state of two nodes.",
			stats.DurationBounds, stats.Label{Name: "activity", Value: activity}, stats.Label{Name: "status", Value: status})
	}
	return of("successful"), of("failed")
}
