package bench_test

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/onenode"
)

// startNode starts a node in memory for the time of the test.
func startNode(t *testing.T) string {
	t.Helper()
	base, stop, err := onenode.Start(t.Context())
	check.Must(t, err)
	t.Cleanup(func() {
		check.NoError(t, stop())
	})
	return base
}

func TestOverGRPC(t *testing.T) {
	base := startNode(t)
	const layout = " --streams 10 --events-per-stream 30 --size 64 --prepare"
	cases := []struct {
		name   string
		args   string
		ops    int64 // of 100 at most
		events int64 // -1: not fixed
		bytes  int64 // -1: not fixed
	}{
		{"append", "append --streams 10 --size 64", 100, 100, 6400},
		{"append checked", "append --streams 10 --size 64 --expected-version-checked", 100, 100, 6400},
		{"one connection", "append --streams 10 --size 64 --connections 1", 100, 100, 6400},
		{"batches", "append-batch --streams 10 --size 64 --batch 7", 100, 700, 44800},
		{"batches checked", "append-batch --streams 10 --size 64 --batch 7 --expected-version-checked", 100, 700, 44800},
		{"batch in parts", "append-batch --streams 10 --size 2000000 --batch 3 --count 2", 2, 6, 12_000_000},
		{"events", "read-event" + layout, 100, 100, 6400},
		{"pages", "read-page" + layout, 100, 2000, 128_000},
		{"stream", "tail --prepare --stream-events 235 --page 10 --size 32 --workers 1", 24, 235, 235 * 32},
		{"log", "tail --stream $all --page 10 --repeat", 100, -1, -1},
		{"visible", "visible --count 5 --workers 1 --pause 0 --size 64", 5, 5, 320},
		{"visible beside appends", "visible --duration 100ms --count 0 --workers 2 --pause 1ms --size 64", -1, -1, -1},
		{"mixed", "mixed --mix append=1,append-batch=1,read-event=1,read-page=1" + layout, 100, -1, -1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"--grpc", "--count", "100", "--workers", "4", "--quiet", "--user", "admin", "--password", "changeit",
				"--server-pid", strconv.Itoa(os.Getpid())}, strings.Fields(c.args)[1:]...)
			doc := measure(t, base, append([]string{strings.Fields(c.args)[0], "--warmup", "20ms"}, args...)...)
			if c.ops >= 0 && doc.Operations != c.ops || doc.Operations == 0 || doc.ErrorTotal != 0 {
				t.Errorf("operations %d, errors %v", doc.Operations, doc.Errors)
			}
			if c.events >= 0 && doc.Events != c.events || c.bytes >= 0 && doc.PayloadBytes != c.bytes {
				t.Errorf("events %d, want %d; bytes %d, want %d", doc.Events, c.events, doc.PayloadBytes, c.bytes)
			}
			l := doc.LatencyMs
			if !(l.P50 > 0 && l.P50 <= l.P99 && l.P99 <= l.Max && l.Max < doc.ElapsedSeconds*1000+1) {
				t.Errorf("latencies %+v in %g s", l, doc.ElapsedSeconds)
			}
			if !doc.GRPC || doc.OperationsPerSecond <= 0 || len(doc.CPU.ServerSecondsByPid) != 1 {
				t.Errorf("gRPC %t, rate %g, cpu %+v", doc.GRPC, doc.OperationsPerSecond, doc.CPU)
			}
		})
	}
}

// follower is a node that says of every append who leads.
type follower struct {
	streams.UnimplementedStreamsServer
	host, port string
	calls      atomic.Int64
}

func (f *follower) refuse(stream grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	if leader := md.Get("requires-leader"); len(leader) != 1 || leader[0] != "true" {
		return status.Errorf(codes.InvalidArgument, "requires-leader %q", leader)
	}
	f.calls.Add(1)
	stream.SetTrailer(metadata.Pairs("exception", "not-leader", "leader-endpoint-host", f.host, "leader-endpoint-port", f.port))
	return status.Error(codes.NotFound, "Leader info available")
}

func (f *follower) Append(stream streams.Streams_AppendServer) error { return f.refuse(stream) }

func (f *follower) BatchAppend(stream streams.Streams_BatchAppendServer) error {
	return f.refuse(stream)
}

// startFake serves fake gRPC services for the time of the test.
func startFake(t *testing.T, services streams.StreamsServer, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	server := grpc.NewServer(options...)
	streams.RegisterStreamsServer(server, services)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		check.NoError(t, <-ended)
	})
	return "http://" + listener.Addr().String()
}

func TestCallsGoToTheLeader(t *testing.T) {
	f := &follower{}
	var err error
	f.host, f.port, err = net.SplitHostPort(strings.TrimPrefix(startNode(t), "http://"))
	check.Must(t, err)
	base := startFake(t, f)
	for _, workload := range []string{"append", "append-batch"} {
		f.calls.Store(0)
		doc := measure(t, base, workload, "--grpc", "--count", "50", "--warmup", "0", "--workers", "2")
		if doc.Operations != 50 || doc.ErrorTotal != 0 || doc.Redirects != 2 || f.calls.Load() != 2 {
			t.Errorf("%s: operations %d, errors %v, redirects %d, calls %d", workload, doc.Operations, doc.Errors, doc.Redirects, f.calls.Load())
		}
	}
}

// hung is a node whose calls get no answer.
type hung struct {
	streams.UnimplementedStreamsServer
}

func (hung) Append(stream streams.Streams_AppendServer) error {
	<-stream.Context().Done()
	return nil
}

func (hung) BatchAppend(stream streams.Streams_BatchAppendServer) error {
	<-stream.Context().Done()
	return nil
}

func (hung) Read(_ *streams.ReadReq, stream streams.Streams_ReadServer) error {
	<-stream.Context().Done()
	return nil
}

func TestErrorsOfCalls(t *testing.T) {
	silent, empty := startFake(t, hung{}), startFake(t, streams.UnimplementedStreamsServer{})
	overTLS := httptest.NewTLSServer(nil)
	defer overTLS.Close()
	secure := "https" + strings.TrimPrefix(startFake(t, streams.UnimplementedStreamsServer{}, grpc.Creds(credentials.NewTLS(overTLS.TLS))), "http")
	server, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	gone := "http://" + server.Addr().String()
	check.Must(t, server.Close())
	for name, c := range map[string]struct{ base, args, want string }{
		"append without an answer":      {silent, "append --timeout 20ms", "timeout"},
		"batch without an answer":       {silent, "append-batch --timeout 20ms", "timeout"},
		"tail without an answer":        {silent, "tail --timeout 20ms", "i/o timeout"},
		"append cut off":                {silent, "append --duration 10ms", "cut off"},
		"batch cut off":                 {silent, "append-batch --duration 10ms", "cut off"},
		"a server without the services": {empty, "append", "status Unimplemented"},
		"batch without the services":    {empty, "append-batch", "status Unimplemented"},
		"over TLS":                      {secure, "append --tls-insecure", "status Unimplemented"},
		"an unknown certificate":        {secure, "append", "unknown authority"},
		"no server":                     {gone, "append", "status Unavailable"},
		"a mix":                         {gone, "mixed", "gRPC has no call for not-modified"},
		"a bare server":                 {gone, "append --bare", "HTTP alone"},
		"a path":                        {gone + "/db", "append", "a path is not possible"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(c.args)
			args = append([]string{args[0], "--grpc", "--node", c.base, "--count", "3", "--warmup", "0", "--workers", "1"}, args[1:]...)
			if _, _, err := execute(t, context.Background(), args...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
