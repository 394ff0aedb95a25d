package bench_test

import (
	"context"
	"net"
	"net/http/httptest"
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
)

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
	listener := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
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
	for _, batch := range []string{"0", "3"} {
		f.calls.Store(0)
		doc := measure(t, base, "append", "--batch", batch, "--grpc", "--count", "50", "--warmup", "0", "--workers", "2")
		if doc.Operations != 50 || doc.ErrorTotal != 0 || doc.Redirects != 2 || f.calls.Load() != 2 {
			t.Errorf("batch %s: operations %d, errors %v, redirects %d, calls %d", batch, doc.Operations, doc.Errors, doc.Redirects, f.calls.Load())
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
	server := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	gone := "http://" + server.Addr().String()
	check.Must(t, server.Close())
	for name, c := range map[string]struct{ base, args, want string }{
		"append without an answer":      {silent, "append --timeout 20ms", "timeout"},
		"batch without an answer":       {silent, "append --batch 3 --timeout 20ms", "timeout"},
		"tail without an answer":        {silent, "tail --timeout 20ms", "i/o timeout"},
		"append cut off":                {silent, "append --duration 10ms", "cut off"},
		"batch cut off":                 {silent, "append --batch 3 --duration 10ms", "cut off"},
		"a server without the services": {empty, "append", "status Unimplemented"},
		"batch without the services":    {empty, "append --batch 3", "status Unimplemented"},
		"over TLS":                      {secure, "append --tls-insecure", "status Unimplemented"},
		"an unknown certificate":        {secure, "append", "unknown authority"},
		"no server":                     {gone, "append", "status Unavailable"},
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
