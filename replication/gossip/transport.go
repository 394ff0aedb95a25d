package gossip

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

const (
	// maxAccepted bounds the connections of others that are open at a time.
	maxAccepted = 128
	// portAttempts is how often a port is chosen that turns out to be taken for UDP.
	portAttempts = 10
	// First bytes of TLS records.
	tlsAlert, tlsHandshake = 0x15, 0x16
)

// Reasons for which a connection fails that an operator can do something about.
var (
	errPeerSecure   = errors.New("the other side may use TLS, and this node runs without certificates")
	errPeerInsecure = errors.New("the other side does not use TLS: it may run without certificates")
	errNoCert       = errors.New("the other side showed no certificate")
	errCut          = errors.New("no route to host")
)

// transportOptions are given by Open.
type transportOptions struct {
	bind      netip.AddrPort
	advertise string // host:port, or empty
	node      event.ID
	security  Security
	timeout   time.Duration // for connecting, including TLS and one hello
	timing    timing
	logger    hclog.Logger
	complaint *limiter
	metrics   *metrics
	allow     func(netip.AddrPort) bool
	// hostOf returns the host that the certificate of a node is to be checked
	// against. The node's name may be empty.
	hostOf func(address netip.AddrPort, node string) string
}

// transport carries memberlist's streams and packets as the package comment describes.
type transport struct {
	o         transportOptions
	metrics   *metrics
	tcp       *net.TCPListener
	udp       *net.UDPConn
	bound     netip.AddrPort
	advertise netip.AddrPort
	keys      *keyring // nil without Security

	introductions, questions attempts

	packets chan *memberlist.Packet
	streams chan net.Conn

	ctx    context.Context // the transport's own life
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex // guards what follows; nothing blocks under it
	closed bool       // no goroutine and no connection is added any more
	conns  map[*conn]struct{}
	slots  int // accepted connections among conns
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// newTransport listens and starts to accept. The transport must be shut down.
func newTransport(ctx context.Context, o transportOptions) (*transport, error) {
	t := &transport{
		o: o, metrics: o.metrics, packets: make(chan *memberlist.Packet), streams: make(chan net.Conn), conns: map[*conn]struct{}{},
		introductions: attempts{first: o.timing.retryMin, last: o.timing.retryMax, of: map[netip.AddrPort]*attempt{}},
		questions:     attempts{first: o.timing.retryMin, last: o.timing.retryMax, of: map[netip.AddrPort]*attempt{}},
	}
	if o.security != nil {
		keys, err := newKeyring(o.node, o.timing.rekey, o.timing.overlap)
		if err != nil {
			return nil, err
		}
		t.keys = keys
	}
	if err := t.listen(); err != nil {
		return nil, err
	}
	var err error
	if t.advertise, err = t.advertised(ctx); err != nil {
		return nil, errors.Join(err, t.tcp.Close(), t.udp.Close())
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wg.Add(2)
	go t.accept()
	go t.receive()
	if t.keys != nil {
		t.wg.Add(1)
		go t.keepKeys()
	}
	return t, nil
}

// listen opens the same port for TCP and UDP.
func (t *transport) listen() error {
	for attempt := 1; ; attempt++ {
		tcp, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(t.o.bind))
		if err != nil {
			return fmt.Errorf("gossip: listen: %w", err)
		}
		port := tcp.Addr().(*net.TCPAddr).AddrPort().Port()
		udp, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(t.o.bind.Addr(), port)))
		if err == nil {
			t.tcp, t.udp, t.bound = tcp, udp, netip.AddrPortFrom(t.o.bind.Addr(), port)
			return nil
		}
		if err = errors.Join(err, tcp.Close()); t.o.bind.Port() != 0 || attempt == portAttempts {
			return fmt.Errorf("gossip: listen: %w", err)
		}
	}
}

// advertised finds the address that others are told. memberlist knows addresses
// only, so a name is looked up, once.
func (t *transport) advertised(ctx context.Context) (netip.AddrPort, error) {
	if t.o.advertise != "" {
		host, port, err := splitHostPort(t.o.advertise)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("gossip: address to advertise: %w", err)
		}
		addresses, err := lookup(ctx, host)
		if err != nil {
			return netip.AddrPort{}, fmt.Errorf("gossip: address to advertise: %w", err)
		}
		return netip.AddrPortFrom(addresses[0], port), nil
	}
	if !t.bound.Addr().IsUnspecified() {
		return netip.AddrPortFrom(t.bound.Addr().Unmap(), t.bound.Port()), nil
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("gossip: address to advertise: %w", err)
	}
	for _, a := range found {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap().IsGlobalUnicast() && ip.Unmap().Is4() {
				return netip.AddrPortFrom(ip.Unmap(), t.bound.Port()), nil
			}
		}
	}
	return netip.AddrPort{}, fmt.Errorf("gossip: listening at %v, there is no address to advertise: give one", t.bound)
}

// maxAnswers is how many addresses of one name are looked at.
const maxAnswers = 16

// lookup returns the addresses of a host, at least one, IPv4 first.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var four, six []netip.Addr
	for _, ip := range found {
		if ip = ip.Unmap(); ip.Is4() {
			four = append(four, ip)
		} else {
			six = append(six, ip)
		}
	}
	all := append(four, six...)
	if len(all) == 0 {
		return nil, fmt.Errorf("the name %s has no address", host)
	}
	return all[:min(len(all), maxAnswers)], nil
}

// FinalAdvertiseAddr is memberlist's question for the address to tell others.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

// PacketCh and StreamCh are where memberlist takes what comes in.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh is described at PacketCh.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo sends a packet. Without the node's name it can be sent in the clear only.
func (t *transport) WriteTo(b []byte, address string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: address})
}

// WriteToAddress sends a packet, now or once keys have been exchanged. That it
// cannot be sent yet is no error: memberlist would take that for its own failure and not for
// the other node's, and not suspect it.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	to, err := netip.ParseAddrPort(a.Addr)
	if err != nil {
		return time.Time{}, fmt.Errorf("send a gossip packet: %w", err)
	}
	if t.keys == nil {
		return time.Now(), t.send(append([]byte{packetPlain}, b...), to)
	}
	node, err := event.ParseID(a.Name)
	if err != nil {
		return time.Time{}, fmt.Errorf("send a gossip packet to %s, whose name is %.60q: %w", a.Addr, a.Name, err)
	}
	now := time.Now()
	sealed, introduce := t.keys.seal(b, node, now)
	if introduce {
		t.greetSoon(to, node)
	}
	if sealed == nil {
		t.metrics.waited.Inc()
		return now, nil
	}
	err = t.send(sealed, to)
	return time.Now(), err
}

func (t *transport) send(packet []byte, to netip.AddrPort) error {
	if !t.o.allow(to) {
		return nil
	}
	if _, err := t.udp.WriteToUDPAddrPort(packet, to); err != nil {
		return err
	}
	t.metrics.sent.Inc()
	return nil
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
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	return t.dial(ctx, to, a.Name, kindStream)
}

// dial connects and says of which kind the connection is to be.
func (t *transport) dial(ctx context.Context, to netip.AddrPort, name string, kind byte) (net.Conn, error) {
	if !t.o.allow(to) {
		return nil, fmt.Errorf("connect to %v: %w", to, errCut)
	}
	var dialer net.Dialer
	raw, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	tracked, err := t.track(raw, false)
	if err != nil {
		return nil, err
	}
	var c net.Conn = tracked
	if t.o.security != nil {
		if c, err = t.secure(ctx, tracked, t.o.hostOf(to, name)); err != nil {
			return nil, errors.Join(err, tracked.Close())
		}
	}
	deadline, _ := ctx.Deadline()
	err = c.SetDeadline(deadline)
	if err == nil {
		_, err = c.Write([]byte{kind})
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %v: %w", to, err), tracked.Close())
	}
	return c, nil
}

// secure does the TLS of a connection to a host.
func (t *transport) secure(ctx context.Context, c net.Conn, host string) (net.Conn, error) {
	given := t.o.security.Client(host)
	if given == nil {
		return nil, fmt.Errorf("connect to %s: there is no TLS configuration", host)
	}
	config := given.Clone()
	if config.ServerName == "" && !config.InsecureSkipVerify {
		config.ServerName = host
	}
	config.MinVersion = tls.VersionTLS13
	config.ClientSessionCache = nil // each connection shows certificates anew
	s := tls.Client(c, config)
	if err := s.HandshakeContext(ctx); err != nil {
		var record tls.RecordHeaderError
		if errors.As(err, &record) || hungUp(err) {
			err = fmt.Errorf("%w (%w)", errPeerInsecure, err)
		}
		return nil, fmt.Errorf("connect to %s: %w", host, err)
	}
	return s, nil
}

// hungUp reports whether the other side closed the connection instead of answering,
// as both do who expect TLS and do not find it, and the other way round.
func hungUp(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

// complain logs what goes wrong with an address, but not all the time.
func (t *transport) complain(what, address string, err error) {
	if t.o.complaint.allow(what + address) {
		t.o.logger.Warn(what, logkey.Address, address, logkey.Error, err)
	}
}

// spawn starts a goroutine that Shutdown waits for, unless the transport is closed.
func (t *transport) spawn(f func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.wg.Add(1)
	go func() {
		defer t.wg.Done()
		f()
	}()
	return true
}

// conn is a connection that the transport closes when it shuts down.
type conn struct {
	net.Conn
	t        *transport
	accepted bool
	once     sync.Once
	err      error
}

// track takes a connection into account. With an error, it is closed.
func (t *transport) track(raw net.Conn, accepted bool) (*conn, error) {
	c := &conn{Conn: raw, t: t, accepted: accepted}
	t.mu.Lock()
	refused := t.closed || accepted && t.slots >= maxAccepted
	if !refused {
		t.conns[c] = struct{}{}
		if accepted {
			t.slots++
		}
	}
	t.mu.Unlock()
	if refused {
		return nil, errors.Join(errors.New("too many gossip connections, or shutting down"), raw.Close())
	}
	return c, nil
}

// Close can be called often and by several.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.err = c.Conn.Close()
		c.t.mu.Lock()
		defer c.t.mu.Unlock()
		delete(c.t.conns, c)
		if c.accepted {
			c.t.slots--
		}
	})
	return c.err
}

// Shutdown ends everything and waits for it. memberlist calls it, too.
func (t *transport) Shutdown() error {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	t.cancel() // Together: a connection that is refused for it is nothing to tell of.
	open := make([]*conn, 0, len(t.conns))
	for c := range t.conns {
		open = append(open, c)
	}
	t.mu.Unlock()
	var err error
	if first {
		err = errors.Join(t.tcp.Close(), t.udp.Close())
	}
	for _, c := range open {
		// The other side may have been faster; it does not matter any more.
		_ = c.Close()
	}
	t.wg.Wait()
	return err
}
