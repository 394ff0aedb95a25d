package wire

import (
	"fmt"
	"net"
	"sync"
)

// listener hands out the accepted connections of one kind.
type listener struct {
	port   *Port
	kind   Kind
	queue  chan *conn // without a buffer: what is in it has an owner
	closed chan struct{}
	once   sync.Once
}

// Listener returns what accepts the connections of a kind. Its Close makes the
// port refuse that kind again and leaves the connections alone that were accepted. There
// is one listener for a kind at a time: a second one is a mistake of the program and panics.
func (p *Port) Listener(k Kind) net.Listener {
	l := &listener{port: p, kind: k, queue: make(chan *conn), closed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		l.once.Do(func() { close(l.closed) })
		return l
	}
	if p.listeners[k] != nil {
		panic(fmt.Sprintf("wire: a second listener for the kind %s", k))
	}
	p.listeners[k] = l
	return l
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.accept()
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (l *listener) accept() (*conn, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept %s: %w", l.kind, net.ErrClosed)
	}
}

// Close stops accepting. Idempotent.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.port.mu.Lock()
		delete(l.port.listeners, l.kind)
		l.port.mu.Unlock()
		close(l.closed)
	})
	return nil
}

// Addr is the address where other nodes reach this one.
func (l *listener) Addr() net.Addr { return advertised(l.port.opts.Advertise) }

// advertised is an address as other nodes know it.
type advertised string

func (a advertised) Network() string { return "tcp" }
func (a advertised) String() string  { return string(a) }
