package grpcapi

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
)

// Sizes of the parts of a frame of HTTP/2, in bytes (RFC 9113, 4.1).
const (
	frameHeader = 9
	readBuffer  = 8 << 10
	leastData   = 128 // what the data of one frame counts at least: grpc-go holds each by itself
)

// conn is a connection of calls. grpc-go reads it frame by frame, and conn looks along: what a call
// has been sent is counted and claimed before its method receives it. grpc-go itself would take all
// that a client may send, and give every method the same limit.
type conn struct {
	net.Conn
	ctx context.Context // of the connection
	s   *Server

	// Of the reader alone.
	buf        [readBuffer]byte
	from, to   int // what of buf was read and not handed out
	preface    int // bytes of the client's preface that are not handed out yet
	head       [frameHeader]byte
	headRead   int
	left       int    // bytes of the payload that are not handed out yet
	opened     uint32 // the stream of the last HEADERS
	openedLast bool   // they were all of it
	isLast     bool   // the frame is the last of its stream
	of         *call  // which gets the payload; nil: it is not data of a call
	padLength  bool   // the next byte of the payload says how long the padding is
	padding    int    // bytes at the end of the payload that are not data
	besides    int    // bytes that the data takes besides, unless they are counted
	mustSettle *call  // must have room before more is read
	mustWake   *call  // may have something to receive, once grpc-go has it

	unsent  atomic.Int64 // bytes of messages that the client may not have taken
	written atomic.Int64 // bytes

	mu    sync.Mutex // guards calls
	calls map[uint32]*call
}

func newConn(ctx context.Context, c net.Conn, s *Server) *conn {
	return &conn{Conn: c, ctx: ctx, s: s, preface: len(http2.ClientPreface), calls: map[uint32]*call{}}
}

// Read hands out what was read, and what comes.
func (c *conn) Read(p []byte) (n int, err error) {
	c.settle()
	switch {
	case c.from < c.to:
		n = copy(p, c.buf[c.from:c.to])
		c.from += n
	case len(p) >= len(c.buf):
		c.wake(nil)
		n, err = c.Conn.Read(p)
	default:
		c.wake(nil)
		c.from = 0
		c.to, err = c.Conn.Read(c.buf[:])
		n = copy(p, c.buf[:c.to])
		c.from = n
	}
	c.look(p[:n])
	return n, err
}

// look looks for the frames in bytes that are handed out.
func (c *conn) look(p []byte) {
	n := min(c.preface, len(p))
	c.preface -= n
	for p = p[n:]; len(p) > 0; {
		if c.left == 0 {
			n := copy(c.head[c.headRead:], p)
			p = p[n:]
			if c.headRead += n; c.headRead == frameHeader {
				c.begin()
			}
			continue
		}
		n := min(c.left, len(p))
		part := p[:n]
		p = p[n:]
		if c.of == nil {
			c.left -= n
			continue
		}
		if c.padLength {
			c.padLength, c.padding = false, int(part[0])
			part = part[1:]
			c.left--
		}
		data := part[:max(0, min(len(part), c.left-c.padding))]
		c.left -= len(part)
		if len(data) > 0 {
			c.data(data)
		}
		c.endFrame()
	}
}

// begin begins a frame whose head is there.
func (c *conn) begin() {
	c.headRead = 0
	c.left = int(c.head[0])<<16 | int(c.head[1])<<8 | int(c.head[2])
	stream := binary.BigEndian.Uint32(c.head[5:]) &^ (1 << 31)
	c.of, c.padLength, c.padding = nil, false, 0
	c.isLast = false
	switch http2.FrameType(c.head[3]) {
	case http2.FrameHeaders:
		c.opened = stream
		c.mu.Lock()
		trailed := c.calls[stream]
		c.mu.Unlock()
		if trailed != nil { // The client sends no more after its trailers.
			trailed.in.end()
			c.wake(trailed)
		}
		c.openedLast = http2.Flags(c.head[4]).Has(http2.FlagHeadersEndStream)
	case http2.FrameData:
		c.mu.Lock()
		c.of = c.calls[stream]
		c.mu.Unlock()
		c.padLength = http2.Flags(c.head[4]).Has(http2.FlagDataPadded)
		c.besides = max(0, leastData-c.left)
		c.isLast = http2.Flags(c.head[4]).Has(http2.FlagDataEndStream)
		c.endFrame()
	}
}

// endFrame notes the end of a frame of data, if it has come.
func (c *conn) endFrame() {
	if c.left == 0 && c.isLast && c.of != nil {
		c.of.in.end()
		c.wake(c.of)
	}
}

// wake wakes the method of a call before anything is waited for, and of one before it at once.
// grpc-go has what it is woken for by then, and several messages take one waking.
func (c *conn) wake(next *call) {
	if c.mustWake != nil && c.mustWake != next {
		c.mustWake.in.wake()
	}
	c.mustWake = next
}

// data counts what a call has been sent.
func (c *conn) data(p []byte) {
	to := c.of
	c.s.metrics.received.Add(uint64(len(p)))
	besides := c.besides
	c.besides = 0
	to.claim.Add(int64(to.in.note(p, besides)))
	c.mustSettle = to
	c.wake(to)
}

// settle waits until there is room for what was read last.
func (c *conn) settle() {
	to := c.mustSettle
	if to == nil {
		return
	}
	c.mustSettle = nil
	if to.claim.IsSettled() {
		return
	}
	c.wake(nil)
	to.in.press() // What it receives makes room.
	if err := to.claim.Settle(to.ended); err != nil && to.ended.Err() == nil {
		to.in.refuse(err)
	}
}

// open takes a call in, on the stream whose HEADERS were handed out last.
func (c *conn) open(to *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to.stream = c.opened
	to.in.ended = c.openedLast
	c.calls[to.stream] = to
}

// end forgets a call, and gives back what it holds.
func (c *conn) end(of *call) {
	c.mu.Lock()
	delete(c.calls, of.stream)
	c.mu.Unlock()
	of.claim.Release()
}

// each calls f for all calls.
func (c *conn) each(f func(*call)) {
	c.mu.Lock()
	all := make([]*call, 0, len(c.calls))
	for _, one := range c.calls {
		all = append(all, one)
	}
	c.mu.Unlock()
	for _, one := range all {
		f(one)
	}
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// Close closes the connection.
func (c *conn) Close() error {
	c.s.conns.remove(c)
	return c.Conn.Close()
}

// handshake is where grpc-go would begin TLS, which is done.
type handshake struct{}

// peerOf is what the context of a call has of its connection.
type peerOf struct{ *conn }

func (peerOf) AuthType() string { return "annals" }

func (handshake) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, peerOf{c.(*conn)}, nil
}

func (handshake) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("grpc: this is not a client")
}

func (handshake) Info() credentials.ProtocolInfo            { return credentials.ProtocolInfo{} }
func (h handshake) Clone() credentials.TransportCredentials { return h }
func (handshake) OverrideServerName(string) error           { return nil }
