package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/replication/wire"
)

const (
	// lanes is how many connections to a peer carry packets, in turn: a packet that the network
	// loses holds up the later ones on one of them only. DESIGN.md has the measurement.
	lanes = 3
	// laneQueue bounds the packets that wait for one connection; more are dropped.
	laneQueue = 64
	// maxPeers bounds the addresses that packets are on their way to.
	maxPeers = 256
	// packetLate is the age at which a packet is not worth sending any more: a probe has long
	// failed.
	packetLate = time.Second
	// laneIdle is how long a connection without packets is kept.
	laneIdle = 30 * time.Second
	// laneRetry is the pause after a connection that did not come about.
	laneRetry = 200 * time.Millisecond
	// writeLimit bounds the writing of a packet to a peer that takes no more.
	writeLimit = 2 * time.Second
)

var errCut = errors.New("no route to host")

// transport carries memberlist's streams and packets over the port between nodes.
type transport struct {
	port      *wire.Port
	advertise netip.AddrPort
	timeout   time.Duration // for connecting
	metrics   *metrics
	allow     func(netip.AddrPort) bool
	// hostOf returns the host that the certificate of a node is to be checked
	// against. The node's name may be empty.
	hostOf func(address netip.AddrPort, node string) string

	packets   chan *memberlist.Packet
	streams   chan net.Conn
	listeners []net.Listener

	ctx    context.Context // the transport's own life
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex // guards what follows; nothing blocks under it
	closed bool       // no goroutine is started any more
	peers  map[netip.AddrPort]*peer
}

// peer is a node that packets go to.
type peer struct {
	lanes [lanes]*lane // nil: there is no connection, nor anything that waits for it
	next  int
}

// lane is one connection of packets, made when there is something to send. Its goroutine owns it.
type lane struct {
	queue chan outgoing
	quit  chan struct{} // closed when the peer is gone
}

type outgoing struct {
	frame []byte
	since time.Time
	name  string // of the node
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// start begins to take connections. The transport must be shut down.
func (t *transport) start() {
	t.packets, t.streams, t.peers = make(chan *memberlist.Packet), make(chan net.Conn), map[netip.AddrPort]*peer{}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	for kind, serve := range map[wire.Kind]func(net.Conn){wire.KindGossip: t.offer, wire.KindPackets: t.receive} {
		l := t.port.Listener(kind)
		t.listeners = append(t.listeners, l)
		t.wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return // closed
				}
				t.mu.Lock()
				refused := t.closed
				if !refused {
					t.wg.Go(func() { serve(c) })
				}
				t.mu.Unlock()
				if refused {
					_ = c.Close()
				}
			}
		})
	}
}

// offer hands a stream to memberlist, which closes it.
func (t *transport) offer(c net.Conn) {
	select {
	case t.streams <- c:
	case <-t.ctx.Done():
		_ = c.Close()
	}
}

// receive takes the packets of one connection.
func (t *transport) receive(c net.Conn) {
	stop := context.AfterFunc(t.ctx, func() { _ = c.Close() })
	defer stop()
	defer func() { _ = c.Close() }()
	var size [2]byte
	// The other side renews a connection in time. If it does not, it loses the connection, and
	// perhaps a packet.
	for !wire.Due(c) {
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return // It ended, as any connection may: the sender makes another.
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, b); err != nil || len(b) == 0 {
			return
		}
		t.metrics.received.Inc()
		select {
		case t.packets <- &memberlist.Packet{Buf: b, From: c.RemoteAddr(), Timestamp: time.Now()}:
		case <-t.ctx.Done():
			return
		}
	}
}

// FinalAdvertiseAddr is memberlist's question for the address to tell others.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

// PacketCh and StreamCh hand incoming packets and streams to memberlist.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh is described at PacketCh.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo sends a packet.
func (t *transport) WriteTo(b []byte, address string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: address})
}

// WriteToAddress sends a packet, or drops it. A packet that cannot be sent is not an error:
// memberlist would take it for its own failure, and not suspect the other node.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	now := time.Now()
	to, err := netip.ParseAddrPort(a.Addr)
	if err == nil && (len(b) == 0 || len(b) > math.MaxUint16) {
		err = fmt.Errorf("%d bytes", len(b))
	}
	if err != nil {
		return now, fmt.Errorf("send a gossip packet to %s: %w", a.Addr, err)
	}
	frame := append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(b)), uint16(len(b))), b...)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return now, ErrClosed
	}
	p := t.peers[to]
	if p == nil {
		if len(t.peers) >= maxPeers {
			t.metrics.dropped.Inc()
			return now, nil
		}
		p = &peer{}
		t.peers[to] = p
	}
	p.next = (p.next + 1) % lanes
	l := p.lanes[p.next]
	if l == nil {
		l = &lane{queue: make(chan outgoing, laneQueue), quit: make(chan struct{})}
		p.lanes[p.next] = l
		t.wg.Go(func() { t.carry(l, to) })
	}
	select {
	case l.queue <- outgoing{frame, now, a.Name}:
	default:
		t.metrics.dropped.Inc()
	}
	return now, nil
}

// carry sends a lane's packets until none came for a while.
func (t *transport) carry(l *lane, to netip.AddrPort) {
	var c net.Conn
	drop := func() {
		if c != nil {
			_ = c.Close() // Packets may be lost.
			c = nil
		}
	}
	defer drop()
	idle := time.NewTimer(laneIdle)
	defer idle.Stop()
	for {
		var o outgoing
		select {
		case o = <-l.queue:
			idle.Reset(laneIdle)
		case <-idle.C:
			if t.retire(l, to) {
				return
			}
			continue
		case <-l.quit:
			return
		case <-t.ctx.Done():
			return
		}
		if time.Since(o.since) > packetLate || !t.allow(to) {
			t.metrics.dropped.Inc()
			continue
		}
		if c != nil && wire.Due(c) {
			drop()
		}
		var err error
		if c == nil {
			if c, err = t.dial(t.ctx, to, o.name, wire.KindPackets, t.timeout); err != nil {
				c = nil
				t.metrics.dropped.Inc()
				_ = clock.Sleep(t.ctx, laneRetry) // If it ends, the next turn sees it.
				continue
			}
		}
		if err = c.SetWriteDeadline(time.Now().Add(writeLimit)); err == nil {
			_, err = c.Write(o.frame)
		}
		if err != nil {
			t.metrics.dropped.Inc()
			drop()
			continue
		}
		t.metrics.sent.Inc()
	}
}

// retire takes a lane out of use if nothing waits for it, and says whether it did.
func (t *transport) retire(l *lane, to netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(l.queue) > 0 {
		return false
	}
	p := t.peers[to]
	if p == nil {
		return true
	}
	if i := slices.Index(p.lanes[:], l); i >= 0 {
		p.lanes[i] = nil
	}
	if p.lanes == [lanes]*lane{} {
		delete(t.peers, to)
	}
	return true
}

// leave ends the connections to a peer that is dead. One that stalled while the network was cut
// would resume only long after the cut.
func (t *transport) leave(to netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.peers[to]; p != nil {
		delete(t.peers, to)
		for _, l := range p.lanes {
			if l != nil {
				close(l.quit)
			}
		}
	}
}

// DialTimeout opens a stream.
func (t *transport) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: address}, timeout)
}

// DialAddressTimeout opens a stream.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	to, err := netip.ParseAddrPort(a.Addr)
	if err != nil {
		return nil, fmt.Errorf("open a gossip stream: %w", err)
	}
	c, err := t.dial(t.ctx, to, a.Name, wire.KindGossip, timeout)
	if err != nil {
		return nil, err
	}
	return ending{c, context.AfterFunc(t.ctx, func() { _ = c.Close() })}, nil
}

// ending is a stream that ends with the transport.
type ending struct {
	net.Conn
	stop func() bool
}

func (e ending) Close() error {
	e.stop()
	return e.Conn.Close()
}

// dial connects to a node, of which the name may be known.
func (t *transport) dial(ctx context.Context, to netip.AddrPort, name string, kind wire.Kind, timeout time.Duration) (net.Conn, error) {
	if !t.allow(to) {
		return nil, fmt.Errorf("connect to %v: %w", to, errCut)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return t.port.DialHost(ctx, kind, to.String(), t.hostOf(to, name))
}

// greet returns the id of the node at an address, whose id may be known.
func (t *transport) greet(ctx context.Context, to netip.AddrPort, name string) (event.ID, error) {
	begun := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	c, err := t.dial(ctx, to, name, wire.KindPackets, t.timeout)
	if refused, ok := errors.AsType[*wire.RefusedError](err); ok && refused.Status == wire.StatusSameNode {
		return refused.Peer.Node, nil // It is this node.
	}
	if err != nil {
		t.metrics.ungreeted.ObserveSince(begun)
		return event.ID{}, err
	}
	t.metrics.greeted.ObserveSince(begun)
	node := wire.NodeOf(c)
	_ = c.Close() // Nothing was sent.
	return node, nil
}

// Shutdown ends everything and waits for it. memberlist calls it, too.
func (t *transport) Shutdown() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	var errs []error
	for _, l := range t.listeners {
		errs = append(errs, l.Close())
	}
	t.wg.Wait()
	return errors.Join(errs...)
}
