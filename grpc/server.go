package grpcapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/gossip"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/projections"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/serverfeatures"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // A client that compresses gets answers that are.
	"google.golang.org/grpc/encoding/proto"

	"github.com/annalsdb/annals/grpc/monitoring"
	"github.com/annalsdb/annals/grpc/operations"
	"github.com/annalsdb/annals/grpc/users"
)

// Sizes of messages, in bytes: 16 MiB of events fit into one of Streams.
const (
	maxMessage       = 17 << 20
	maxSmallMessage  = 4 << 20
	streamsPathBegin = "/event_store.client.streams.Streams/"
)

// Server answers calls. It starts no goroutine of its own: those of the http.Server and of grpc-go
// run it, and Drain ends calls that do not end by themselves.
type Server struct {
	opts    Options
	metrics *metrics

	// Streams takes larger messages than the others.
	streams, others *grpc.Server

	// draining is canceled by Drain: subscriptions end.
	draining context.Context
	drain    context.CancelFunc

	term leadership
}

// New returns a server. The options must be valid.
func New(o Options) *Server {
	o.ensureDefaults()
	s := &Server{opts: o, metrics: newMetrics(o.Stats)}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.streams, s.others = s.newServer(maxMessage), s.newServer(maxSmallMessage)
	s.register()
	return s
}

func (s *Server) newServer(maxReceived int) *grpc.Server {
	return grpc.NewServer(
		//lint:ignore SA1019 The way that takes its place gives a decompressor no bound.
		grpc.RPCDecompressor(unzip{}),
		grpc.MaxRecvMsgSize(maxReceived), grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(s.unary), grpc.StreamInterceptor(s.stream),
		grpc.ForceServerCodecV2(framing{encoding.GetCodecV2(proto.Name)}),
		grpc.WaitForHandlers(true), // A method may still read when its request is gone.
	)
}

// register registers the services that are served.
func (s *Server) register() {
	if s.opts.Membership != nil {
		gossip.RegisterGossipServer(s.others, &gossipService{s: s})
	}
	streams.RegisterStreamsServer(s.streams, &streamsService{s: s})
	if s.opts.Subscriptions != nil {
		persistent.RegisterPersistentSubscriptionsServer(s.others, &persistentService{s: s})
	}
	serverfeatures.RegisterServerFeaturesServer(s.others, &featuresService{s: s})
	if s.opts.Projections != nil {
		projections.RegisterProjectionsServer(s.others, &projectionsService{s: s})
	}
	if s.opts.Users != nil && !s.opts.Insecure { // In insecure mode there are no users to manage.
		users.RegisterUsersServer(s.others, &usersService{s: s})
	}
	if s.opts.Operations != nil {
		operations.RegisterOperationsServer(s.others, &operationsService{s: s})
	}
	if s.opts.Statistics != nil {
		monitoring.RegisterMonitoringServer(s.others, &monitoringService{s: s})
	}
}

// Handler returns a handler that answers the requests of gRPC and leaves the others to next.
func (s *Server) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isCall(r) {
			next.ServeHTTP(w, r)
			return
		}
		s.serve(w, r)
	})
}

// isCall reports whether a request is a call of gRPC.
func isCall(r *http.Request) bool {
	if r.ProtoMajor != 2 {
		return false
	}
	rest, ok := strings.CutPrefix(r.Header.Get("Content-Type"), "application/grpc")
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// serve authenticates the caller and lets grpc-go do the rest.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c, err := s.caller(w, r)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer c.claim.Release()
	defer c.sent.release()
	defer context.AfterFunc(s.draining, c.out.hurry)()
	server := s.others
	if strings.HasPrefix(r.URL.Path, streamsPathBegin) {
		server = s.streams
	}
	c.in.begin(r, &c.claim)
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, c))
	r.Body = c.in
	server.ServeHTTP(c.out, r)
	c.blame()
}

// Drain ends calls that do not end by themselves: subscriptions, batches once the writes in flight
// are answered, and calls whose client does not take the answer. Other calls are served as before.
// It does not wait and may be called more than once.
func (s *Server) Drain() { s.drain() }

// Close cuts off the calls in flight, and waits for their methods.
func (s *Server) Close() {
	s.drain()
	s.streams.Stop()
	s.others.Stop()
}
