package grpcapi

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

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
	ctx    context.Context // of the connection, and ends with it
	cancel context.CancelFunc
	s      *Server

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
	isInBlock  bool   // the header of a request is not complete
	of         *call  // which gets the payload; nil: it is not data of a call
	padLength  bool   // the next byte of the payload says how long the padding is
	padding    int    // bytes at the end of the payload that are not data
	besides    int    // bytes that the data takes besides, unless they are counted
	mustSettle *call  // must have room before more is read
	mustWake   *call  // may have something to receive, once grpc-go has it

	out outlook // of the writer alone

	unsent atomic.Int64 // bytes of messages that the client may not have taken

	mu     sync.Mutex       // guards the fields below, and isOver and isGone of calls
	calls  map[uint32]*call // whose stream grpc-go may have
	resets []byte           // frames that have grpc-go reset streams
	wakes  bool             // a deadline in the past ends a Read
}

func newConn(ctx context.Context, c net.Conn, s *Server) *conn {
	ctx, cancel := context.WithCancel(ctx)
	return &conn{Conn: c, ctx: ctx, cancel: cancel, s: s, preface: len(http2.ClientPreface), calls: map[uint32]*call{}}
}

// Read hands out what was read, and what comes.
func (c *conn) Read(p []byte) (n int, err error) {
	c.settle()
	for {
		if n = c.readReset(p); n > 0 {
			return n, nil
		}
		n, err = c.read(p)
		c.look(p[:n])
		if n > 0 || err == nil || !c.isWoken(err) {
			return n, err
		}
	}
}

func (c *conn) read(p []byte) (n int, err error) {
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
	return n, err
}

// reset has grpc-go reset the stream of a call: the client gets RST_STREAM, and messages that it
// did not take are dropped. grpc-go has no function for that, but it does so when a window grows
// by nothing (RFC 9113, 6.9).
func (c *conn) reset(of *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of.isGone || of.isReset {
		return
	}
	of.isReset = true
	c.resets = append(c.resets, 0, 0, windowUpdate, byte(http2.FrameWindowUpdate), 0)
	c.resets = binary.BigEndian.AppendUint32(c.resets, of.stream)
	c.resets = append(c.resets, make([]byte, windowUpdate)...)
	c.wakes = c.Conn.SetReadDeadline(past) == nil // Else reading fails.
}

// windowUpdate is the length of such a frame without its head. It is part of a format: do not
// change.
const windowUpdate = 4

var past = time.Unix(1, 0)

// readReset hands out a frame that resets a stream, between two frames of the client.
func (c *conn) readReset(p []byte) int {
	if c.preface > 0 || c.left > 0 || c.headRead > 0 || c.isInBlock {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := copy(p, c.resets)
	c.resets = c.resets[n:]
	return n
}

// isWoken reports whether reset has ended a Read, and lets the next one wait.
func (c *conn) isWoken(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wakes := c.wakes
	c.wakes = false
	return wakes && c.Conn.SetReadDeadline(time.Time{}) == nil
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
		if c.padLength { // grpc-go holds the padding with the data.
			c.padLength, c.padding = false, int(part[0])
			part = part[1:]
			c.left--
			c.besides += 1 + c.padding
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
	case http2.FrameContinuation:
		c.isInBlock = !http2.Flags(c.head[4]).Has(http2.FlagContinuationEndHeaders)
	case http2.FrameHeaders:
		c.isInBlock = !http2.Flags(c.head[4]).Has(http2.FlagHeadersEndHeaders)
		c.opened = stream
		c.mu.Lock()
		trailed := c.calls[stream]
		c.mu.Unlock()
		if trailed != nil { // The client sends no more after its trailers.
			trailed.in.end()
			c.wake(trailed)
		}
		c.openedLast = http2.Flags(c.head[4]).Has(http2.FlagHeadersEndStream)
	case http2.FrameRSTStream:
		c.gone(stream)
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

// data counts what a call has been sent. grpc-go drops what comes when the stream is gone.
func (c *conn) data(p []byte) {
	to := c.of
	c.s.metrics.received.Add(uint64(len(p)))
	besides := c.besides
	c.besides = 0
	c.mu.Lock()
	defer c.mu.Unlock()
	if to.isGone {
		return
	}
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
	switch err := to.claim.Settle(c.ctx); {
	case err == nil || c.ctx.Err() != nil:
	case to.ended.Err() != nil: // Its method takes no more.
		c.reset(to)
	default:
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

// over notes that the method of a call has returned, or will not be called. Until the end of the
// call is sent, grpc-go keeps what comes for it, and messages that the client does not take.
func (c *conn) over(of *call) {
	c.mu.Lock()
	of.isOver = true
	ended := of.isGone
	c.mu.Unlock()
	if ended {
		of.release()
	}
}

// gone notes that grpc-go has done with a stream.
func (c *conn) gone(stream uint32) {
	c.mu.Lock()
	of := c.calls[stream]
	delete(c.calls, stream)
	ended := false
	if of != nil {
		of.isGone = true
		ended = of.isOver
	}
	c.mu.Unlock()
	if ended {
		of.release()
	}
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
	c.out.look(c, p[:n])
	return n, err
}

// Close closes the connection, and with it all streams.
func (c *conn) Close() error {
	c.s.conns.remove(c)
	c.cancel()
	err := c.Conn.Close()
	c.each(func(one *call) { c.gone(one.stream) })
	return err
}

// outlook looks along what a connection has written: how much of each call, and which have ended.
type outlook struct {
	head     [frameHeader]byte
	headRead int
	left     int   // bytes of the payload that are still to come
	of       *call // whose data it is; nil: it is something else
}

func (o *outlook) look(c *conn, p []byte) {
	for len(p) > 0 {
		if o.left == 0 {
			n := copy(o.head[o.headRead:], p)
			p = p[n:]
			if o.headRead += n; o.headRead == frameHeader {
				o.begin(c)
			}
			continue
		}
		n := min(o.left, len(p))
		if o.of != nil {
			o.of.wrote(p[:n])
		}
		p, o.left = p[n:], o.left-n
	}
}

// begin begins a frame whose head is there.
func (o *outlook) begin(c *conn) {
	o.headRead, o.of = 0, nil
	o.left = int(o.head[0])<<16 | int(o.head[1])<<8 | int(o.head[2])
	stream := binary.BigEndian.Uint32(o.head[5:]) &^ (1 << 31)
	switch kind, flags := http2.FrameType(o.head[3]), http2.Flags(o.head[4]); {
	case kind == http2.FrameData:
		c.mu.Lock()
		o.of = c.calls[stream]
		c.mu.Unlock()
	case kind == http2.FrameRSTStream, kind == http2.FrameHeaders && flags.Has(http2.FlagHeadersEndStream):
		c.gone(stream)
	}
}

// wrote notes what was written of the messages of a call, of which the client can take no more
// than its window.
func (c *call) wrote(p []byte) {
	c.written.Add(int64(len(p)))
	for len(p) > 0 {
		if c.outRead < frameHead {
			n := copy(c.outHead[c.outRead:], p)
			p, c.outRead = p[n:], c.outRead+n
			if c.outRead < frameHead {
				return
			}
			c.outLeft = int(binary.BigEndian.Uint32(c.outHead[1:]))
		}
		n := min(c.outLeft, len(p))
		p, c.outLeft = p[n:], c.outLeft-n
		if c.outLeft == 0 {
			c.outRead = 0
			c.sent.took()
		}
	}
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
