package grpcapi

import (
	"sync"

	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/stats"
)

// metrics are those of all calls since the node runs.
type metrics struct {
	registry                *stats.Registry
	underWay, subscriptions *stats.Gauge
	events, received, sent  *stats.Counter
	done                    sync.Map // of ended to *stats.Counter
}

// ended is what calls that have ended are counted by.
type ended struct {
	method string
	code   codes.Code
}

func newMetrics(r *stats.Registry) *metrics {
	return &metrics{
		registry:      r,
		underWay:      r.Gauge("annals_grpc_calls", "gRPC calls in flight, including subscriptions."),
		subscriptions: r.Gauge("annals_grpc_subscriptions", "gRPC subscriptions in flight, including persistent ones."),
		events:        r.Counter("annals_grpc_sent_events_total", "Events sent over gRPC."),
		received:      r.Counter("annals_grpc_received_bytes_total", "Bytes of messages received over gRPC, as they were compressed."),
		sent:          r.Counter("annals_grpc_sent_bytes_total", "Bytes of messages sent over gRPC, before they are compressed."),
	}
}

// end counts a call that has ended.
func (m *metrics) end(method string, code codes.Code) {
	m.underWay.Add(-1)
	key := ended{method, code}
	c, ok := m.done.Load(key)
	if !ok {
		c, _ = m.done.LoadOrStore(key, m.registry.Counter("annals_grpc_calls_total", "Calls of gRPC that have ended, by method and code.",
			stats.Label{Name: "method", Value: method}, stats.Label{Name: "code", Value: code.String()}))
	}
	c.(*stats.Counter).Inc()
}
