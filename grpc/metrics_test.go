package grpcapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestMetrics: calls, events and subscriptions are counted.
func TestMetrics(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "counted", "t", "1", "2", "3")
	whole(t, conn, "", read(ofStream("counted", start)))
	// Methods that there are not have no lines of their own.
	for _, method := range []string{"/made.Up/A", "/event_store.client.streams.Streams/B"} {
		if err := conn.Invoke(t.Context(), method, &shared.Empty{}, &shared.Empty{}); status.Code(err) != codes.Unimplemented {
			t.Error(err)
		}
	}
	r := open(t, conn, "", read(ofStream("counted", end), subscribed))
	r.expect("confirmed", "caught-up")
	testkit.Eventually(t, 10*time.Second, func() error {
		answer, err := c.Do(t.Context(), testkit.Request{Path: "/metrics", Admin: true})
		if err != nil {
			return err
		}
		for _, line := range []string{
			"annals_grpc_sent_events_total 3", "annals_grpc_subscriptions 1", "annals_grpc_calls 1",
			`annals_grpc_calls_total{code="Unimplemented",method="unknown"} 2`,
			`annals_grpc_calls_total{code="OK",method="/event_store.client.streams.Streams/Read"} 1`,
		} {
			if !strings.Contains(string(answer.Body), line+"\n") {
				return fmt.Errorf("%s is missing", line)
			}
		}
		return nil
	})
}
