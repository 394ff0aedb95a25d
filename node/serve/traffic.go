package serve

import (
	"io"
	"net"
	"sync/atomic"
)

// Traffic counts the connections of clients and what goes over them, TLS included.
type Traffic struct {
	open           atomic.Int64
	received, sent atomic.Uint64
}

// Connections are those that are open.
func (t *Traffic) Connections() int64 { return t.open.Load() }

// Bytes are those of all connections there ever were.
func (t *Traffic) Bytes() (received, sent uint64) { return t.received.Load(), t.sent.Load() }

// listener returns l with connections that are counted.
func (t *Traffic) listener(l net.Listener) net.Listener { return &countedListener{l, t} }

type countedListener struct {
	net.Listener
	traffic *Traffic
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.traffic.open.Add(1)
	return &countedConn{TCPConn: c.(*net.TCPConn), traffic: l.traffic}, nil
}

// countedConn is one of TCP: servers look for what that has beyond net.Conn.
type countedConn struct {
	*net.TCPConn
	traffic *Traffic
	closed  atomic.Bool
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.traffic.received.Add(uint64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	c.traffic.sent.Add(uint64(n))
	return n, err
}

// WriteTo reads all that comes into w.
func (c *countedConn) WriteTo(w io.Writer) (int64, error) {
	n, err := c.TCPConn.WriteTo(w)
	c.traffic.received.Add(uint64(n))
	return n, err
}

// ReadFrom sends what r holds, by the kernel if it can.
func (c *countedConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	c.traffic.sent.Add(uint64(n))
	return n, err
}

func (c *countedConn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.traffic.open.Add(-1)
	}
	return c.TCPConn.Close()
}
