package wire

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/network"
	"github.com/annalsdb/annals/internal/throttle"
	"github.com/annalsdb/annals/replication/peersecret"
)

const (
	// maxHandshakes is how many connections may be before the end of their
	// preamble. The next one ends the oldest of them: the one that has been silent
	// for longest, never a node that has just come.
	maxHandshakes = 64
	// lingerTime is how long a connection that was refused is kept open for the
	// other side to read why.
	lingerTime = time.Second
)

var (
	errClosing = fmt.Errorf("port between nodes: %w", net.ErrClosed)
	errSilent  = errors.New("no complete request in time")
	errEvicted = errors.New("too many connections at once that say nothing")
	errEnded   = errors.New("the listener for connections of its kind has just ended")
)

// Port is the one address at which a node talks with the other nodes of its
// cluster: it listens, and it dials other ports.
type Port struct {
	opts     Options
	logger   hclog.Logger
	lines    throttle.Lines[line] // that were logged, of what others did
	metrics  *metrics
	listener net.Listener

	ctx    context.Context // over when the port closes
	cancel context.CancelCauseFunc
	tasks  sync.WaitGroup // the accepting goroutine and the handshakes

	slots chan struct{} // one place for each handshake
	// secrets are those of other nodes, where the port has one itself.
	secrets secrets
	reach   func(ctx context.Context, address string) (net.Conn, error)

	distrust atomic.Pointer[distrust] // the latest; nil: none

	// mu guards what follows. It is held for a moment only and nests no other lock.
	mu         sync.Mutex
	closing    bool
	handshakes list.List // of context.CancelCauseFunc, oldest first
	listeners  map[Kind]*listener
	conns      map[*conn]struct{} // done with their preamble and not closed, of both directions
	accepted   int                // of them, those that were accepted
	traffic    map[event.ID]*traffic
	others     traffic            // of nodes that have no place in traffic
	rafts      map[*Raft]struct{} // not closed

	closeOnce sync.Once
	closeErr  error // valid after closeOnce
}

// Open listens at the address. Until a caller asks for a Listener, every connection is refused.
func Open(o Options) (*Port, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l, err := o.Network.Listen(context.Background(), o.Bind)
	if err != nil {
		return nil, fmt.Errorf("listen for other nodes: %w", err)
	}
	if o.Advertise == "" {
		o.Advertise = l.Addr().String()
	}
	return newPort(o, l, o.Network.Dial), nil
}

// newPort takes the connections of a listener, and makes its own with reach.
func newPort(o Options, l net.Listener, reach func(ctx context.Context, address string) (net.Conn, error)) *Port {
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &Port{
		opts: o, logger: o.Logger.Named("wire"), listener: l, ctx: ctx, cancel: cancel,
		slots: make(chan struct{}, maxHandshakes), reach: reach, listeners: map[Kind]*listener{},
		lines: throttle.Lines[line]{Every: logAgain}, conns: map[*conn]struct{}{}, rafts: map[*Raft]struct{}{},
		traffic: map[event.ID]*traffic{}, secrets: secrets{known: map[peersecret.ID]*peersecret.Secret{}},
	}
	p.metrics = newMetrics(o.Stats, p)
	p.tasks.Go(p.accept)
	return p
}

// keepAlive finds out within half a minute that the other node is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Addr is the address bound.
func (p *Port) Addr() net.Addr { return p.listener.Addr() }

// Lookup returns the addresses of a host as the port's network knows it.
func (p *Port) Lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return network.Lookup(ctx, p.opts.Network, host)
}

// Advertised is the host:port where other nodes reach this one.
func (p *Port) Advertised() string { return p.opts.Advertise }

// Close closes the port, every connection, every Listener and every Raft that it
// gave out, and waits for its goroutines. Idempotent.
func (p *Port) Close() error {
	p.closeOnce.Do(func() {
		p.cancel(errClosing)
		p.closeErr = p.listener.Close()
		p.mu.Lock()
		p.closing = true
		rafts, listeners := maps.Clone(p.rafts), maps.Clone(p.listeners)
		p.mu.Unlock()
		for r := range rafts {
			p.closeErr = errors.Join(p.closeErr, r.Close())
		}
		for _, l := range listeners {
			p.closeErr = errors.Join(p.closeErr, l.Close())
		}
		p.tasks.Wait()
		// Nothing is added any more. Their users close these connections.
		p.mu.Lock()
		defer p.mu.Unlock()
		for c := range p.conns {
			c.abort()
		}
	})
	return p.closeErr
}

// self is what this node says of itself at this moment.
func (p *Port) self() Identity {
	return Identity{Node: p.opts.Node, Cluster: p.opts.Cluster(), Incarnation: p.opts.Incarnation()}
}

// accept takes connections and starts their handshakes.
func (p *Port) accept() {
	var pause time.Duration
	for {
		raw, err := p.listener.Accept()
		if p.ctx.Err() != nil {
			if err == nil {
				_ = raw.Close()
			}
			return
		}
		if err != nil {
			// For instance no more file descriptors: that passes.
			p.say(hclog.Warn, p.Addr(), "accept", "accept a connection of another node", logkey.Error, err)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			_ = clock.Sleep(p.ctx, pause) // If it ends, the next turn sees it.
			continue
		}
		pause = 0
		select {
		case p.slots <- struct{}{}:
		default:
			p.evict()
			// The handshake that was ended frees its place without waiting.
			select {
			case p.slots <- struct{}{}:
			case <-p.ctx.Done():
				_ = raw.Close()
				return
			}
		}
		// It is among those that may be ended before the next one is taken: its
		// goroutine may begin much later.
		ctx, cancel := context.WithCancelCause(p.ctx)
		p.mu.Lock()
		place := p.handshakes.PushBack(cancel)
		p.mu.Unlock()
		p.tasks.Go(func() { p.greet(ctx, raw, place) })
	}
}

// evict ends the oldest handshake.
func (p *Port) evict() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if oldest := p.handshakes.Front(); oldest != nil {
		p.handshakes.Remove(oldest)
		oldest.Value.(context.CancelCauseFunc)(errEvicted)
	}
}

// greet does the handshake of a connection from another node and hands it to
// the listener of its kind. Its place is that among the handshakes.
func (p *Port) greet(ctx context.Context, raw net.Conn, place *list.Element) {
	defer func() { <-p.slots }()
	defer place.Value.(context.CancelCauseFunc)(nil)
	ctx, stop := context.WithTimeoutCause(ctx, p.opts.HandshakeTimeout, errSilent)
	defer stop()
	// Closing the connection is what ends a handshake early, whatever it waits for.
	release := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer release()

	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.handshakes.Remove(place) // of no effect if it was removed already
	}()

	c, err := p.handshake(ctx, raw)
	if err == nil {
		err = p.deliver(ctx, c, release)
	}
	if err == nil {
		p.metrics.accepted.Inc()
		p.trusted(raw.RemoteAddr())
		return
	}
	p.notice(ctx, raw.RemoteAddr(), err) // before the other side can see the end
	if c != nil {
		_ = c.Close()
	}
	_ = raw.Close()
}

// notice counts and logs a connection that came to nothing.
func (p *Port) notice(ctx context.Context, peer net.Addr, err error) {
	if p.ctx.Err() != nil {
		return
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		defer p.metrics.refused.Inc() // One who sees it counted finds it in the log.
		args := []any{logkey.Reason, r.reason}
		if r.from != nil {
			args = append(args, keyKind, r.from.kind.String(), logkey.Node, r.from.Node.String())
		}
		level := hclog.Warn
		switch {
		case r.status == StatusNoListener: // A node that starts or ends, whose peers try again.
			level = hclog.Debug
		case r.status == StatusSameNode && r.from != nil && (r.from.kind == KindGossip || r.from.kind == KindPackets):
			level = hclog.Info // This one, looking for the nodes that it was given.
		}
		p.say(level, peer, fmt.Sprint("status ", r.status), "refused a connection", args...)
		return
	}
	p.metrics.failed.Inc()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	switch {
	case errors.Is(err, errClosing): // just now
	case p.distrusted(peer, false, err):
	case errors.Is(err, io.EOF):
		// A port scan, or the check of a load balancer.
		p.logger.Debug("a connection was closed before it said anything", keyPeer, peer.String())
	case errors.Is(err, errEnded): // Its peer tries again.
		p.logger.Info("dropped a connection", keyPeer, peer.String(), logkey.Reason, err)
	case errors.Is(err, errSilent), errors.Is(err, errEvicted), errors.Is(err, errNotOurs):
		p.say(hclog.Warn, peer, err.Error(), "dropped a connection", logkey.Reason, err)
	default:
		p.say(hclog.Warn, peer, "handshake", "dropped a connection", logkey.Reason, err)
	}
}

// handshake does TLS, the preamble and the proof. A returned connection counts as accepted and must
// be closed; the other side does not know it yet.
func (p *Port) handshake(ctx context.Context, raw net.Conn) (*conn, error) {
	first := make([]byte, 1)
	if _, err := io.ReadFull(raw, first); err != nil {
		return nil, err
	}
	self := p.self()
	stream, begun := raw, first
	switch {
	case p.opts.Security == nil && first[0] == tlsHandshake:
		return nil, p.refuse(raw, self, nil, &refusal{
			status: StatusWantsPlain, reason: "this node is configured for plain TCP between nodes, the other for TLS"})
	case p.opts.Security == nil && first[0] != magic[0]:
		return nil, errNotOurs
	case p.opts.Security == nil:
	case first[0] == magic[0]:
		return nil, p.refuse(raw, self, nil, &refusal{
			status: StatusWantsTLS, reason: "this node is configured for TLS between nodes, the other for plain TCP"})
	case first[0] != tlsHandshake:
		return nil, errNotOurs
	default:
		config := p.opts.Security.Server()
		if config == nil {
			return nil, errors.New("no certificate for connections between nodes")
		}
		config = judging(config)
		config.SessionTicketsDisabled = true
		secured := tls.Server(&peeked{Conn: raw, first: first}, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			linger(raw) // for the alert
			return nil, fmt.Errorf("TLS: %w", err)
		}
		stream, begun = secured, nil
	}
	q, err := readRequest(stream, begun)
	if err != nil {
		return nil, err
	}
	if p.opts.Secret != nil && q.version == formatVersion {
		if q.proof, err = p.demand(ctx, stream, self, &q); err != nil {
			return nil, err
		}
	}
	if r := p.judge(&q, self); r != nil {
		return nil, p.refuse(stream, self, &q, r)
	}
	c := &conn{Conn: stream, raw: raw, port: p, kind: q.kind, peer: q.Identity, proof: q.proof, accepted: true, id: event.ID(uuid.New()), due: time.Now().Add(jittered(p.opts.Renew))}
	if r := p.add(c); r != nil {
		return nil, p.refuse(stream, self, &q, r)
	}
	return c, nil
}

// refuse tells the other side why it is not wanted and returns that reason.
func (p *Port) refuse(stream net.Conn, self Identity, q *request, r *refusal) error {
	r.from = q
	a := answer{version: formatVersion, status: r.status, Identity: self, reason: r.reason}
	b := a.encode()
	if q != nil {
		b = q.proof.sealed(b)
	}
	// Whether the other side gets to know it is of no consequence here.
	if _, err := stream.Write(b); err == nil {
		linger(stream)
	}
	return r
}

// linger lets the other side read what was written last: a connection that is
// closed while something it received was not read is reset, and takes along what
// is still on its way.
func linger(c net.Conn) {
	if err := c.SetReadDeadline(time.Now().Add(lingerTime)); err != nil {
		return
	}
	if w, ok := c.(closeWriter); !ok || w.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c, 64<<10)
}

// deliver tells the other side that it is welcome and hands the connection over.
func (p *Port) deliver(ctx context.Context, c *conn, release func() bool) error {
	p.mu.Lock()
	l := p.listeners[c.kind]
	p.mu.Unlock()
	self := p.self()
	if l == nil {
		return p.refuse(c.Conn, self, &request{version: formatVersion, kind: c.kind, Identity: c.peer, proof: c.proof}, &refusal{
			status: StatusNoListener, reason: fmt.Sprintf("this node takes no connections of the kind %s at the moment", c.kind)})
	}
	a := answer{version: formatVersion, status: StatusAccepted, Identity: self}
	if _, err := c.Conn.Write(c.proof.sealed(a.encode())); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if !release() {
		return context.Cause(ctx) // closed already
	}
	// The timeout does not close the connection any more: it is handed over whole or not at all.
	select {
	case l.queue <- c:
		return nil
	case <-l.closed:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// add counts a connection.
func (p *Port) add(c *conn) *refusal {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return &refusal{status: StatusNoListener, reason: "this node is shutting down"}
	}
	if c.accepted {
		limit := p.opts.MaxConns
		if !c.kind.consensus() {
			limit -= limit / 8
		}
		if p.accepted >= limit {
			return &refusal{status: StatusBusy, reason: fmt.Sprintf("this node has %d connections of other nodes already", p.accepted)}
		}
		p.accepted++
	}
	c.traffic = p.of(c.peer.Node)
	p.conns[c] = struct{}{}
	return nil
}

func (p *Port) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.conns[c]; !ok {
		return
	}
	delete(p.conns, c)
	if c.accepted {
		p.accepted--
	}
}

// peeked is a connection whose first bytes have already been read.
type peeked struct {
	net.Conn
	first []byte
}

func (c *peeked) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}
