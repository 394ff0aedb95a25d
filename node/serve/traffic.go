package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/throttle"
)

// Traffic counts the connections of clients and their bytes, TLS included, and bounds their number.
type Traffic struct {
	MaxConnections int // must not change once there is a listener; 0: no bound

	open           atomic.Int64
	received, sent atomic.Uint64
	gaveWay        atomic.Uint64
	crowd          crowd
}

// Connections are those that are open.
func (t *Traffic) Connections() int64 { return t.open.Load() }

// Bytes are those of all connections there ever were.
func (t *Traffic) Bytes() (received, sent uint64) { return t.received.Load(), t.sent.Load() }

// GaveWay is how many connections were ended to make room for others, or for files.
func (t *Traffic) GaveWay() uint64 { return t.gaveWay.Load() }

// GiveWay ends the connection that a new one would take the place of, so that something else finds
// a descriptor. An eighth of the bound is left alone: then it is not connections that take too
// many.
func (t *Traffic) GiveWay() {
	if t.crowd.giveWay(t.MaxConnections / 8) {
		t.gaveWay.Add(1)
	}
}

// listener returns l with connections that are counted and bounded.
func (t *Traffic) listener(l net.Listener, logger hclog.Logger) net.Listener {
	t.crowd.most = t.MaxConnections
	if t.MaxConnections <= 0 {
		t.crowd.most = 1 << 30
	}
	c := &countedListener{Listener: l, traffic: t, logger: logger, lines: throttle.Lines[struct{}]{Every: time.Minute}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// countedListener fails for good only when it is closed: whatever keeps a connection from being
// accepted, no descriptor for one, is over after a while.
type countedListener struct {
	net.Listener
	traffic *Traffic
	logger  hclog.Logger
	lines   throttle.Lines[struct{}]
	ctx     context.Context // ends when it is closed
	cancel  context.CancelFunc
}

func (l *countedListener) Accept() (net.Conn, error) {
	pauses := clock.Pauses{Least: time.Millisecond, Most: time.Second}
	for {
		c, err := l.Listener.Accept()
		switch {
		case err == nil:
			return l.traffic.counted(c), nil
		case errors.Is(err, net.ErrClosed) || l.ctx.Err() != nil:
			return nil, err
		}
		l.traffic.GiveWay() // It may be a descriptor that is missing, or memory of the system.
		if skipped, due := l.lines.Due(struct{}{}); due {
			l.logger.Warn("a connection could not be accepted, trying again", logkey.Error, err, "times", skipped+1)
		}
		if !pauses.Wait(l.ctx) {
			return nil, net.ErrClosed
		}
	}
}

func (l *countedListener) Close() error {
	l.cancel()
	return l.Listener.Close()
}

// counted begins to count a connection.
func (t *Traffic) counted(c net.Conn) *countedConn {
	counted := &countedConn{Conn: c, traffic: t}
	counted.use()
	// Its server sees the end.
	counted.place = member{used: counted.used.Load, end: func() { _ = counted.Close() }}
	t.open.Add(1)
	if ended := t.crowd.add(&counted.place, c.RemoteAddr()); ended > 0 {
		t.gaveWay.Add(uint64(ended))
	}
	return counted
}

// epoch makes times numbers that follow the monotonic clock.
var epoch = time.Now()

// countedConn has what servers look for beyond net.Conn, as far as the connection below has it.
type countedConn struct {
	net.Conn
	traffic *Traffic
	place   member
	used    atomic.Int64 // when something went over it, after epoch
	closed  atomic.Bool
}

func (c *countedConn) use() { c.used.Store(int64(time.Since(epoch))) }

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.traffic.received.Add(uint64(n))
	c.use()
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.traffic.sent.Add(uint64(n))
	c.use()
	return n, err
}

// WriteTo reads all that comes into w.
func (c *countedConn) WriteTo(w io.Writer) (n int64, err error) {
	if from, ok := c.Conn.(io.WriterTo); ok {
		n, err = from.WriteTo(w)
	} else {
		n, err = io.Copy(w, struct{ io.Reader }{c.Conn})
	}
	c.traffic.received.Add(uint64(n))
	return n, err
}

// ReadFrom sends what r holds, by the kernel if it can.
func (c *countedConn) ReadFrom(r io.Reader) (n int64, err error) {
	if to, ok := c.Conn.(io.ReaderFrom); ok {
		n, err = to.ReadFrom(r)
	} else {
		n, err = io.Copy(struct{ io.Writer }{c.Conn}, r)
	}
	c.traffic.sent.Add(uint64(n))
	return n, err
}

// CloseWrite ends the sending half.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// SyscallConn gives the socket, if there is one.
func (c *countedConn) SyscallConn() (syscall.RawConn, error) {
	if socket, ok := c.Conn.(syscall.Conn); ok {
		return socket.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

func (c *countedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.traffic.open.Add(-1)
		c.traffic.crowd.remove(&c.place)
	}
	return c.Conn.Close()
}
