package relay_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/node/relay"
	"github.com/annalsdb/annals/replication/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRelayedConnectionsAreRenewed: however busy a connection between nodes is that carries
// requests of clients, it is replaced at its age, and none of the requests fails.
func TestRelayedConnectionsAreRenewed(t *testing.T) {
	t.Parallel()
	const renew = 2 * time.Second
	cluster := event.ID(uuid.New())
	open := func() *wire.Port {
		t.Helper()
		port, err := wire.Open(wire.Options{Bind: "127.0.0.1:0", Node: event.ID(uuid.New()), Cluster: func() event.ID { return cluster }, Renew: renew})
		check.Must(t, err)
		t.Cleanup(func() { check.NoError(t, port.Close()) })
		return port
	}
	to, from := open(), open()
	var mu sync.Mutex
	seen := map[string]bool{}
	server := relay.Serve(to, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen[r.RemoteAddr] = true
		w.WriteHeader(http.StatusNoContent)
	}), hclog.NewNullLogger())
	defer func() { check.NoError(t, server.Close()) }()
	client := from.HTTPTransport(wire.KindRelay)
	defer client.CloseIdleConnections()
	// A twentieth of the age: on a busy machine an answer may take longer to arrive.
	client.IdleConnTimeout = 0
	ask := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.Advertised()+"/", http.NoBody)
		check.Must(t, err)
		answer, err := client.RoundTrip(r)
		check.Must(t, err)
		check.Must(t, check.Err(io.Copy(io.Discard, answer.Body)))
		check.Must(t, answer.Body.Close())
	}
	connections := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
	for connections() < 2 {
		ask()
	}
}
