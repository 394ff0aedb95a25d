package memory

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
)

// segment is data on its way, or that wait for the reader; or the end of the stream.
type segment struct {
	data []byte
	end  bool
	at   time.Time // of arrival; zero while a cut holds it back
}

// stream is one direction of a connection. The lock of the network guards it.
type stream struct {
	age    int
	path   *path // that data take
	reader *conn
	queue  []segment
	// bytes in queue, and those read of which the sender does not know yet because the way back is
	// blocked
	unread, unknown int
	last            time.Time // arrival of the last segment: none overtakes
	ended           bool      // the writer has sent the end
	reset           bool      // a reset is on its way, or is held back

	readable, writable chan struct{} // closed when that may have changed; nil while no one waits
}

func sortByAge(list []*stream) {
	slices.SortFunc(list, func(a, b *stream) int { return cmp.Compare(a.age, b.age) })
}

// conn is one end of a connection.
type conn struct {
	net           *Network
	endpoint      *Endpoint
	peer          *conn
	in, out       *stream
	local, remote *net.TCPAddr

	// under the lock of the network
	readBy, writeBy time.Time
	closed          bool
	abrupt          bool  // Close sends a reset
	failed          error // of every later call
}

// connect makes a connection, under the lock.
func (n *Network) connect(e *Endpoint, l *listener, from *net.TCPAddr, out, in *path) *conn {
	client := &conn{net: n, endpoint: e, local: from, remote: l.addr}
	server := &conn{net: n, endpoint: l.endpoint, local: l.addr, remote: from, peer: client}
	client.peer = server
	there, back := &stream{age: n.ports, path: out, reader: server}, &stream{age: n.ports, path: in, reader: client}
	client.out, client.in, server.out, server.in = there, back, back, there
	out.streams[there], in.streams[back] = struct{}{}, struct{}{}
	e.conns[client], l.endpoint.conns[server] = struct{}{}, struct{}{}
	return client
}

func (c *conn) String() string { return fmt.Sprintf("%s to %s", c.local, c.remote) }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) failure(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if n, ok := errors.AsType[syscall.Errno](err); ok {
		err = os.NewSyscallError(op, n)
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	return n, c.failure("read", err)
}

func (c *conn) read(p []byte) (int, error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case expired(c.readBy, now):
			return 0, os.ErrDeadlineExceeded
		}
		n, end, next := c.in.take(p, now)
		switch {
		case n > 0, len(p) == 0:
			return n, nil
		case c.failed != nil:
			return 0, c.failed
		case end:
			return 0, io.EOF
		}
		c.wait(&c.in.readable, now, next, c.readBy)
	}
}

func expired(by, now time.Time) bool { return !by.IsZero() && !now.Before(by) }

// wait gives the lock away until the channel is closed or one of two times has come, zero for none.
func (c *conn) wait(change *chan struct{}, now, one, other time.Time) {
	if *change == nil {
		*change = make(chan struct{})
	}
	changed := *change
	if one.IsZero() || !other.IsZero() && other.Before(one) {
		one = other
	}
	c.net.mu.Unlock()
	defer c.net.mu.Lock()
	if one.IsZero() {
		<-changed
		return
	}
	t := time.NewTimer(one.Sub(now))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}

func wake(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// take moves what has arrived to p. It returns when the next segment arrives, if that is known.
func (s *stream) take(p []byte, now time.Time) (n int, end bool, next time.Time) {
	for len(s.queue) > 0 && n < len(p) {
		first := &s.queue[0]
		if first.at.IsZero() || first.at.After(now) {
			next = first.at
			break
		}
		if first.end {
			end = true
			break
		}
		k := copy(p[n:], first.data)
		n += k
		if first.data = first.data[k:]; len(first.data) == 0 {
			s.queue[0] = segment{}
			s.queue = s.queue[1:]
		}
	}
	if n == 0 {
		return n, end, next
	}
	s.unread -= n
	if s.reader.out.path.blocked() {
		s.unknown += n
	} else {
		wake(&s.writable)
	}
	return n, end, next
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.write(p)
	return n, c.failure("write", err)
}

func (c *conn) write(p []byte) (n int, err error) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case c.closed:
			return n, net.ErrClosed
		case c.failed != nil:
			return n, c.failed
		case c.out.ended:
			return n, syscall.EPIPE
		case expired(c.writeBy, now):
			return n, os.ErrDeadlineExceeded
		case n == len(p):
			return n, nil
		}
		if room := c.net.o.Buffer - c.out.unread - c.out.unknown; room > 0 {
			k := min(room, len(p)-n)
			c.net.send(c.out, segment{data: slices.Clone(p[n : n+k])}, now)
			n += k
			continue
		}
		c.wait(&c.out.writable, now, time.Time{}, c.writeBy)
	}
}

// send puts a segment on its way.
func (n *Network) send(s *stream, g segment, now time.Time) {
	switch {
	case s.reset:
		return // Nothing comes after it.
	case s.reader.closed:
		// No one will read it: the other system says so.
		if len(g.data) > 0 {
			n.sendReset(s.reader, now)
		}
		return
	}
	s.unread += len(g.data)
	n.schedule(s, &g, now)
	s.queue = append(s.queue, g)
	wake(&s.readable)
}

// schedule says when a segment arrives that is sent now.
func (n *Network) schedule(s *stream, g *segment, now time.Time) {
	p := s.path
	if p.blocked() {
		g.at = time.Time{}
		return
	}
	begin := now
	if p.link.Bandwidth > 0 {
		if p.free.After(begin) {
			begin = p.free
		}
		begin = begin.Add(time.Duration(float64(len(g.data)) / float64(p.link.Bandwidth) * float64(time.Second)))
		p.free = begin
	}
	g.at = begin.Add(n.passes(p) + n.resend(p, len(g.data)))
	if g.at.Before(s.last) {
		g.at = s.last
	}
	s.last = g.at
}

// hold keeps back what has not arrived.
func (s *stream) hold(now time.Time) {
	for i := range s.queue {
		if s.queue[i].at.After(now) {
			s.queue[i].at = time.Time{}
		}
	}
}

// forget loses what has not arrived, and ends the connection once its reader can learn of it.
func (s *stream) forget() {
	now := time.Now()
	for i := range s.queue {
		if at := s.queue[i].at; at.IsZero() || at.After(now) {
			s.queue = s.queue[:i]
			break
		}
	}
	s.reset = true
}

// proceed lets a stream continue after a cut: its sender tries again after a pause.
func (n *Network) proceed(s *stream) {
	now := time.Now()
	try := now.Add(time.Duration(n.rng.Int64N(int64(firstResend))))
	s.last = try
	for i := range s.queue {
		if s.queue[i].at.IsZero() {
			n.schedule(s, &s.queue[i], try)
		}
	}
	if s.reset {
		n.sendReset(s.reader.peer, try)
	}
	// What the other end has sent, and was read meanwhile.
	s.reader.out.drained()
	wake(&s.readable)
}

// drained tells the sender of what was read while the way back was blocked.
func (s *stream) drained() {
	s.unknown = 0
	wake(&s.writable)
}

// sendReset sends a reset after all that was sent before.
func (n *Network) sendReset(c *conn, now time.Time) {
	s := c.out
	s.reset = true
	if s.path.blocked() {
		return // It is sent when it can pass.
	}
	var g segment
	n.schedule(s, &g, now)
	time.AfterFunc(time.Until(g.at), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !s.path.blocked() {
			s.reader.fail(syscall.ECONNRESET)
		}
	})
}

// fail ends a connection for its process; data that it had not read are lost.
func (c *conn) fail(err error) {
	if c.failed != nil || c.closed {
		return
	}
	c.net.o.Trace(c.endpoint.host.name, fmt.Sprintf("the connection %s failed: %v", c, err))
	c.failed = err
	c.drop()
}

// drop forgets what waits to be read, and wakes all who wait.
func (c *conn) drop() {
	c.in.queue, c.in.unread, c.in.unknown = nil, 0, 0
	wake(&c.in.readable)
	wake(&c.out.writable)
}

// end closes the connection, under the lock. The other end gets a reset if data were not read.
func (c *conn) end(abrupt bool) {
	c.closed = true
	now := time.Now()
	unread := slices.ContainsFunc(c.in.queue, func(g segment) bool { return len(g.data) > 0 })
	switch {
	case c.failed != nil:
	case abrupt || c.abrupt || unread:
		c.net.sendReset(c, now)
	default:
		c.finish(now)
	}
	c.drop()
	delete(c.endpoint.conns, c)
	if c.peer.closed {
		delete(c.in.path.streams, c.in)
		delete(c.out.path.streams, c.out)
	}
}

// finish sends the end of the stream, once.
func (c *conn) finish(now time.Time) {
	if !c.out.ended && !c.out.reset {
		c.out.ended = true
		c.net.send(c.out, segment{end: true}, now)
	}
}

// Close implements net.Conn. What was written before still arrives.
func (c *conn) Close() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.failure("close", net.ErrClosed)
	}
	c.end(false)
	return nil
}

// CloseWrite ends what the other end can read.
func (c *conn) CloseWrite() error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	switch {
	case c.closed:
		return c.failure("close", net.ErrClosed)
	case c.failed != nil:
		return c.failure("close", c.failed)
	}
	c.finish(time.Now())
	wake(&c.out.writable)
	return nil
}

// SetLinger with 0 has Close reset the connection.
func (c *conn) SetLinger(seconds int) error {
	return c.set(func() { c.abrupt = seconds == 0 })
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return c.set(func() { c.readBy, c.writeBy = t, t })
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.set(func() { c.readBy = t }) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.set(func() { c.writeBy = t }) }

func (c *conn) set(do func()) error {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	if c.closed {
		return c.failure("set", net.ErrClosed)
	}
	do()
	wake(&c.in.readable)
	wake(&c.out.writable)
	return nil
}

// ReadFrom and WriteTo are there because servers expect them of a connection of TCP.

// ReadFrom implements io.ReaderFrom.
func (c *conn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{c}, r) }

// WriteTo implements io.WriterTo.
func (c *conn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{c}) }
