package grpcapi

import (
	"context"
	"errors"
	"net/http"
	"net/textproto"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Keys of the metadata of calls.
const (
	keyRequiresLeader = "requires-leader"
	keyConnectionName = "connection-name"
	keyPushback       = "grpc-retry-pushback-ms"
)

// unnamed is the name of a connection that its client gave none.
const unnamed = "<unknown>"

// call has the facts about a call, besides the messages, that its method needs.
type call struct {
	conn   *conn
	stream uint32          // of the connection
	ended  context.Context // ends with the call, or when it is given up
	cancel context.CancelFunc
	// forgotten takes back that the end of the stream ends the call.
	forgotten func() bool

	first  access.Principal // the caller, as authenticated
	lease  *api.Lease       // of a call with many messages; nil: the call has one answer
	client context.Context  // of a call with many messages: ends when the client leaves
	from   string           // host:port of the client
	name   string           // that the client gave its connection
	leader bool             // the leader must answer
	in     inflow

	encoding string // of the client's messages

	claim api.Claim // of the memory of all requests: what was received
	sent  outgoing

	message int64 // of claim: the message that the method received last
	most    int64 // that one message can claim

	receiving, sending atomic.Bool // a message, at the moment

	isOver  bool // the method has returned, or will not be called
	isGone  bool // grpc-go has done with the stream
	isReset bool // grpc-go is to reset the stream

	// Of the connection's writer, but for written.
	written atomic.Int64 // bytes of messages
	outHead [frameHead]byte
	outRead int // of outHead
	outLeft int // bytes of the message that are not written

	// Of look alone.
	moved, taken          int64 // as of the last look at which it moved
	stalledIn, stalledOut int   // looks since then
}

// giveUp ends a call for the client to know why, if that is a problem.
func (c *call) giveUp(err error) {
	c.in.refuse(err)
	c.cancel()
}

// release gives back what the call holds when it has ended.
func (c *call) release() {
	c.claim.Release()
	c.sent.drop()
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

// tap makes the call of a stream. grpc-go calls it with the header, on the goroutine that reads the
// connection.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	p, _ := peer.FromContext(ctx)
	conn := p.AuthInfo.(peerOf).conn
	c := &call{conn: conn, from: conn.RemoteAddr().String(), name: unnamed, most: s.opts.Memory.Most()}
	c.sent = outgoing{conn: conn, taken: make(chan struct{}, 1)}
	c.in.limits, c.in.more = limitsOf(info.FullMethodName), make(chan struct{}, 1)
	c.claim.Use(s.opts.Memory)
	if name := info.Header.Get(keyConnectionName); len(name) > 0 && name[0] != "" {
		c.name = name[0]
	}
	if leader := info.Header.Get(keyRequiresLeader); len(leader) > 0 {
		c.leader = strings.EqualFold(leader[0], "true")
	}
	c.ended, c.cancel = context.WithCancel(context.WithValue(ctx, callKey{}, c))
	conn.open(c)
	// Should grpc-go end it before a method is called.
	c.forgotten = context.AfterFunc(ctx, func() { conn.over(c) })
	return c.ended, nil
}

// authenticate finds out who the caller is, before a message is read.
func (s *Server) authenticate(ctx context.Context, c *call, method string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	header := make(http.Header, len(md))
	for key, values := range md {
		header[textproto.CanonicalMIMEHeaderKey(key)] = values
	}
	r := (&http.Request{Method: http.MethodPost, URL: &url.URL{Path: method}, Header: header, RemoteAddr: c.from}).WithContext(joined{ctx, c.conn.ctx})
	who, err := s.opts.Access.Authenticate(r)
	if err == nil {
		c.first = who
		return nil
	}
	p := problemUnauthenticated
	switch {
	case errors.Is(err, event.ErrNotAuthorized):
		s.opts.RefusedLogins.Note(r)
	case errors.Is(err, event.ErrNotInitialized):
		p = problemNotInitialized
	default:
		p = s.problemOf(method, err)
	}
	s.note("", c.from, method, nil, p)
	return p
}

// joined is the context of a call with the values of its connection.
type joined struct {
	context.Context
	conn context.Context
}

func (j joined) Value(key any) any {
	if v := j.Context.Value(key); v != nil {
		return v
	}
	return j.conn.Value(key)
}

// around is around each method.
func (s *Server) around(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	c := callOf(ss.Context())
	c.forgotten()
	defer c.over()
	if stream, ok := grpc.ServerTransportStreamFromContext(ss.Context()).(interface{ RecvCompress() string }); ok {
		c.encoding = stream.RecvCompress()
	}
	if err := s.authenticate(ss.Context(), c, info.FullMethod); err != nil {
		if err == problemNotInitialized {
			ss.SetTrailer(metadata.Pairs(keyPushback, "-1"))
		}
		return err
	}
	if info.IsClientStream || info.IsServerStream {
		err = s.stream(srv, ss, c, info, handler)
	} else {
		err = s.unary(srv, ss, c, info, handler)
	}
	if p := c.in.refusal(); p != nil {
		return p
	}
	return err
}

// over is called when the method has returned. It waits for a client that is slow to take what it
// was sent: what grpc-go keeps for calls that have ended has no bound.
func (c *call) over() {
	c.sending.Store(true)
	c.sent.end(c.ended)
	c.cancel()
	c.conn.over(c)
}

// unary is around each method with one answer.
func (s *Server) unary(srv any, ss grpc.ServerStream, c *call, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	begun := time.Now()
	s.metrics.underWay.Add(1)
	defer func() { s.done(c, info.FullMethod, begun, true, err) }()
	one := &single{receiver: receiver{ss, c, true}}
	end, err := s.changing(changes[info.FullMethod])
	if err == nil {
		defer end()
		err = s.guard(info.FullMethod, func() error { return handler(srv, one) })
	}
	if err == nil {
		s.note(c.who().Login, c.from, info.FullMethod, one.request, nil)
		if err := one.SendMsg(one.answer); err != nil {
			return unsent(err)
		}
		return nil
	}
	p := s.problemOf(info.FullMethod, err)
	s.note(c.who().Login, c.from, info.FullMethod, one.request, p)
	ss.SetTrailer(p.trailers())
	return p.status().Err()
}

// single is the stream of a method with one answer.
type single struct {
	receiver
	request, answer any
}

func (o *single) RecvMsg(m any) error {
	err := o.receiver.RecvMsg(m)
	if err == nil {
		o.request = m
	}
	return err
}

// stream is around each method with many messages.
func (s *Server) stream(srv any, ss grpc.ServerStream, c *call, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	begun := time.Now()
	s.metrics.underWay.Add(1)
	defer func() { s.done(c, info.FullMethod, begun, !info.IsServerStream, err) }()
	c.client = ss.Context()
	c.lease = s.opts.Leases.Open(ss.Context(), c.first, nil)
	defer c.lease.Close()
	err = s.guard(info.FullMethod, func() error { return handler(srv, &receiver{ss, c, !info.IsClientStream}) })
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
func (s *Server) done(c *call, method string, begun time.Time, single bool, err error) {
	code := status.Code(err)
	s.metrics.end(method, code)
	if single && s.opts.Answered != nil {
		s.opts.Answered(time.Since(begun))
	}
	if !s.opts.LogCalls {
		return
	}
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
