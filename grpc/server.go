package grpcapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/gossip"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/serverfeatures"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // A client that compresses gets answers that are.
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"

	"github.com/annalsdb/annals/grpc/monitoring"
	"github.com/annalsdb/annals/grpc/operations"
	"github.com/annalsdb/annals/grpc/users"
	"github.com/annalsdb/annals/http/http1"
)

// Sizes of messages, in bytes: 16 MiB of events fit into one of Streams.
const (
	maxMessage      = 17 << 20
	maxSmallMessage = 4 << 20
	connWindow      = 4 << 20 // bytes that a client may send ahead on a connection
)

// streamWorkers is how many goroutines stay for further calls. The stack of a new one has to grow
// in each call.
const streamWorkers = 64

const (
	closePatience   = 10 * time.Second // for calls in flight when the server closes
	greetingTimeout = 10 * time.Second // for the first frames, which have been read before
)

// Server answers calls. grpc-go reads and writes the connections; look, a goroutine of the server,
// ends calls whose client does not move.
type Server struct {
	opts    Options
	metrics *metrics
	server  *grpc.Server
	door    *http1.Handed // grpc-go takes its connections from it
	conns   conns
	owned   sync.WaitGroup

	patience time.Duration // of Close

	// draining is canceled by Drain: subscriptions end.
	draining context.Context
	drain    context.CancelFunc

	term leadership
}

// New returns a server. The options must be valid. It must be closed.
func New(o Options) *Server {
	o.ensureDefaults()
	s := &Server{opts: o, metrics: newMetrics(o.Stats), patience: closePatience, door: http1.NewHanded()}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.server = grpc.NewServer(
		grpc.Creds(handshake{}), grpc.InTapHandle(s.tap), grpc.UnknownServiceHandler(s.unknown),
		//lint:ignore SA1019 The way that takes its place has grpc-go unpack messages.
		grpc.RPCDecompressor(packed{}),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.ForceServerCodecV2(framing{encoding.GetCodecV2(proto.Name)}),
		grpc.WaitForHandlers(true), // A method may still read when its call is gone.
		grpc.MaxConcurrentStreams(http1.MaxStreams), grpc.MaxHeaderListSize(uint32(o.MaxHeaderBytes)),
		grpc.StaticStreamWindowSize(http1.StreamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.ReadBufferSize(0), // conn has a buffer.
		grpc.ConnectionTimeout(greetingTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: o.IdleTimeout, Time: o.PingAfter, Timeout: o.PingTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Nanosecond, PermitWithoutStream: true}),
	)
	s.register()
	s.owned.Go(func() { _ = s.server.Serve(s.door) }) // door fails only once it is closed.
	s.owned.Go(s.look)
	return s
}

// register registers the services that are served.
func (s *Server) register() {
	all := registrar{s}
	if s.opts.Membership != nil {
		gossip.RegisterGossipServer(all, &gossipService{s: s})
	}
	streams.RegisterStreamsServer(all, &streamsService{s: s})
	if s.opts.Subscriptions != nil {
		persistent.RegisterPersistentSubscriptionsServer(all, &persistentService{s: s})
	}
	serverfeatures.RegisterServerFeaturesServer(all, &featuresService{s: s})
	if s.opts.Projections != nil {
		projections.RegisterProjectionsServer(all, &projectionsService{s: s})
	}
	if s.opts.Users != nil && !s.opts.Insecure { // In insecure mode there are no users to manage.
		users.RegisterUsersServer(all, &usersService{s: s})
	}
	if s.opts.Operations != nil {
		operations.RegisterOperationsServer(all, &operationsService{s: s})
	}
	if s.opts.Statistics != nil {
		monitoring.RegisterMonitoringServer(all, &monitoringService{s: s})
	}
}

// Serve serves a connection whose first request is a call, from its first byte on. It does not
// block.
func (s *Server) Serve(ctx context.Context, nc net.Conn) {
	c := newConn(ctx, nc, s)
	s.conns.add(c)
	s.door.Give(c)
}

// Handler returns a handler that refuses calls on connections that began with another request, and
// leaves everything else to next. The connection ends, so that the client comes again.
func (s *Server) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || !http1.IsCall(r.Header.Get("Content-Type")) {
			next.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Connection", "close")
		h.Set("Content-Type", "application/grpc")
		h["Content-Length"] = nil // net/http would add one, which clients take for a trailer.
		h.Set("Grpc-Status", strconv.Itoa(int(codes.Unavailable)))
		h.Set("Grpc-Message", "A connection that began with another request takes no calls: connect again")
		w.WriteHeader(http.StatusOK)
	})
}

// unknown answers calls of methods that are not served.
func (s *Server) unknown(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	info := &grpc.StreamServerInfo{FullMethod: method, IsClientStream: true, IsServerStream: true}
	return s.around(nil, stream, info, func(any, grpc.ServerStream) error { return s.unknownMethod(method) })
}

func (s *Server) unknownMethod(method string) error {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if _, ok := s.server.GetServiceInfo()[service]; ok {
		return plain(codes.Unimplemented, fmt.Sprintf("unknown method %s for service %s", name, service))
	}
	return plain(codes.Unimplemented, "unknown service "+service)
}

// Drain ends calls that do not end by themselves: subscriptions, batches once the writes in flight
// are answered, and calls whose client does not take the answer. Other calls are served as before.
// It does not wait and may be called more than once.
func (s *Server) Drain() { s.drain() }

// Close lets the calls in flight finish, cuts off those that take too long, and waits for their
// methods.
func (s *Server) Close() {
	s.drain()
	timer := time.AfterFunc(s.patience, s.server.Stop)
	s.server.GracefulStop()
	timer.Stop()
	s.server.Stop() // Waits for the methods.
	s.owned.Wait()
}
