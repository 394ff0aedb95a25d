package wire

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
)

// conn is a connection whose preamble is done.
type conn struct {
	net.Conn          // the bytes: TCP, or TLS over it
	raw      net.Conn // TCP
	port     *Port
	kind     Kind
	peer     Identity
	id       event.ID
	traffic  *traffic // set when the port counts the connection, before it is used
	proof    *proof   // by which this side's answer is sealed; nil: none was asked for
	accepted bool
	due      time.Time // to be renewed from here on

	// hard says that the end of the read deadline is the end of the connection,
	// not an error. Set before the connection is used.
	hard bool
	// retired says that this direction has ended: later writes are dropped.
	retired atomic.Bool

	onClose   func() // set before the connection is used; may be nil
	closeOnce sync.Once
	closeErr  error // valid after closeOnce
}

// jittered is a duration lengthened by up to a tenth, so that connections made
// together are not renewed together.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d/10)+1))
}

func (c *conn) isDue() bool { return time.Now().After(c.due) }

// Read reads what the other side wrote.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.received.Add(uint64(n))
	if err != nil && c.hard && errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}

// Write writes, and once the connection is retired drops.
func (c *conn) Write(b []byte) (int, error) {
	if c.retired.Load() {
		return len(b), nil
	}
	n, err := c.Conn.Write(b)
	c.traffic.sent.Add(uint64(n))
	return n, err
}

// retire ends this direction. The other side reads all that was written, answers
// it, finds the end and closes; then reading here ends too. It must not be called
// while another goroutine writes.
func (c *conn) retire() {
	c.retired.Store(true)
	if w, ok := c.Conn.(closeWriter); !ok || w.CloseWrite() != nil {
		c.abort() // broken already: let reading find out at once
	}
}

// closeWriter is implemented by TCP and TLS connections.
type closeWriter interface{ CloseWrite() error }

// Close closes the connection. Idempotent.
func (c *conn) Close() error {
	c.closeOnce.Do(func() {
		c.closeErr = c.Conn.Close()
		c.port.remove(c)
		if c.onClose != nil {
			c.onClose()
		}
	})
	return c.closeErr
}

// abort makes all reading and writing fail at once. Unlike closing, which with
// TLS says goodbye, it never waits; the user of the connection still closes it.
func (c *conn) abort() { _ = c.raw.Close() }

// unwrap finds our connection below wrappers like tls.Conn.
func unwrap(c net.Conn) (*conn, bool) {
	for {
		if ours, ok := c.(*conn); ok {
			return ours, true
		}
		wrapper, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil, false
		}
		c = wrapper.NetConn()
	}
}

// Due reports whether a connection of a Port has reached the age at which it must be renewed. Users
// of HTTPServer and HTTPTransport need not ask; others close such a connection between two
// messages.
func Due(c net.Conn) bool {
	ours, ok := unwrap(c)
	return ok && ours.isDue()
}

// NodeOf returns the id of the node at the other end of a connection of a Port.
func NodeOf(c net.Conn) event.ID {
	ours, ok := unwrap(c)
	if !ok {
		return event.ID{}
	}
	return ours.peer.Node
}
