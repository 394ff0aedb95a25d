package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/annalsdb/annals/internal/check"
)

// A client of gRPC that was idle for so long that its connection was closed calls again without an
// error.
func TestCallsBehindIdleness(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	calls := grpc.NewServer()
	healthpb.RegisterHealthServer(calls, health.NewServer())
	s := New(l, hclog.NewNullLogger())
	s.idle = 20 * time.Millisecond
	s.Serve(calls, nil)
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check.Must(t, err)
	client := healthpb.NewHealthClient(conn)
	for i := range 5 {
		if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if !conn.WaitForStateChange(t.Context(), connectivity.Ready) {
			t.Fatal("the connection stays")
		}
	}
	_ = conn.Close()
	calls.Stop()
	check.NoError(t, s.Close())
}

// Idle connections of HTTP/2 are closed. Pings of the client do not keep them, but an answer in
// flight does.
func TestIdleHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &dialled{make(chan net.Conn)}
		s := New(l, hclog.NewNullLogger())
		s.PingAfter, s.PingTimeout = 10*time.Second, 10*time.Second
		s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 20 { // As a live tail.
				time.Sleep(s.idle / 2)
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
			}
		}), nil)
		dials := 0
		transport := &http.Transport{Protocols: new(http.Protocols), DialContext: func(context.Context, string, string) (net.Conn, error) {
			dials++
			client, server := net.Pipe()
			l.conns <- server
			return client, nil
		}}
		transport.Protocols.SetUnencryptedHTTP2(true)
		for range 2 {
			resp := check.Value((&http.Client{Transport: transport}).Get("http://node")).Must(t)
			if text, err := io.ReadAll(resp.Body); len(text) != 20 || err != nil || resp.ProtoMajor != 2 {
				t.Errorf("%q, %v, %s", text, err, resp.Proto)
			}
			_ = resp.Body.Close()
			time.Sleep(2 * s.idle)
		}
		check.Equal(t, dials, 2, "connections")
		transport.CloseIdleConnections()
		check.NoError(t, s.Close())
	})
}
