package grpcapi

import (
	"context"
	"fmt"
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
	v2 "github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v2/streams/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/grpc/monitoring"
	"github.com/annalsdb/annals/grpc/operations"
	"github.com/annalsdb/annals/grpc/query"
	"github.com/annalsdb/annals/grpc/users"
	"github.com/annalsdb/annals/internal/http1"
)

// Sizes of messages, in bytes: 16 MiB of events fit into one of Streams.
const (
	maxMessage      = 17 << 20
	maxSmallMessage = 4 << 20
	connWindow      = 4 << 20 // bytes that a client may send ahead on a connection
)

const (
	restingWorkers = 64               // goroutines that wait for further calls
	closePatience  = 10 * time.Second // for calls in flight when the server closes
)

// Server answers calls. Each connection has a goroutine that reads it, and each call one that runs
// its method; look, a goroutine of the server, ends calls whose client does not move.
type Server struct {
	opts     Options
	metrics  *metrics
	records  recorder
	services map[string]bool
	methods  map[string]*method
	conns    conns
	owned    sync.WaitGroup

	calls   chan *call    // to goroutines that wait for one
	resting chan struct{} // has an element for each of those
	closed  chan struct{} // is closed when no connection is left
	close   sync.Once

	patience time.Duration // of Close

	// draining is canceled by Drain: subscriptions end.
	draining context.Context
	drain    context.CancelFunc

	term leadership

	rooms sync.Pool // of *event.Room: memory of pages for the reads that run
}

// method is a method of a service.
type method struct {
	isClientStream, isServerStream bool

	service any
	handler grpc.StreamHandler
}

// New returns a server. The options must be valid. It must be closed.
func New(o Options) *Server {
	o.ensureDefaults()
	s := &Server{opts: o, metrics: newMetrics(o.Stats), services: map[string]bool{}, methods: map[string]*method{}, patience: closePatience,
		calls: make(chan *call), resting: make(chan struct{}, restingWorkers), closed: make(chan struct{})}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.records = recorder{to: s.opts.Activity, problemOf: s.problemOf}
	s.register()
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
	many := &manyService{s: s}
	v2.RegisterStreamsServiceServer(all, many)
	s.methods[v2.StreamsService_AppendRecords_FullMethodName].handler = many.records
	queries := &queryService{s: s}
	query.RegisterQueryServiceServer(all, queries)
	s.methods[query.QueryService_Append_FullMethodName].handler = queries.append
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

// methodOf finds the method of a path.
func (s *Server) methodOf(path string) (*method, *problem) {
	if m := s.methods[path]; m != nil {
		return m, nil
	}
	service, name, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case !ok:
		return nil, plain(codes.Unimplemented, fmt.Sprintf("malformed method name: %q", path))
	case s.services[service]:
		return nil, plain(codes.Unimplemented, fmt.Sprintf("unknown method %s for service %s", name, service))
	}
	return nil, plain(codes.Unimplemented, "unknown service "+service)
}

// Drain ends calls that do not end by themselves: subscriptions, batches once the writes in flight
// are answered, and calls whose client does not take the answer. Other calls are served as before.
// It does not wait and may be called more than once.
func (s *Server) Drain() { s.drain() }

// Close lets the calls in flight finish, cuts off those that take too long, and waits for their
// methods.
func (s *Server) Close() {
	s.drain()
	s.conns.close(s.patience)
	s.close.Do(func() { close(s.closed) })
	s.owned.Wait()
}
