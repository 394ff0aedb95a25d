package http1

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// bufferSize is that of a connection's buffer, and so bounds the header of a plain request, in
// bytes.
const bufferSize = 4 << 10

// state is what a connection does.
type state uint8

const (
	isNew     state = iota // no request has begun
	isIdle                 // between two requests
	isReading              // a request's header has begun
	isServing
	isEnding // it is not to read another request
)

// conn is a connection from its first byte to its end, or to the request that is not plain.
type conn struct {
	server  *Server
	net     net.Conn
	tls     *tls.ConnectionState
	remote  string
	ctx     context.Context
	answers context.Context // which finds w

	buf                  []byte
	from, to             int  // what of buf was received and not read yet
	isUsed, isBehindPost bool // there was a request before; it was a POST
	w                    response
	in                   mover
	out                  writer

	mu      sync.Mutex // guards the fields below
	state   state
	since   int64 // the tick at which it began
	isTaken bool  // all of the request was read, and the rest is to be watched
	// closed when the goroutine has ended that waits for the client to leave; nil: there is none
	watch  chan struct{}
	cancel context.CancelFunc

	untaken      int   // of the answers, when the client moved last; below 0: it took all
	untakenSince int64 // the tick of that
}

// errEnding is why no request is read of a connection that is ending.
var errEnding = errors.New("http1: the connection is ending")

func (c *conn) serve() {
	isHanded := false
	defer func() { // Also if a handler ends the goroutine.
		if !isHanded {
			_ = c.net.Close() // The error is ignored: the connection has ended.
			c.server.forget(c)
		}
	}()
	for {
		end, err := c.readHeader()
		if err != nil {
			break
		}
		var r *http.Request
		if end > 0 && !c.server.ByNetHTTP {
			r = parse(c.buf[c.from:end])
		}
		if r == nil {
			isHanded = true
			c.server.forget(c)
			if c.server.Calls != nil && c.tls == nil && bytes.HasPrefix(c.buf[c.from:c.to], []byte("PRI * HTTP/2.0\r\n")) {
				c.server.sort(&sorted{begunConn: begunConn{c.net, c.ctx, c.buf[c.from:c.to]}})
				return
			}
			c.server.handed.give(wrapConn(c))
			return
		}
		c.from = end
		// The server may have begun to close since it said that the connection stays. Idle first:
		// or it may begin in between.
		if !c.answer(r) || !c.enter(isIdle) || c.server.isClosing() {
			break
		}
	}
}

// readHeader waits for the header of the next request and returns where in the buffer it
// ends, 0 if it is too long to be plain.
func (c *conn) readHeader() (end int, err error) {
	if c.from > 0 {
		c.to = copy(c.buf, c.buf[c.from:c.to])
		c.from = 0
	}
	searched, skipped := 0, 0
	for {
		for ; c.isBehindPost && skipped < 4 && c.to > 0 && (c.buf[0] == '\r' || c.buf[0] == '\n'); skipped++ {
			c.to = copy(c.buf, c.buf[1:c.to]) // Old clients send an empty line after a body.
			searched = 0
		}
		if at := bytes.Index(c.buf[searched:c.to], []byte("\r\n\r\n")); at >= 0 {
			end = searched + at + len("\r\n\r\n")
			break
		}
		if c.to == len(c.buf) {
			break
		}
		if c.to > 0 && !c.enter(isReading) {
			return 0, errEnding
		}
		searched = max(0, c.to-len("\r\n\r"))
		n, err := c.net.Read(c.buf[c.to:])
		c.to += n
		if !c.isUsed && c.tls == nil && c.server.TLSClient != nil && isHello(c.buf[:c.to]) {
			c.refuseTLS()
			return 0, errEnding
		}
		if err == io.EOF && (skipped+c.to > 3 || c.to > 0 && !c.isUsed) {
			break // net/http says what is missing.
		}
		if err != nil {
			return 0, err
		}
	}
	if !c.enter(isServing) {
		return 0, errEnding
	}
	return end, nil
}

// isHello says whether a connection begins as one of TLS does: with a record of a handshake. No
// request does.
func isHello(begin []byte) bool { return len(begin) >= 2 && begin[0] == 22 && begin[1] == 3 }

const (
	// notTLS is what clients of TLS take for what it is: they name the protocol in their errors.
	notTLS = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
		"400 Bad Request: client sent a TLS handshake to a port without TLS"
	// refusalTime is how long a client may take to read a refusal.
	refusalTime = time.Second
)

// refuseTLS answers a handshake in words. What is unread of it is read, or else closing the
// connection would take the answer back.
func (c *conn) refuseTLS() {
	c.server.TLSClient(c.net.RemoteAddr())
	c.mu.Lock()
	if c.state != isEnding {
		_ = c.net.SetDeadline(time.Now().Add(refusalTime)) // It fails where writing fails, too.
	}
	c.mu.Unlock()
	if _, err := io.WriteString(c.net, notTLS); err != nil {
		return
	}
	half, ok := c.net.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.net, 64<<10) // The end of the client, or of the time.
}

// enter changes the state, unless the connection is ending.
func (c *conn) enter(s state) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == isEnding {
		return false
	}
	if c.state != s {
		if c.state != isNew || s != isReading { // A first header has its time from the beginning.
			c.since = c.server.tick.Load()
		}
		c.state = s
	}
	return true
}

// read reads what follows the header.
func (c *conn) read(p []byte) (int, error) {
	if c.from < c.to {
		n := copy(p, c.buf[c.from:c.to])
		c.from += n
		return n, nil
	}
	c.in.begin(c.server.tick.Load())
	n, err := c.net.Read(p)
	c.in.end(c.server.tick.Load(), n)
	return n, err
}

// write writes what the client takes, however slowly, unless it does not move.
func (c *conn) write(p []byte) (int, error) { return c.out.write(c.net, p) }

// writeAgain takes back the deadline that look set.
func (c *conn) writeAgain() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.net.SetWriteDeadline(time.Time{})
}

// taken notes that the request's body was read.
func (c *conn) taken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isTaken = true
}

// answer has a request answered and reports whether another may follow.
func (c *conn) answer(r *http.Request) (again bool) {
	w := &c.w
	ctx, cancel := context.WithCancel(c.answers)
	defer cancel()
	c.isUsed, c.isBehindPost = true, r.Method == http.MethodPost
	b := &body{c: c, left: r.ContentLength}
	c.in.rest()
	r.RemoteAddr, r.TLS, r.Body = c.remote, c.tls, http.NoBody
	if b.left > 0 {
		r.Body = b
	}
	c.mu.Lock()
	c.isTaken, c.cancel = b.left == 0, cancel
	c.mu.Unlock()
	w.begin(c, r, b)
	defer func() {
		if p := recover(); p != nil {
			again = false
			if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				stack := make([]byte, 64<<10)
				c.server.logf("http1: panic serving %v: %v\n%s", c.remote, p, stack[:runtime.Stack(stack, false)])
			}
		}
		// Or what it sends resets the connection, and answers on their way with it.
		_ = w.takeRest()
		w.release()
		_ = b.Close()
		again = c.unwatch() && again
	}()
	c.server.handler.ServeHTTP(w, r.WithContext(ctx))
	return w.finish() == nil && !w.isLast
}

// look is called by the server at each tick.
func (c *conn) look(tick int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := tick - c.since
	switch c.state {
	case isServing:
		if c.in.isStalled(tick) {
			_ = c.net.SetReadDeadline(past)
		}
		if c.out.isDue(tick) {
			c.out.cut.Store(true)
			_ = c.net.SetWriteDeadline(past)
		}
		if c.watch != nil && isLookedFor(age) && hasLeft(c.net) {
			c.cancel() // Bytes of its next request hide that from wait.
		}
		if age > 1 && c.isTaken && c.watch == nil {
			c.isTaken, c.watch = false, make(chan struct{})
			go c.wait(c.watch, c.cancel)
		}
	case isNew, isReading:
		if most := c.server.headerTicks; most > 0 && age > most {
			c.end()
		}
	case isIdle:
		if age%4 == 0 && c.leavesAnswer(tick) {
			c.end()
		}
		if most := c.server.idleTicks; most > 0 && age > most {
			c.end()
		}
	}
}

// leavesAnswer reports whether the client does not take the end of an answer, which only the system
// holds any more.
func (c *conn) leavesAnswer(tick int64) bool {
	if c.untakenSince < c.since {
		c.untaken, c.untakenSince = math.MaxInt, c.since
	}
	if c.untaken < 0 {
		return false
	}
	switch n := untaken(c.net); {
	case n == 0:
		c.untaken = -1
	case n <= c.untaken-leastMove:
		c.untaken, c.untakenSince = n, tick
	default:
		return tick-c.untakenSince > stallTicks
	}
	return false
}

// end wakes the connection's goroutine from reading, to close it.
func (c *conn) end() {
	c.state = isEnding
	_ = c.net.SetReadDeadline(past) // It fails only where reading fails as well.
}

// endUnlessServing ends the connection if it waits for a request, or the rest of one.
func (c *conn) endUnlessServing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != isServing {
		c.end()
	}
}

var past = time.Unix(1, 0)

// wait reads while a request is served: it cancels the request when the client leaves. The next
// bytes are the beginning of the next request.
func (c *conn) wait(done chan struct{}, cancel context.CancelFunc) {
	defer close(done)
	if c.from == c.to {
		c.from, c.to = 0, 0
	}
	if c.to == len(c.buf) {
		return
	}
	n, err := c.net.Read(c.buf[c.to:])
	c.to += n
	if err != nil && !isTimeout(err) {
		cancel()
	}
}

// leave cancels the request, if there is one: its client can no longer be answered.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil {
		c.cancel()
	}
}

// unwatch ends the waiting for the client to leave. It reports whether the connection can be read
// on.
func (c *conn) unwatch() bool {
	c.mu.Lock()
	watch := c.watch
	c.isTaken, c.watch = false, nil
	c.mu.Unlock()
	if watch == nil {
		return true
	}
	err := c.net.SetReadDeadline(past)
	<-watch
	return err == nil && c.net.SetReadDeadline(time.Time{}) == nil
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
