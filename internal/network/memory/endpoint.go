package memory

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

var errTimedOut = syscall.ETIMEDOUT

// Endpoint is what one process on a host has of the network.
type Endpoint struct {
	net  *Network
	host *host
	done chan struct{} // closed by Close

	// under the lock of the network
	closed    bool
	listeners map[*listener]struct{}
	conns     map[*conn]struct{}
}

// Endpoint returns the network as a new process on a host sees it.
func (n *Network) Endpoint(name string) (*Endpoint, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		return nil, fmt.Errorf("no host %q", name)
	}
	return &Endpoint{net: n, host: h, done: make(chan struct{}), listeners: map[*listener]struct{}{}, conns: map[*conn]struct{}{}}, nil
}

// Close ends the process as a system does: nothing listens any more, all connections end, and no
// later call succeeds.
func (e *Endpoint) Close() error {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	close(e.done)
	for l := range e.listeners {
		l.end()
	}
	for _, c := range e.ordered() {
		c.end(false)
	}
	return nil
}

// Reset breaks a share of the connections of the process, up to 1 for all; it may make others. It
// returns how many it broke.
func (e *Endpoint) Reset(share float64) (broken int) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	for _, c := range e.ordered() {
		if e.net.rng.Float64() >= share {
			continue
		}
		broken++
		c.peer.fail(syscall.ECONNRESET)
		c.fail(syscall.ECONNRESET)
	}
	return broken
}

func (e *Endpoint) ordered() []*conn {
	in := make([]*stream, 0, len(e.conns))
	for c := range e.conns {
		in = append(in, c.in)
	}
	sortByAge(in)
	list := make([]*conn, len(in))
	for i, s := range in {
		list[i] = s.reader
	}
	return list
}

// Listen listens at a port of the host, or at a free one for port 0.
func (e *Endpoint) Listen(ctx context.Context, address string) (net.Listener, error) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	h, port, err := e.net.resolve(e.host, address)
	at := &net.TCPAddr{IP: e.host.ip, Port: port}
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	case e.closed:
		err = net.ErrClosed
	case h != e.host:
		err = os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)
	case h.listeners[port] != nil:
		err = os.NewSyscallError("bind", syscall.EADDRINUSE)
	case port == 0:
		at.Port, err = e.net.port(h)
	}
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: at, Err: err}
	}
	l := &listener{endpoint: e, addr: at, waiting: make(chan *conn, backlog), done: make(chan struct{})}
	h.listeners[at.Port] = l
	e.listeners[l] = struct{}{}
	return l, nil
}

// listener takes connections at a port.
type listener struct {
	endpoint *Endpoint
	addr     *net.TCPAddr
	waiting  chan *conn
	done     chan struct{}
	closed   bool
}

func (l *listener) Addr() net.Addr { return l.addr }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
	default:
		select {
		case c := <-l.waiting:
			return c, nil
		case <-l.done:
		}
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.endpoint.net.mu.Lock()
	defer l.endpoint.net.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	l.end()
	return nil
}

// end refuses all who wait, under the lock of the network.
func (l *listener) end() {
	l.closed = true
	close(l.done)
	delete(l.endpoint.listeners, l)
	delete(l.endpoint.host.listeners, l.addr.Port)
	for {
		select {
		case c := <-l.waiting:
			c.end(true)
		default:
			return
		}
	}
}

// Dial connects to an address. It asks again and again while no answer comes, for two minutes if
// the context allows it.
func (e *Endpoint) Dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := e.dial(ctx, address)
	if err != nil {
		e.net.mu.Lock()
		e.net.o.Trace(e.host.name, fmt.Sprintf("dial %s: %v", address, err))
		e.net.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", address, err)}
	}
	return c, nil
}

func (e *Endpoint) dial(ctx context.Context, address string) (*conn, error) {
	pause := time.Second
	for range dialTries {
		again := time.NewTimer(pause)
		c, err := e.ask(ctx, address)
		if !errors.Is(err, errUnanswered) {
			again.Stop()
			return c, err
		}
		if err := e.wait(ctx, again); err != nil {
			return nil, err
		}
		pause *= 2
	}
	return nil, errTimedOut
}

var errUnanswered = errors.New("no answer")

// ask sends one request for a connection.
func (e *Endpoint) ask(ctx context.Context, address string) (*conn, error) {
	n := e.net
	n.mu.Lock()
	h, port, err := n.resolve(e.host, address)
	if err != nil {
		n.mu.Unlock()
		return nil, err
	}
	out, in := n.path(e.host, h), n.path(h, e.host)
	lost := out.blocked() || in.blocked() || n.resend(out, 1)+n.resend(in, 1) > 0
	trip := n.passes(out) + n.passes(in)
	n.mu.Unlock()
	if lost {
		return nil, errUnanswered
	}
	if trip > 0 {
		if err := e.wait(ctx, time.NewTimer(trip)); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l := h.listeners[port]
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case e.closed:
		return nil, net.ErrClosed
	case out.blocked() || in.blocked():
		return nil, errUnanswered
	case l == nil:
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	case len(l.waiting) == cap(l.waiting):
		return nil, errUnanswered
	}
	from, err := n.port(e.host)
	if err != nil {
		return nil, err
	}
	c := n.connect(e, l, &net.TCPAddr{IP: e.host.ip, Port: from}, out, in)
	l.waiting <- c.peer
	return c, nil
}

// wait waits for a timer and stops it.
func (e *Endpoint) wait(ctx context.Context, t *time.Timer) error {
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-e.done:
		return net.ErrClosed
	}
}
