package http1

import (
	"net"
	"sync"
)

// Handed is the listener of a server whose connections have been accepted by another one, which
// hands them over.
type Handed struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// NewHanded returns a listener without connections.
func NewHanded() *Handed {
	return &Handed{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Give hands a connection over, or closes it when the listener is closed. It waits for Accept.
func (h *Handed) Give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.closed:
		_ = c.Close() // The server is closing.
	}
}

// Accept returns the next connection. It returns net.ErrClosed after Close.
func (h *Handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. It always returns nil.
func (h *Handed) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Closed is closed by Close.
func (h *Handed) Closed() <-chan struct{} { return h.closed }

// Addr returns nothing of use: connections come from many sides.
func (h *Handed) Addr() net.Addr { return &net.TCPAddr{} }
