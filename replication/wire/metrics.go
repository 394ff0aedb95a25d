package wire

import "github.com/annalsdb/annals/stats"

// Keys of log lines.
const (
	keyPeer    = "peer"
	keyKind    = "kind"
	keySkipped = "not-logged"
)

// metrics are the metrics of a port.
type metrics struct {
	accepted *stats.Counter
	refused  *stats.Counter
	failed   *stats.Counter
	dialled  *stats.Counter
	unmade   *stats.Counter
}

func newMetrics(r *stats.Registry, p *Port) *metrics {
	r.GaugeFunc("annals_wire_connections", "Connections between nodes, of either direction.",
		func() float64 { p.mu.Lock(); defer p.mu.Unlock(); return float64(len(p.conns)) })
	return &metrics{
		accepted: r.Counter("annals_wire_accepted_total", "Connections accepted from other nodes."),
		refused:  r.Counter("annals_wire_refused_total", "Connections of other nodes that were refused with a reason."),
		failed:   r.Counter("annals_wire_handshakes_failed_total", "Connections to the port between nodes that never got as far as an answer."),
		dialled:  r.Counter("annals_wire_dialled_total", "Connections made to other nodes."),
		unmade:   r.Counter("annals_wire_dial_errors_total", "Connections to other nodes that could not be made."),
	}
}
