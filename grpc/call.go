package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/h2"
	"github.com/annalsdb/annals/internal/logkey"
)

// Keys of the metadata of calls.
const (
	keyRequiresLeader = "requires-leader"
	keyConnectionName = "connection-name"
	keyWaitFor        = "es-wait-for"
	keyWaitAtMost     = "es-wait-at-most"
)

// unnamed is the name of a connection that its client gave none.
const unnamed = "<unknown>"

// call is a call, as its method and the reader of its connection see it.
type call struct {
	s      *Server
	conn   *conn
	stream *h2.Stream
	path   string
	header []hpack.HeaderField // of the answer
	ended  context.Context     // ends with the call, or when it is given up
	cancel context.CancelFunc

	first  access.Principal // the caller, as authenticated
	lease  *api.Lease       // of a call with many messages; nil: the call has one answer
	from   string           // host:port of the client
	name   string           // that the client gave its connection
	leader bool             // the leader must answer
	in     inflow

	waitFor    *string // the position that a read waits for; nil: it waits for none
	waitAtMost string

	encoding string // of the client's messages, and of ours

	claim api.Claim // of the memory of all requests: what was received

	streams, events int // of a write to several streams, for the log; 0: it is none

	message int64 // of claim: the message that the method received last
	most    int64 // that one message can claim

	receiving, sending atomic.Bool // a message, at the moment

	mu     sync.Mutex // guards the fields below, and claim against its end
	state  callState
	isGone bool // the stream has ended

	// Of look alone.
	moved, taken          int64 // as of the last look at which it moved
	stalledIn, stalledOut int   // looks since then
}

// callState is how far a call is.
type callState int

const (
	isNew     callState = iota // its method waits for what there is to receive
	isRunning                  // its method runs
	isOver                     // its method has returned
)

// giveUp ends a call for the client to know why, if that is a problem.
func (c *call) giveUp(err error) {
	c.in.refuse(err)
	c.cancel()
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
func (s *Server) needs(ctx context.Context, right access.Right, streams ...string) {
	callOf(ctx).lease.Require(func(ctx context.Context, who *access.Principal) error {
		for _, stream := range streams {
			if err := s.opts.Access.CheckStream(ctx, *who, stream, right); err != nil {
				return err
			}
		}
		return nil
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

// callContext is the context of a call.
type callContext struct {
	context.Context
	call *call
}

func (c callContext) Value(key any) any {
	if key == (callKey{}) {
		return c.call
	}
	return c.Context.Value(key)
}

// newCall returns the call of a stream.
func (s *Server) newCall(on *conn, stream *h2.Stream) *call {
	c := &call{s: s, conn: on, stream: stream, from: on.from, name: unnamed, most: s.opts.Memory.Most()}
	c.claim.Use(s.opts.Memory)
	return c
}

// begin begins a call, which may take so long; 0: as long as it likes.
func (c *call) begin(timeout time.Duration) {
	c.in.limits, c.in.more = limitsOf(c.path), make(chan struct{}, 1)
	c.in.news = !c.in.limits.gathers
	parent := callContext{c.conn.Context(), c}
	if timeout > 0 {
		c.ended, c.cancel = context.WithTimeout(parent, timeout)
	} else {
		c.ended, c.cancel = context.WithCancel(parent)
	}
}

// authenticate finds out who the caller is, before a message is received.
func (s *Server) authenticate(c *call) *problem {
	header := http.Header{}
	for _, f := range c.stream.Fields() {
		switch f.Name {
		case fieldContentType, fieldTimeout, fieldEncoding, keyRequiresLeader, keyConnectionName, keyWaitFor, keyWaitAtMost, "te", "user-agent":
		default: // It may be who the caller is.
			if !f.IsPseudo() {
				header.Add(f.Name, f.Value)
			}
		}
	}
	r := (&http.Request{Method: http.MethodPost, URL: &url.URL{Path: c.path}, Header: header, RemoteAddr: c.from}).WithContext(c.ended)
	err := s.guard(c.path, func() (err error) {
		c.first, err = s.opts.Authenticate(r)
		return err
	})
	if err == nil {
		return nil
	}
	p := problemUnauthenticated
	switch {
	case errors.Is(err, event.ErrNotAuthorized):
	case errors.Is(err, event.ErrNotInitialized):
		p = problemNotInitialized
	default:
		p = s.problemOf(c.path, err)
	}
	s.records.note("", c.from, c.path, nil, p)
	return p
}

// serve runs the method of a call, and answers.
func (s *Server) serve(c *call) {
	defer c.over()
	p := s.around(c)
	if refused := c.in.refusal(); refused != nil {
		p = refused
	}
	c.sending.Store(true)
	defer c.sending.Store(false)
	_ = c.stream.End(c.header, trailersOf(p)) // If it has ended, there is no one to tell.
}

// around is around each method. The problem is nil if there is none.
func (s *Server) around(c *call) *problem {
	m, p := s.methodOf(c.path)
	if p == nil && c.encoding != "" && c.encoding != encodingIdentity && c.encoding != encodingGzip {
		p = plain(codes.Unimplemented, fmt.Sprintf("grpc: Decompressor is not installed for grpc-encoding %q", c.encoding))
	}
	if refused := s.authenticate(c); refused != nil {
		return refused
	}
	if p != nil {
		m = &method{isClientStream: true, handler: func(any, grpc.ServerStream) error { return p }}
	}
	if m.isClientStream || m.isServerStream {
		return s.many(c, m)
	}
	return s.unary(c, m)
}

// unary is around each method with one answer.
func (s *Server) unary(c *call, m *method) (p *problem) {
	begun := time.Now()
	s.metrics.underWay.Add(1)
	defer func() { s.done(c, begun, true, p) }()
	one := &single{asked: asked{receiver: receiver{c, true}}, ctx: c.ended}
	// A write has a time of its own.
	if rule := c.operation().May.Rule; rule != api.ByStream && rule != api.ByStreams {
		var cancel context.CancelFunc
		timeout := s.opts.ReadTimeout
		if c.waitFor != nil {
			timeout += api.MaxWait
		}
		one.ctx, cancel = context.WithTimeout(c.ended, timeout)
		defer cancel()
	}
	if p := s.once(c, m, one); p != nil {
		return p
	}
	room, err := encode(one.answer.(proto.Message))
	if err == nil {
		err = c.write(room)
	}
	if err != nil {
		return s.problemOf(c.path, unsent(err))
	}
	return nil
}

// once runs a method with one answer. A change ends when it is recorded, whether or not the client
// takes the answer.
func (s *Server) once(c *call, m *method, one *single) (p *problem) {
	end, err := s.opts.Begin(c.operation().Recorded)
	if err == nil {
		defer end()
		err = s.guard(c.path, func() error { return m.handler(m.service, one) })
	}
	if err != nil {
		p = s.problemOf(c.path, err)
	}
	s.records.note(c.who().Login, c.from, c.path, one.request, p)
	return p
}

// asked is the stream of a method whose client sends one message. The method runs if the caller may
// do what it asks for, and on the leader if no other node can do it.
type asked struct {
	receiver
	request any
}

func (a *asked) RecvMsg(m any) error {
	err := a.receiver.RecvMsg(m)
	if err != nil {
		return err
	}
	a.request = m
	return a.s.admit(a.call)
}

// admit checks what is known without a look at the message.
func (s *Server) admit(c *call) error {
	op := c.operation()
	if op.May.Rule == api.ByLevel {
		if err := s.opts.Permit(c.ended, &op.May, c.who(), "", ""); err != nil {
			return err
		}
	}
	if !op.Leader {
		return nil
	}
	err := s.opts.Lead()
	if _, elsewhere := errors.AsType[*event.NotLeader](err); elsewhere && op == &api.ListGroups {
		// Clients that follow no leader here would take the answer for an empty list.
		return event.ErrNotReady
	}
	return err
}

// single is the stream of a method with one answer.
type single struct {
	asked
	ctx    context.Context
	answer any
}

func (o *single) Context() context.Context { return o.ctx }

// many is around each method with many messages.
func (s *Server) many(c *call, m *method) (p *problem) {
	begun := time.Now()
	s.metrics.underWay.Add(1)
	defer func() { s.done(c, begun, !m.isServerStream, p) }()
	c.lease = s.opts.Leases.Open(c.ended, c.first, nil)
	defer c.lease.Close()
	var stream grpc.ServerStream = &receiver{c, false}
	if !m.isClientStream {
		stream = &asked{receiver: receiver{c, true}}
	}
	err := s.guard(c.path, func() error { return m.handler(m.service, stream) })
	if err == nil {
		return nil
	}
	if refused := c.lease.Refused(); refused != nil {
		err = refused
	}
	return s.problemOf(c.path, err)
}

// guard turns a panic into an error.
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
func (s *Server) done(c *call, begun time.Time, single bool, p *problem) {
	code := codes.OK
	if p != nil {
		code = p.code
	}
	name := c.path
	if s.methods[name] == nil { // Callers could make up any number of them.
		name = "unknown"
	}
	s.metrics.end(name, code)
	if single && s.opts.Statistics != nil {
		s.opts.Statistics.Answered(time.Since(begun))
	}
	if !s.opts.LogRequests {
		return
	}
	line := []any{keyMethod, c.path, "code", code.String(), logkey.Took, time.Since(begun),
		logkey.Remote, c.from, logkey.Login, api.Printable(c.who().Login), "connection", api.Printable(c.name)}
	if c.streams > 0 {
		line = append(line, "streams", c.streams, logkey.Events, c.events)
	}
	s.opts.Logger.Info("call", line...)
}

// authorize returns event.ErrNotAuthorized unless the caller has a right to a stream.
func (s *Server) authorize(ctx context.Context, stream string, right access.Right) error {
	c := callOf(ctx)
	if err := c.check(ctx); err != nil {
		return err
	}
	return s.opts.Authorize(ctx, c.who(), stream, right)
}

// freshly makes sure that a read sees all that was acknowledged before it, if the caller wants the
// leader.
func (s *Server) freshly(ctx context.Context) error {
	if !callOf(ctx).leader {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.opts.ReadTimeout)
	defer cancel()
	return s.opts.LeadFreshly(ctx)
}

// await waits for the position that the call names, if it does. It ends with the call, and when the
// server is drained.
func (s *Server) await(ctx context.Context, of api.Awaited) error {
	c := callOf(ctx)
	if c.waitFor == nil {
		return nil
	}
	w, err := api.ParseWait(*c.waitFor, c.waitAtMost)
	if err != nil || of.Has(w) {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(event.ErrNotReady) })()
	if err := s.opts.Await(ctx, c.who(), c.from, &of, w); err != nil {
		return err
	}
	return c.check(ctx)
}
