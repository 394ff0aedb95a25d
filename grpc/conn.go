package grpcapi

import (
	"context"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/h2"
	"github.com/annalsdb/annals/internal/http1"
)

// conn is a connection of calls.
type conn struct {
	*h2.Conn
	from   string       // host:port of the client
	unsent atomic.Int64 // bytes of messages that wait for the client to take them
}

// Serve serves a connection whose first request is a call, from its first byte on. It does not
// block.
func (s *Server) Serve(ctx context.Context, nc net.Conn) {
	c := &conn{from: nc.RemoteAddr().String()}
	c.Conn = h2.New(ctx, nc, &h2.Options{
		MaxStreams: http1.MaxStreams, StreamWindow: http1.StreamWindow, ConnWindow: connWindow, MaxHeaderBytes: s.opts.MaxHeaderBytes,
		IdleTimeout: s.opts.IdleTimeout, PingAfter: s.opts.PingAfter, PingTimeout: s.opts.PingTimeout,
		Open: func(stream *h2.Stream) h2.Receiver { return s.open(c, stream) },
	})
	if !s.conns.add(c) {
		c.Close()
		return
	}
	s.owned.Go(func() {
		defer s.conns.remove(c)
		_ = c.Conn.Serve() // The client's connection has ended; there is no one to tell.
	})
}

// Fields of headers. They are part of the protocol: do not change.
const (
	fieldHTTPStatus  = ":status"
	fieldContentType = "content-type"
	fieldEncoding    = "grpc-encoding"
	fieldTimeout     = "grpc-timeout"
	fieldStatus      = "grpc-status"
	fieldMessage     = "grpc-message"
)

// Encodings of messages. A client that compresses gets answers that are compressed.
const (
	encodingGzip     = "gzip"
	encodingIdentity = "identity"
)

// open takes the call of a stream in, or refuses what is none. It returns nil then.
func (s *Server) open(on *conn, stream *h2.Stream) h2.Receiver {
	c := s.newCall(on, stream)
	httpMethod, contentType, limit, size := "", "", "", int64(0)
	for _, f := range stream.Fields() {
		size += int64(f.Size())
		switch f.Name {
		case ":method":
			httpMethod = f.Value
		case ":path":
			c.path = f.Value
		case fieldContentType:
			contentType = f.Value
		case fieldEncoding:
			c.encoding = f.Value
		case fieldTimeout:
			limit = f.Value
		case keyConnectionName:
			if f.Value != "" {
				c.name = f.Value
			}
		case keyRequiresLeader:
			c.leader = strings.EqualFold(f.Value, "true")
		case keyWaitFor:
			c.waitFor = &f.Value
		case keyWaitAtMost:
			c.waitAtMost = f.Value
		}
	}
	timeout, err := timeoutOf(limit)
	switch {
	case !http1.IsCall(contentType):
		return refuse(stream, "415", codes.InvalidArgument, "A connection of gRPC takes calls only: connect again")
	case httpMethod != http.MethodPost:
		return refuse(stream, "405", codes.InvalidArgument, "A call is a POST")
	case err != nil:
		return refuse(stream, "400", codes.InvalidArgument, err.Error())
	}
	c.header = []hpack.HeaderField{{Name: fieldHTTPStatus, Value: "200"}, {Name: fieldContentType, Value: contentType}}
	if c.encoding == encodingGzip {
		c.header = append(c.header, hpack.HeaderField{Name: fieldEncoding, Value: c.encoding})
	}
	c.begin(timeout)
	if size >= largeHeader {
		c.claim.Add(size)
	}
	return c
}

// largeHeader is from how many bytes on the header of a call is claimed: it stays as long as the
// call.
const largeHeader = 4 << 10

// timeoutOf reads how long a call may take; 0 if it has no limit (gRPC over HTTP/2).
func timeoutOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	unit, ok := timeoutUnits[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if !ok || err != nil || len(text) > 9 {
		return 0, invalid("%s is malformed: %.20q", fieldTimeout, text)
	}
	if n > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, nil
	}
	return max(1, time.Duration(n)*unit), nil
}

var timeoutUnits = map[byte]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// refuse answers a request that is not a call.
func refuse(stream *h2.Stream, httpStatus string, code codes.Code, text string) h2.Receiver {
	stream.Refuse(append([]hpack.HeaderField{{Name: fieldHTTPStatus, Value: httpStatus}, {Name: fieldContentType, Value: "application/grpc"}},
		statusFields(code, text)...))
	return nil
}

// Data takes what the client has sent next.
func (c *call) Data(p []byte) {
	c.s.metrics.received.Add(uint64(len(p)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != isOver && !c.isGone {
		c.in.note(p, &c.claim)
	}
}

// End notes that the client sends no more.
func (c *call) End() { c.in.end() }

// Turn has the method look at what has come, and waits until there is room for that.
func (c *call) Turn(ctx context.Context) {
	if c.in.hasNews() {
		c.wake()
	}
	if c.claim.IsSettled() {
		return
	}
	c.press() // What it receives makes room.
	if err := c.claim.Settle(ctx); err != nil && ctx.Err() == nil {
		c.in.refuse(err)
	}
}

// Gone notes that nothing more comes for the call, or is sent.
func (c *call) Gone() {
	c.cancel()
	c.mu.Lock()
	c.isGone = true
	ended := c.state != isRunning
	c.mu.Unlock()
	if ended {
		c.claim.Release()
		c.stream.Done() // Its method will not begin, if it has not.
	}
}

// press has the method receive what waits, though few.
func (c *call) press() {
	if c.in.press() {
		c.wake()
	}
}

// wake wakes the method, or has it begin.
func (c *call) wake() {
	c.mu.Lock()
	begins := c.state == isNew && !c.isGone
	if begins {
		c.state = isRunning
	}
	c.mu.Unlock()
	if begins {
		c.s.run(c)
		return
	}
	bell.Ring(c.in.more)
}

// over notes that the method has returned and its answer is on its way.
func (c *call) over() {
	c.cancel()
	c.mu.Lock()
	c.state = isOver
	ended := c.isGone
	c.mu.Unlock()
	if ended {
		c.claim.Release()
	}
	c.stream.Done()
}

// run runs the method of a call on a goroutine that has run others, if one is free: the stack of a
// new one has to grow.
func (s *Server) run(c *call) {
	select {
	case s.calls <- c:
	default:
		s.owned.Go(func() { s.work(c) })
	}
}

// work runs the methods of calls. So many goroutines wait for the next one.
func (s *Server) work(c *call) {
	for c != nil {
		s.serve(c)
		select {
		case s.resting <- struct{}{}:
		default:
			return
		}
		select {
		case c = <-s.calls:
		case <-s.closed:
			c = nil
		}
		<-s.resting
	}
}
