package relay

import (
	"io"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication/wire"
)

// TestClientAddress: the node that answers knows whose request it is, whatever the
// client says, and its handler sees nothing of how.
func TestClientAddress(t *testing.T) {
	cluster := event.ID(uuid.New())
	open := func() *wire.Port {
		t.Helper()
		port, err := wire.Open(wire.Options{Bind: "127.0.0.1:0", Node: event.ID(uuid.New()), Cluster: func() event.ID { return cluster }})
		check.Must(t, err)
		t.Cleanup(func() { check.NoError(t, port.Close()) })
		return port
	}
	to, from := open(), open()
	server := Serve(to, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RemoteAddr+r.Header.Get(headerClient))
	}), hclog.NewNullLogger())
	defer func() { check.NoError(t, server.Close()) }()
	client := from.HTTPTransport(wire.KindRelay)
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
	check.Must(t, err)
	r.RemoteAddr = "192.0.2.7:5000"
	r.Header.Set(headerClient, "10.0.0.1:1")
	answer, _, err := New(nil, 0, hclog.NewNullLogger()).send(t.Context(), client, r, to.Advertised(), http.NoBody)
	check.Must(t, err)
	got := check.Value(io.ReadAll(answer.Body)).Must(t)
	check.Equal(t, string(got), "192.0.2.7:5000")
	check.NoError(t, answer.Body.Close())
}
