package gossip

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/annalsdb/annals/stats"
)

// silent listens and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestOtherAuthority(t *testing.T) {
	c := newCluster(t)
	c.open(1, newAuthority(t).secured())
	c.open(2, newAuthority(t).secured())
	eventually(t, "the refusal is logged on both sides", func() bool {
		return c.logs.warnings("certificate signed by unknown authority") > 0 && c.logs.warnings("1.gossip: gossip connection refused") > 0
	})
	c.sees("1+", 1)
	c.sees("2+", 2)
}

func TestPlainAndSecure(t *testing.T) {
	for name, first := range map[string]bool{"joins a secure node": true, "is joined by a secure node": false} {
		t.Run("plain node "+name, func(t *testing.T) {
			c := newCluster(t)
			secure := newAuthority(t).secured()
			if first {
				c.open(1, secure)
				c.open(2)
			} else {
				c.open(1)
				c.open(2, secure)
			}
			eventually(t, "both say why", func() bool {
				return c.logs.warnings(errPeerInsecure.Error()) > 0 && c.logs.warnings(errPeerSecure.Error()) > 0
			})
			c.sees("1+", 1)
			c.sees("2+", 2)
		})
	}
}

// A node whose certificates no longer count loses its place, and gets it back with new ones.
func TestCertificatesExchanged(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	c := newCluster(t)
	all := map[byte]*papers{}
	for n := byte(1); n <= 3; n++ {
		all[n] = before.papers("127.0.0.1")
		c.open(n, func(o *Options) {
			o.Security = all[n]
			o.timing.rekey, o.timing.overlap = time.Second, 200*time.Millisecond
		})
	}
	c.sees("1+ 2+ 3+", 1, 2, 3)
	exchange := func(n byte) {
		cert := after.issue("127.0.0.1")
		all[n].cert.Store(&cert)
		all[n].pool.Store(after.pool)
	}
	exchange(1)
	exchange(2)
	c.sees("1+ 2+ 3x", 1, 2)
	c.sees("1x 2x 3+", 3)
	exchange(3)
	c.sees("1+ 2+ 3+", 1, 2, 3)
}

// The renewal of keys goes unnoticed.
func TestRekey(t *testing.T) {
	authority := newAuthority(t)
	c := newCluster(t)
	for n := byte(1); n <= 3; n++ {
		c.open(n, authority.secured(), func(o *Options) {
			o.timing.rekey, o.timing.overlap = 400*time.Millisecond, 200*time.Millisecond
			o.Timeout = patience // Nobody counts as dead because the machine is busy.
		})
	}
	c.sees("1+ 2+ 3+", 1, 2, 3)
	before := c.nodes[1].Members()
	keys := map[keyID]bool{}
	eventually(t, "keys are renewed", func() bool {
		keys[c.nodes[1].transport.keys.sending().id] = true
		return len(keys) > 4
	})
	if after := c.nodes[1].Members(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("members changed from %v to %v", before, after)
	}
	if c.nodes[1].metrics.replayed.Value() > 0 || c.nodes[1].metrics.forged.Value() > 0 {
		t.Error("packets were refused")
	}
	r := c.nodes[1].transport.keys
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.received) > 4 || len(r.peers) > 2 {
		t.Errorf("%d keys of two nodes are kept, %d peers", len(r.received), len(r.peers))
	}
}

// The certificate of a node that advertises a name is to be for this name, for
// seeds as for nodes of which others told.
func TestHostNames(t *testing.T) {
	authority := newAuthority(t)
	c := newCluster(t)
	all := map[byte]*papers{}
	for n := byte(1); n <= 3; n++ {
		all[n] = authority.papers("localhost")
		for opened := false; !opened; {
			port := freePort(t)
			_, err := c.tryOpen(n, func(o *Options) {
				o.Security = all[n]
				o.Bind = fmt.Sprintf("127.0.0.1:%d", port)
				o.Advertise = fmt.Sprintf("localhost:%d", port)
				o.Self.ReplicationAddress = fmt.Sprintf("localhost:%d", port+1)
			})
			if opened = err == nil; !opened && !errors.Is(err, syscall.EADDRINUSE) { // Somebody may have taken it meanwhile.
				t.Fatal(err)
			}
		}
		_, port1, err := net.SplitHostPort(c.nodes[1].Addr())
		if err != nil {
			t.Fatal(err)
		}
		c.seeds.Store(&[]string{"localhost:" + port1})
	}
	c.sees("1+ 2+ 3+", 1, 2, 3)
	c.kill(1)
	c.sees("1x 2+ 3+", 2, 3)
	for n := byte(2); n <= 3; n++ {
		all[n].mu.Lock()
		if len(all[n].hosts) != 1 || all[n].hosts["localhost"] == 0 {
			t.Errorf("node %d wanted certificates for %v", n, all[n].hosts)
		}
		all[n].mu.Unlock()
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// newTestTransport is a transport without memberlist: its packets are read from packets.
func newTestTransport(t *testing.T, n byte, security Security, log io.Writer) *transport {
	t.Helper()
	var o Options
	quick(&o)
	o.EnsureDefaults()
	logger := hclog.New(&hclog.LoggerOptions{Output: log})
	tr, err := newTransport(context.Background(), transportOptions{
		bind: netip.MustParseAddrPort("127.0.0.1:0"), node: id(n), security: security, timeout: patience, timing: o.timing,
		logger: logger, complaint: newLimiter(time.Minute), metrics: newMetrics(new(stats.Registry)), allow: o.allow,
		hostOf: func(a netip.AddrPort, _ string) string { return a.Addr().String() },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	return tr
}

func address(t *transport) memberlist.Address {
	return memberlist.Address{Addr: t.advertise.String(), Name: t.o.node.String()}
}

func send(t *testing.T, from, to *transport, text string) {
	t.Helper()
	if _, err := from.WriteToAddress([]byte(text), address(to)); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, at *transport, want string) {
	t.Helper()
	select {
	case p := <-at.packets:
		if string(p.Buf) != want {
			t.Fatalf("received %q, want %q", p.Buf, want)
		}
	case <-time.After(patience):
		t.Fatalf("%q did not arrive", want)
	}
}

// heldPapers are shown to others when they may be.
type heldPapers struct {
	*papers
	shown chan struct{}
}

func (h heldPapers) Client(host string) *tls.Config {
	<-h.shown
	return h.papers.Client(host)
}

// What comes before the keys are exchanged waits for it, in order.
func TestFirstPackets(t *testing.T) {
	authority := newAuthority(t)
	held := heldPapers{authority.papers("127.0.0.1"), make(chan struct{})}
	a, b := newTestTransport(t, 1, held, io.Discard), newTestTransport(t, 2, authority.papers("127.0.0.1"), io.Discard)
	for i := range maxWaiting {
		send(t, a, b, fmt.Sprint(i))
	}
	close(held.shown)
	for i := range maxWaiting {
		receive(t, b, fmt.Sprint(i))
	}
	eventually(t, "the hello is counted", func() bool { return a.metrics.exchanges.Value() == 1 })
	send(t, b, a, "the other way")
	receive(t, a, "the other way")
}

func TestRefusedPackets(t *testing.T) {
	authority := newAuthority(t)
	var log logs
	a, b := newTestTransport(t, 1, authority.papers("127.0.0.1"), &log), newTestTransport(t, 2, authority.papers("127.0.0.1"), &log)
	send(t, a, b, "first")
	receive(t, b, "first")
	sealed, _ := a.keys.seal([]byte("second"), id(2), time.Now())
	raw := func(packet []byte) {
		t.Helper()
		if _, err := a.udp.WriteToUDPAddrPort(packet, b.advertise); err != nil {
			t.Fatal(err)
		}
	}
	raw(sealed)
	receive(t, b, "second")

	raw(sealed)
	eventually(t, "the replay is noticed", func() bool { return b.metrics.replayed.Value() == 1 })

	// Any byte changed, or the packet cut anywhere, or meant for another node.
	fresh, _ := a.keys.seal([]byte("third"), id(2), time.Now())
	wrong := uint64(0)
	total := func() uint64 { return b.metrics.forged.Value() + b.metrics.unknown.Value() }
	for i := range fresh {
		damaged := append([]byte(nil), fresh...)
		damaged[i] ^= 0x10
		raw(damaged)
		raw(fresh[:max(i, 1)])
		wrong += 2
		eventually(t, "it is refused", func() bool { return total() == wrong })
	}
	other, _ := a.keys.sending().seal([]byte("for another"), id(3))
	raw(other)
	raw([]byte{packetPlain, 1})
	eventually(t, "they are refused", func() bool { return total() == wrong+2 })
	eventually(t, "the plain packet is logged", func() bool { return log.warnings(errPeerInsecure.Error()) > 0 })
	// None of it moved the window.
	raw(fresh)
	receive(t, b, "third")
}

// A node that restarted asks for the keys of packets that it cannot open.
func TestUnknownKey(t *testing.T) {
	authority := newAuthority(t)
	a, b := newTestTransport(t, 1, authority.papers("127.0.0.1"), io.Discard), newTestTransport(t, 2, authority.papers("127.0.0.1"), io.Discard)
	send(t, a, b, "first")
	receive(t, b, "first")
	b.keys.mu.Lock()
	clear(b.keys.received)
	b.keys.mu.Unlock()
	send(t, a, b, "lost")
	eventually(t, "the key is asked for", func() bool { return b.metrics.exchanges.Value() == 1 })
	send(t, a, b, "second")
	receive(t, b, "second")
}

// Packets with an unknown key and invented sources cause few connections, and none
// that keep this node from those it wants to reach.
func TestFloodOfUnknownKeys(t *testing.T) {
	authority := newAuthority(t)
	a, b := newTestTransport(t, 1, authority.papers("127.0.0.1"), io.Discard), newTestTransport(t, 2, authority.papers("127.0.0.1"), io.Discard)
	target, err := netip.ParseAddrPort(silent(t))
	if err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, sealedOverhead)
	packet[0] = packetSealed
	for i := range 1000 {
		binary.BigEndian.PutUint64(packet[1:], uint64(i))
		from := target // 1000 addresses of one machine that does not answer
		if i > 0 {
			from = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}), target.Port())
		}
		b.received(packet, from, time.Now())
	}
	b.questions.mu.Lock()
	if b.questions.busy > maxGreeting || len(b.questions.of) > maxAttempts {
		t.Errorf("%d connections, %d addresses", b.questions.busy, len(b.questions.of))
	}
	b.questions.mu.Unlock()
	send(t, b, a, "hello")
	receive(t, a, "hello")
}

// Somebody who holds connections open takes no more than there are places.
func TestTooManyConnections(t *testing.T) {
	var log logs
	a := newTestTransport(t, 1, nil, &log)
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for range maxAccepted + 1 {
		c, err := net.Dial("tcp", a.advertise.String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	last := held[maxAccepted]
	if err := last.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the last connection: %v", err)
	}
	eventually(t, "it is logged", func() bool { return log.warnings("too many gossip connections") > 0 })
	for _, c := range held {
		_ = c.Close()
	}
	eventually(t, "the places are free again", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.slots == 0
	})
}

// A server's own certificate is not enough: the dialling side must show one.
func TestNoClientCertificate(t *testing.T) {
	authority := newAuthority(t)
	var log logs
	a := newTestTransport(t, 1, authority.papers("127.0.0.1"), &log)
	naked := authority.papers("127.0.0.1")
	naked.cert.Store(&tls.Certificate{})
	b := newTestTransport(t, 2, naked, io.Discard)
	if _, err := b.greet(context.Background(), a.advertise, ""); err == nil {
		t.Error("a hello without a certificate was answered")
	}
	eventually(t, "it is logged", func() bool { return log.warnings("didn't provide a certificate") > 0 })
}

func TestStrangers(t *testing.T) {
	for name, c := range map[string]struct{ sent, logged string }{
		"other protocol": {"GET / HTTP/1.1\r\n\r\n", "begins with 0x47"},
		"TLS":            {"\x16\x03\x01", errPeerSecure.Error()},
		"other version":  {"\x02\xff", "its answer begins with 0xff"},
		"empty hello":    {"\x02\xa1" + strings.Repeat("\x00", helloSize-1), "lacks id or port"},
		"short hello":    {"\x02\xa1\x00", "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			var log logs
			a := newTestTransport(t, 1, nil, &log)
			conn, err := net.Dial("tcp", a.advertise.String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := conn.Write([]byte(c.sent)); err != nil {
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).CloseWrite() // it may have been refused already
			eventually(t, "it is logged", func() bool { return log.warnings(c.logged) > 0 })
		})
	}
}
