package gossip

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/annalsdb/annals/event"
)

// Kinds of connections and the hello, described in the package comment. Do not change.
const (
	kindStream = 0x01
	kindHello  = 0x02

	helloVersion = 0xA1
	helloSize    = 1 + 16 + 2 + keyIDSize + secretSize
)

// hello is what two nodes tell each other of themselves.
type hello struct {
	node   event.ID
	port   uint16
	key    keyID
	secret secret
}

func (h *hello) encode() []byte {
	b := make([]byte, 0, helloSize)
	b = append(b, helloVersion)
	b = append(b, h.node[:]...)
	b = binary.BigEndian.AppendUint16(b, h.port)
	b = append(b, h.key[:]...)
	return append(b, h.secret[:]...)
}

// errOtherProtocol says that the other side speaks something else.
var errOtherProtocol = errors.New("the other side does not speak this gossip protocol")

func readHello(r io.Reader) (hello, error) {
	var b [helloSize]byte
	// The first byte alone tells another protocol, whose answer may be shorter than a hello.
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return hello{}, err
	}
	switch b[0] {
	case helloVersion:
	case tlsAlert, tlsHandshake:
		return hello{}, errPeerSecure
	default:
		return hello{}, fmt.Errorf("%w: its answer begins with %#02x", errOtherProtocol, b[0])
	}
	if _, err := io.ReadFull(r, b[1:]); err != nil {
		return hello{}, err
	}
	var h hello
	rest := b[1:]
	rest = rest[copy(h.node[:], rest):]
	h.port = binary.BigEndian.Uint16(rest)
	rest = rest[2:]
	rest = rest[copy(h.key[:], rest):]
	copy(h.secret[:], rest)
	if h.node.IsZero() || h.port == 0 {
		return hello{}, fmt.Errorf("%w: its hello lacks id or port", errOtherProtocol)
	}
	return h, nil
}

// greet exchanges hellos with the node at an address, of which the id may be
// known (it serves for finding the host that the certificate is to be for), and
// returns the id of the node that is there. Afterwards both can send each other packets.
func (t *transport) greet(ctx context.Context, to netip.AddrPort, name string) (event.ID, error) {
	ctx, cancel := context.WithTimeout(ctx, t.o.timeout)
	defer cancel()
	begun := time.Now()
	conn, err := t.dial(ctx, to, name, kindHello)
	if err == nil {
		var node event.ID
		node, err = t.converse(ctx, conn, to)
		// All has been said: what a failing close could still say is of no interest.
		_ = conn.Close()
		if err == nil {
			t.metrics.exchanges.Inc()
			t.metrics.greeted.ObserveSince(begun)
			return node, nil
		}
	}
	t.metrics.failed.Inc()
	t.metrics.ungreeted.ObserveSince(begun)
	return event.ID{}, err
}

func (t *transport) converse(ctx context.Context, conn net.Conn, to netip.AddrPort) (event.ID, error) {
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return event.ID{}, err
	}
	mine, key := t.hello()
	if _, err := conn.Write(mine.encode()); err != nil {
		return event.ID{}, err
	}
	theirs, err := readHello(conn)
	if t.o.security == nil && hungUp(err) {
		err = fmt.Errorf("%w (%w)", errPeerSecure, err)
	}
	if err != nil {
		return event.ID{}, fmt.Errorf("read the answer: %w", err)
	}
	if theirs.node == t.o.node || t.keys == nil {
		return theirs.node, nil
	}
	// It answered, hence it has read our key.
	return theirs.node, t.acquainted(theirs, key, to)
}

// answer is the other side of greet. The deadline of the connection is set.
func (t *transport) answer(conn net.Conn, from netip.AddrPort) error {
	theirs, err := readHello(conn)
	if err != nil {
		return err
	}
	mine, key := t.hello()
	if t.keys != nil && theirs.node != t.o.node {
		// Before answering: the other side sends packets once it has the answer.
		if err := t.keys.learn(theirs.node, theirs.key, theirs.secret, time.Now()); err != nil {
			return err
		}
	}
	if _, err := conn.Write(mine.encode()); err != nil {
		return err
	}
	if theirs.node == t.o.node || t.keys == nil {
		return nil
	}
	// Should the answer be lost after all, the other side asks for the key when our
	// packets come.
	return t.acquainted(theirs, key, netip.AddrPortFrom(from.Addr(), theirs.port))
}

func (t *transport) hello() (hello, *sendingKey) {
	h := hello{node: t.o.node, port: t.advertise.Port()}
	if t.keys == nil {
		return h, nil
	}
	key := t.keys.sending()
	h.key, h.secret = key.id, key.secret
	return h, key
}

// acquainted notes the keys that have been exchanged and sends what waited for it.
func (t *transport) acquainted(with hello, key *sendingKey, at netip.AddrPort) error {
	now := time.Now()
	if err := t.keys.learn(with.node, with.key, with.secret, now); err != nil {
		return err
	}
	for _, packet := range t.keys.introduced(with.node, key, now) {
		if err := t.send(packet, at); err != nil {
			return err
		}
	}
	return nil
}

// maxGreeting is how many hellos are exchanged at a time because of packets, of either kind.
const maxGreeting = 8

// greetSoon exchanges hellos in the background, unless this is being done or was
// tried a moment ago. The node is zero if somebody unknown is to be asked, and these
// have attempts of their own: a flood of packets with invented sources must not
// keep this node from those that it wants to reach.
func (t *transport) greetSoon(to netip.AddrPort, node event.ID) {
	attempts := &t.introductions
	if node.IsZero() {
		attempts = &t.questions
	}
	if !attempts.begin(to, time.Now()) {
		return
	}
	started := t.spawn(func() {
		name := ""
		if !node.IsZero() {
			name = node.String()
		}
		found, err := t.greet(t.ctx, to, name)
		met := err == nil && (node.IsZero() || found == node)
		attempts.end(to, met, time.Now())
		if !met {
			t.keys.abandon(node)
		}
		if err != nil && t.ctx.Err() == nil {
			t.complain("cannot exchange gossip keys", to.String(), err)
		}
	})
	if !started {
		attempts.end(to, false, time.Now())
	}
}

// maxAttempts bounds the addresses that attempts remembers.
const maxAttempts = 256

// attempts limits how often an address is connected to because of packets: anybody can
// send packets with any source.
type attempts struct {
	first, last time.Duration // pause after a failure, doubling from the first to the last; after success the first

	mu   sync.Mutex // guards what follows
	of   map[netip.AddrPort]*attempt
	busy int
}

type attempt struct {
	busy  bool
	pause time.Duration
	next  time.Time
}

// begin says whether an attempt may be made now. Each one allowed must be followed by an end.
func (a *attempts) begin(to netip.AddrPort, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy >= maxGreeting {
		return false
	}
	one, ok := a.of[to]
	if !ok {
		if len(a.of) >= maxAttempts && !a.makeRoom(now) {
			return false
		}
		one = &attempt{}
		a.of[to] = one
	}
	if one.busy || now.Before(one.next) {
		return false
	}
	one.busy = true
	a.busy++
	return true
}

// makeRoom forgets the addresses that could be tried again; the pauses of the others must hold.
func (a *attempts) makeRoom(now time.Time) bool {
	for to, one := range a.of {
		if !one.busy && now.After(one.next) {
			delete(a.of, to)
		}
	}
	return len(a.of) < maxAttempts
}

func (a *attempts) end(to netip.AddrPort, ok bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.of[to]
	one.busy = false
	a.busy--
	if ok || one.pause == 0 {
		one.pause = a.first
	} else {
		one.pause = min(2*one.pause, a.last)
	}
	one.next = now.Add(one.pause)
}

// deliver hands a packet to memberlist.
func (t *transport) deliver(packet []byte, from netip.AddrPort, at time.Time) {
	t.metrics.received.Inc()
	select {
	case t.packets <- &memberlist.Packet{Buf: packet, From: net.UDPAddrFromAddrPort(from), Timestamp: at}:
	case <-t.ctx.Done():
	}
}
