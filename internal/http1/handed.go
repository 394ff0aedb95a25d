package http1

import (
	"net"
	"sync"
)

// handed is the listener of a server whose connections have been accepted by another one, which
// hands them over.
type handed struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// newHanded returns a listener without connections.
func newHanded() *handed {
	return &handed{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// give hands a connection over, or closes it when the listener is closed. It waits for Accept.
func (h *handed) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close() // The server is closing.
	}
}

// Accept returns the next connection. It returns net.ErrClosed after Close.
func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. It always returns nil.
func (h *handed) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr returns nothing of use: connections come from many sides.
func (h *handed) Addr() net.Addr { return &net.TCPAddr{} }
