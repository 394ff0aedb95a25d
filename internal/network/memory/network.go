// Package memory is a network in memory, for many nodes in one process: named hosts, links between
// them that can be slow, lossy or cut, and connections that behave as those of TCP do.
//
// All waiting is for channels and timers, so that in a bubble of testing/synctest time moves
// as soon as everyone waits. What it does not imitate is congestion: a sender uses as much of a
// link as the link and the receiver's buffer allow.
package memory

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	// packet is how many bytes are lost at once.
	packet = 1448
	// firstResend is when a lost packet is sent again for the first time, and longestResend bounds
	// the pauses, each of which is twice as long as the one before.
	firstResend   = 200 * time.Millisecond
	longestResend = 30 * time.Second
	// dialTries is how often a connection is asked for: after 1, 3, 7 and so on seconds.
	dialTries = 7
	backlog   = 128
	firstPort = 32768
)

// Link is the state of a link in one direction. Zero is a good link, which takes no time.
type Link struct {
	// Cut holds everything back. It arrives after the cut, if that does not break the connection.
	Cut bool
	// A packet takes Latency, and up to Jitter more.
	Latency, Jitter time.Duration
	// Loss is the share of packets that must be sent again, from 0 to less than 1.
	Loss float64
	// Bandwidth is in bytes a second, for all connections together; 0 is without a bound.
	Bandwidth int64
}

// Options of a network. The zero value works.
type Options struct {
	Seed uint64
	// Buffer is how many bytes a connection takes from its sender before the receiver has read
	// them. Default 256 KiB.
	Buffer int
	// Broken is how long a cut lasts before both ends of the connections over it give them up, as
	// keep-alive probes have them do. Default 30 seconds.
	Broken time.Duration
	// Trace hears what becomes of connections and links. It must not use the network. May be nil.
	Trace func(host, what string)
}

// EnsureDefaults gives the fields that are zero their defaults.
func (o *Options) EnsureDefaults() {
	if o.Buffer <= 0 {
		o.Buffer = 256 << 10
	}
	if o.Broken <= 0 {
		o.Broken = 30 * time.Second
	}
	if o.Trace == nil {
		o.Trace = func(string, string) {}
	}
}

// Network is a network of hosts.
type Network struct {
	o Options

	// mu guards everything of the network, its hosts and its connections. It is held for moments.
	mu    sync.Mutex
	rng   *rand.Rand
	hosts map[string]*host // by name and by address
	count int              // of hosts
	paths map[[2]*host]*path
	ports int // given out
}

type host struct {
	name      string
	ip        net.IP
	off       bool // without power
	stalled   bool
	listeners map[int]*listener // by port
}

// path is the link from one host to another.
type path struct {
	from, to *host
	link     Link
	free     time.Time // when all that was sent before is through, with a bandwidth
	streams  map[*stream]struct{}
	broken   *time.Timer // while the path is cut
}

// New returns a network without hosts.
func New(o Options) *Network {
	o.EnsureDefaults()
	return &Network{
		o: o, rng: rand.New(rand.NewPCG(o.Seed, 7<<32)),
		hosts: map[string]*host{}, paths: map[[2]*host]*path{},
	}
}

// AddHost adds a host and returns its address. Others reach it by that and by its name.
func (n *Network) AddHost(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count++
	h := &host{name: name, ip: net.IPv4(10, 0, byte(n.count>>8), byte(n.count)), listeners: map[int]*listener{}}
	n.hosts[name], n.hosts[h.ip.String()] = h, h
	return h.ip.String()
}

// SetLink sets the state of the link from one host to another.
func (n *Network) SetLink(from, to string, l Link) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, b := n.hosts[from], n.hosts[to]
	if a == nil || b == nil || a == b {
		return fmt.Errorf("no link from %q to %q", from, to)
	}
	n.setLink(n.path(a, b), l)
	return nil
}

func (n *Network) setLink(p *path, l Link) {
	if p.link == l {
		return
	}
	n.o.Trace(p.from.name, fmt.Sprintf("the link to %s is %s", p.to.name, l))
	before := p.blocked()
	p.link = l
	n.changed(p, before)
}

func (l Link) String() string {
	switch {
	case l.Cut:
		return "cut"
	case l == (Link{}):
		return "good"
	}
	return fmt.Sprintf("slow: %s and up to %s more, %.0f %% lost, %d bytes a second", l.Latency, l.Jitter, 100*l.Loss, l.Bandwidth)
}

// Heal makes every link the same.
func (n *Network) Heal(l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.sorted() {
		n.setLink(p, l)
	}
}

// sorted lists all paths in the same order at any time, so that random choices are the same too.
func (n *Network) sorted() []*path {
	list := make([]*host, n.count)
	for _, h := range n.hosts {
		list[int(h.ip.To4()[2])<<8+int(h.ip.To4()[3])-1] = h
	}
	var all []*path
	for _, a := range list {
		for _, b := range list {
			if a != b {
				all = append(all, n.path(a, b))
			}
		}
	}
	return all
}

// Address returns the address of a host, "" of one that there is not.
func (n *Network) Address(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[name]; h != nil {
		return h.ip.String()
	}
	return ""
}

// SetPower turns a host off or on. One that is off neither sends nor answers, and what it had not
// sent is lost. Other hosts learn that its connections are gone when it is on again,
// or when they give them up.
func (n *Network) SetPower(name string, on bool) error {
	return n.set(name, fmt.Sprintf("power is on: %t", on), func(h *host) { h.off = !on })
}

// SetStalled keeps back what a host sends and what is sent to it, or lets it continue.
func (n *Network) SetStalled(name string, stalled bool) error {
	return n.set(name, fmt.Sprintf("the network hangs: %t", stalled), func(h *host) { h.stalled = stalled })
}

// set changes the state of a host.
func (n *Network) set(name, what string, change func(*host)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[name]
	if h == nil {
		return fmt.Errorf("no host %q", name)
	}
	n.o.Trace(h.name, what)
	var all []*path
	for _, p := range n.sorted() {
		if p.from == h || p.to == h {
			all = append(all, p)
		}
	}
	before := make([]bool, len(all))
	for i, p := range all {
		before[i] = p.blocked()
	}
	change(h)
	for i, p := range all {
		if h.off && p.from == h {
			for s := range p.streams {
				s.forget()
			}
		}
		n.changed(p, before[i])
	}
	return nil
}

func (n *Network) path(from, to *host) *path {
	key := [2]*host{from, to}
	p := n.paths[key]
	if p == nil {
		p = &path{from: from, to: to, streams: map[*stream]struct{}{}}
		n.paths[key] = p
	}
	return p
}

func (p *path) blocked() bool {
	return p.link.Cut || p.from.off || p.to.off || p.from.stalled || p.to.stalled
}

// changed holds back what is on its way over a path that is blocked now, and lets it continue over
// one that no longer is.
func (n *Network) changed(p *path, before bool) {
	now := p.blocked()
	switch {
	case now == before:
	case now:
		at := time.Now()
		for s := range p.streams {
			s.hold(at)
		}
		p.broken = time.AfterFunc(n.o.Broken, func() { n.giveUp(p) })
	default:
		p.broken.Stop()
		for _, s := range p.ordered() {
			n.proceed(s)
		}
	}
}

// ordered lists the streams over a path by age.
func (p *path) ordered() []*stream {
	list := make([]*stream, 0, len(p.streams))
	for s := range p.streams {
		list = append(list, s)
	}
	sortByAge(list)
	return list
}

// giveUp ends the connections over a path that was blocked for long.
func (n *Network) giveUp(p *path) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !p.blocked() {
		return
	}
	for _, s := range p.ordered() {
		n.o.Trace(p.from.name, fmt.Sprintf("the connection %s timed out", s.reader))
		s.reader.fail(errTimedOut)
		s.reader.peer.fail(errTimedOut)
	}
}

// resend returns how much later data arrives that was lost by some chance, once or often.
func (n *Network) resend(p *path, bytes int) (late time.Duration) {
	if p.link.Loss <= 0 {
		return 0
	}
	lost := 1 - math.Pow(1-p.link.Loss, math.Ceil(float64(max(bytes, 1))/packet))
	for pause := firstResend; n.rng.Float64() < lost; pause = min(2*pause, longestResend) {
		late += pause
		lost = p.link.Loss // What arrived is not sent again.
	}
	return late
}

// passes returns how long the link takes for a packet.
func (n *Network) passes(p *path) time.Duration {
	d := p.link.Latency
	if p.link.Jitter > 0 {
		d += time.Duration(n.rng.Int64N(int64(p.link.Jitter)))
	}
	return d
}

// resolve finds the host and the port of an address, as one on another host means them.
func (n *Network) resolve(from *host, address string) (*host, int, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, 0, &net.AddrError{Err: "invalid port", Addr: address}
	}
	if ip := net.ParseIP(name); name == "" || name == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified()) {
		return from, int(number), nil
	}
	h := n.hosts[name]
	if h == nil {
		return nil, 0, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return h, int(number), nil
}

// port returns a port of a host that no one listens at.
func (n *Network) port(h *host) (int, error) {
	for range math.MaxUint16 - firstPort {
		n.ports++
		port := firstPort + n.ports%(math.MaxUint16-firstPort)
		if h.listeners[port] == nil {
			return port, nil
		}
	}
	return 0, errors.New("no port is free")
}
