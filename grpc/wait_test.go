package grpcapi_test

import (
	"regexp"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/onenode"
)

// TestWaitFor: each read that can wait for a position does.
func TestWaitFor(t *testing.T) {
	conn := startNode(t, onenode.Projections)
	take(t, conn, []step{
		{"admin", "projections.Projections/Create", `{"options":{"query":"fromStream('s').when({})","continuous":{"name":"p"}}}`, "{} OK"},
		{"admin", "persistent_subscriptions.PersistentSubscriptions/Create", `{"options":{"streamIdentifier":{"streamName":"cw=="},"groupName":"g","settings":{"namedConsumerStrategy":"RoundRobin","historyBufferSize":500,"liveBufferSize":500,"readBatchSize":20,"messageTimeoutMs":10000,"checkpointAfterMs":1000,"minCheckpointCount":1,"maxCheckpointCount":10}}}`, "{} OK"},
	})
	const stream = `"stream":{"streamIdentifier":{"streamName":"cw=="},"start":{}},"uuidOption":{"string":{}},"noFilter":{}`
	for name, c := range map[string]struct{ method, request string }{
		"stream":           {"streams.Streams/Read", `{"options":{` + stream + `,"count":"1"}}`},
		"log":              {"streams.Streams/Read", `{"options":{"all":{"end":{}},"readDirection":"Backwards","uuidOption":{"string":{}},"noFilter":{},"count":"1"}}`},
		"query":            {"annals.query.v1.QueryService/Read", `{"query":{"all":true},"limit":"1"}`},
		"head":             {"annals.query.v1.QueryService/Head", `{}`},
		"group":            {"persistent_subscriptions.PersistentSubscriptions/GetInfo", `{"options":{"streamIdentifier":{"streamName":"cw=="},"groupName":"g"}}`},
		"state":            {"projections.Projections/State", `{"options":{"name":"p"}}`},
		"result":           {"projections.Projections/Result", `{"options":{"name":"p"}}`},
		"statistics":       {"projections.Projections/Statistics", `{"options":{"name":"p"}}`},
		"subscription":     {"streams.Streams/Read", `{"options":{` + stream + `,"subscription":{}}}`},
		"query subscribed": {"annals.query.v1.QueryService/Subscribe", `{"query":{"all":true}}`},
	} {
		for _, w := range []struct{ position, atMost, want string }{
			{"0", "2s", ` OK$`},
			{"C:999999999/P:999999999", "20ms", `^DeadlineExceeded: Position 999999999 was not reached within 20ms: the (log of this node|group s::g|projection p) has come to [1-9]\d*$`},
			{"", "", `^InvalidArgument: '' is not a position to wait for\.`},
			{"0", "61s", `^InvalidArgument: '61s' is not how long to wait at most\.`},
		} {
			if w.position == "0" && w.atMost == "2s" && (name == "subscription" || name == "query subscribed") {
				continue // It would not end.
			}
			ctx := metadata.AppendToOutgoingContext(by(t.Context(), "admin"), "es-wait-for", w.position, "es-wait-at-most", w.atMost)
			got := invokeWith(ctx, t, conn, c.method, c.request)
			check.Equal(t, regexp.MustCompile(w.want).MatchString(got), true, name, got, "want", w.want)
		}
	}
}
