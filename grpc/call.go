package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/stats"
)

// Keys of request headers as the header map holds them.
const (
	keyRequiresLeader = "Requires-Leader"
	keyConnectionName = "Connection-Name"
)

// keyStatus is the trailer that has the code of a call's end.
const keyStatus = "Grpc-Status"

// unnamed is the name of a connection that its client gave none.
const unnamed = "<unknown>"

// call has the facts about a call, besides the messages, that its method needs.
type call struct {
	first  access.Principal // the caller, as authenticated
	lease  *api.Lease       // of a call with many messages; nil: the call has one answer
	client context.Context  // of a call with many messages: ends when the client leaves
	from   string           // host:port of the client
	name   string           // that the client gave its connection
	leader bool             // the leader must answer
	out    *heldWriter
	in     *inflow
	claim  api.Claim // of the memory of all requests: what was received
	sent   outgoing

	message int64       // of claim: the message that the method received last
	most    int64       // that one message can claim
	unread  atomic.Bool // no method was called yet
}

// who is the caller, as it was last authenticated.
func (c *call) who() *access.Principal {
	if c.lease != nil {
		return c.lease.Who()
	}
	return &c.first
}

// check returns event.ErrNotAuthorized when the caller was refused since the call began. A caller
// who was not judged for a second is judged.
func (c *call) check(ctx context.Context) error {
	if c.lease == nil {
		return nil
	}
	return c.lease.Check(ctx)
}

// needs sets the right to a stream that the caller must have as long as the call lasts.
func (s *Server) needs(ctx context.Context, stream string, right access.Right) {
	callOf(ctx).lease.Require(func(ctx context.Context, who *access.Principal) error {
		return s.opts.Access.CheckStream(ctx, *who, stream, right)
	})
}

// linkRights resolves the links of a read whose targets its caller may see. It is an
// event.LinkReader.
type linkRights struct {
	ctx  context.Context // of the call
	s    *Server
	call *call
}

// MayRead reports whether the caller may see events of a stream.
func (l *linkRights) MayRead(stream string, info *event.StreamInfo) (bool, error) {
	return l.s.opts.Access.MayRead(l.ctx, l.call.who(), stream, info)
}

type callKey struct{}

// callOf returns the call of a method's context.
func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// take gives a caller a share of a kind, until it is released.
func (s *Server) take(ctx context.Context, k api.Kind) (release func(), err error) {
	c := callOf(ctx)
	return s.opts.Shares.Take(k, *c.who(), c.from)
}

// caller authenticates the caller of a request.
func (s *Server) caller(w http.ResponseWriter, r *http.Request) (*call, error) {
	who, err := s.opts.Access.Authenticate(r)
	if err != nil {
		return nil, err
	}
	c := &call{first: who, from: r.RemoteAddr, name: r.Header.Get(keyConnectionName), out: &heldWriter{ResponseWriter: w, sent: s.metrics.sent}, in: newInflow(&countedBody{r.Body, s.metrics.received})}
	c.claim.Use(s.opts.Memory)
	c.most = s.opts.Memory.Most()
	c.unread.Store(true)
	c.leader = strings.EqualFold(r.Header.Get(keyRequiresLeader), "true")
	if c.name == "" {
		c.name = unnamed
	}
	return c, nil
}

// refuse answers a call whose caller was not authenticated: a status without messages.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemUnauthenticated
	h := w.Header()
	switch {
	case errors.Is(err, event.ErrNotAuthorized):
		s.opts.RefusedLogins.Note(r)
	case errors.Is(err, event.ErrNotInitialized):
		p = problemNotInitialized
		h.Set("Grpc-Retry-Pushback-Ms", "-1")
	default:
		p = s.problemOf(r.URL.Path, err)
	}
	s.note("", r.RemoteAddr, r.URL.Path, nil, p)
	h.Set("Content-Type", "application/grpc")
	h["Content-Length"] = nil // net/http would add one, which clients take for a trailer.
	h.Set(keyStatus, strconv.Itoa(int(p.code)))
	h.Set("Grpc-Message", p.text)
	w.WriteHeader(http.StatusOK)
}

// blame makes what grpc-go says of messages that it cannot read the client's fault, which it is,
// and says why a message was not read.
func (c *call) blame() {
	if p := c.in.refusal(); p != nil {
		h := c.out.Header()
		h.Set(keyStatus, strconv.Itoa(int(p.code)))
		h.Set("Grpc-Message", p.text)
		return
	}
	h := c.out.Header()
	if h.Get(keyStatus) != strconv.Itoa(int(codes.Internal)) {
		return
	}
	// What grpc-go says of a message it says before the method hears of it: only its words tell.
	if text := h.Get("Grpc-Message"); c.unread.Load() || strings.HasPrefix(text, "grpc: ") || text == io.ErrUnexpectedEOF.Error() {
		h.Set(keyStatus, strconv.Itoa(int(codes.InvalidArgument)))
	}
}

// heldWriter holds flushes back while a method has more to send at once.
type heldWriter struct {
	http.ResponseWriter
	sent *stats.Counter
	held atomic.Bool

	mu      sync.Mutex // guards the fields below
	writing bool       // and the client may not take it
	hurried bool
}

// endPatience is how long a client may take nothing of an answer while the node ends.
const endPatience = time.Second

// hurry gives up a client that takes nothing, from now on.
func (w *heldWriter) hurry() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hurried = true
	if w.writing {
		w.bound(time.Now().Add(endPatience))
	}
}

// enter says whether something is being written.
func (w *heldWriter) enter(writing bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = writing
	switch {
	case w.hurried && writing:
		w.bound(time.Now().Add(endPatience))
	case w.hurried:
		w.bound(time.Time{})
	}
}

// bound resets the call at a time, unless that is zero. HTTP/2 always can.
func (w *heldWriter) bound(at time.Time) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(at)
}

func (w *heldWriter) Write(p []byte) (int, error) {
	w.enter(true)
	defer w.enter(false)
	n, err := w.ResponseWriter.Write(p)
	w.sent.Add(uint64(n))
	return n, err
}

// hold says whether another message follows the next one. What was held back goes out with the
// first message that nothing follows. grpc-go writes a message after Send has returned, so one may
// see what was said of the next: it goes out with that then.
func (w *heldWriter) hold(more bool) { w.held.Store(more) }

// Flush sends the bytes written so far, unless more follow.
func (w *heldWriter) Flush() {
	if !w.held.Load() {
		w.enter(true)
		defer w.enter(false)
		w.ResponseWriter.(http.Flusher).Flush()
	}
}

// unary is around each method with one answer.
func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	callOf(ctx).unread.Store(false)
	begun := time.Now()
	s.metrics.underWay.Add(1)
	defer func() { s.done(ctx, info.FullMethod, begun, true, err) }()
	end, err := s.changing(changes[info.FullMethod])
	if err == nil {
		defer end()
		err = s.guard(info.FullMethod, func() (err error) {
			resp, err = handler(ctx, req)
			return err
		})
	}
	var p *problem
	if err != nil {
		p = s.problemOf(info.FullMethod, err)
	}
	c := callOf(ctx)
	s.note(c.who().Login, c.from, info.FullMethod, req, p)
	if p == nil {
		return resp, nil
	}
	if err := grpc.SetTrailer(ctx, p.trailers()); err != nil {
		return nil, fmt.Errorf("set trailers: %w", err)
	}
	return nil, p.status().Err()
}

// stream is around each method with many messages.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	c := callOf(ss.Context())
	c.unread.Store(false)
	begun := time.Now()
	s.metrics.underWay.Add(1)
	defer func() { s.done(ss.Context(), info.FullMethod, begun, !info.IsServerStream, err) }()
	c.client = ss.Context()
	c.lease = s.opts.Leases.Open(ss.Context(), c.first, nil)
	defer c.lease.Close()
	err = s.guard(info.FullMethod, func() error { return handler(srv, &receiver{ss, c}) })
	if err == nil {
		return nil
	}
	if refused := c.lease.Refused(); refused != nil {
		err = refused
	}
	p := s.problemOf(info.FullMethod, err)
	ss.SetTrailer(p.trailers())
	return p.status().Err()
}

// guard turns a panic into an error: grpc-go runs methods on goroutines of its own, where
// nothing else would.
func (s *Server) guard(method string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.opts.Logger.Error("a call panicked", keyMethod, method, logkey.Error, p, "stack", string(debug.Stack()))
			err = problemInternal
		}
	}()
	return do()
}

// keyMethod is a key of log lines.
const keyMethod = "method"

// done tells of a call that has ended. One that has a single answer took the time that this took.
func (s *Server) done(ctx context.Context, method string, begun time.Time, single bool, err error) {
	code := status.Code(err)
	s.metrics.end(method, code)
	if single && s.opts.Answered != nil {
		s.opts.Answered(time.Since(begun))
	}
	if !s.opts.LogCalls {
		return
	}
	c := callOf(ctx)
	s.opts.Logger.Info("call", keyMethod, method, "code", code.String(), logkey.Took, time.Since(begun),
		logkey.Remote, c.from, logkey.Login, api.Printable(c.who().Login), "connection", api.Printable(c.name))
}

// require returns event.ErrNotAuthorized unless the caller reaches a level.
func (s *Server) require(ctx context.Context, level access.Level) error {
	return access.CheckLevel(*callOf(ctx).who(), level)
}

// authorize returns event.ErrNotAuthorized unless the caller has a right to a stream.
func (s *Server) authorize(ctx context.Context, stream string, right access.Right) error {
	if access.IsNobodys(stream, right) {
		return event.ErrNotAuthorized
	}
	c := callOf(ctx)
	if err := c.check(ctx); err != nil {
		return err
	}
	return s.opts.Access.CheckStream(ctx, *c.who(), stream, right)
}

// leading returns nil on the leader, else *event.NotLeader or event.ErrNotReady.
func (s *Server) leading() error {
	if address, ok := s.opts.Cluster.Redirect(); ok {
		return &event.NotLeader{Address: address}
	}
	if s.opts.Cluster.Role() != roleLeader {
		return event.ErrNotReady
	}
	return nil
}

// roleLeader is the leader's state as Cluster.Role has it.
const roleLeader = "leader"

// freshly makes sure that a read sees all that was acknowledged before it, if the caller wants the
// leader.
func (s *Server) freshly(ctx context.Context) error {
	if !callOf(ctx).leader {
		return nil
	}
	if err := s.leading(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReadTimeout)
	defer cancel()
	return s.opts.Cluster.Confirm(ctx)
}
