package gossip

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
)

// Pauses after a failure to accept or receive, doubling from the first to the last.
const (
	failurePause    = 5 * time.Millisecond
	failurePauseMax = time.Second
)

// pauseAfter waits and returns the next pause; false says that the transport has ended.
func (t *transport) pauseAfter(pause time.Duration) (time.Duration, bool) {
	pause = max(failurePause, min(2*pause, failurePauseMax))
	return pause, clock.Sleep(t.ctx, pause) == nil
}

// accept takes the connections of others.
func (t *transport) accept() {
	defer t.wg.Done()
	var pause time.Duration
	for {
		raw, err := t.tcp.AcceptTCP()
		if err != nil {
			if t.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			t.complain("cannot accept gossip connections", t.bound.String(), err)
			var ok bool
			if pause, ok = t.pauseAfter(pause); !ok {
				return
			}
			continue
		}
		pause = 0
		from := raw.RemoteAddr().(*net.TCPAddr).AddrPort()
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		c, err := t.track(raw, true)
		if err == nil && !t.spawn(func() { t.serve(c, from) }) {
			err = c.Close()
		}
		if err != nil && t.ctx.Err() == nil {
			t.complain("gossip connection refused", from.Addr().String(), err)
		}
	}
}

// serve finds out what a connection is for and lets memberlist or the exchange
// of hellos have it.
func (t *transport) serve(raw *conn, from netip.AddrPort) {
	c, kind, err := t.opened(raw)
	if err == nil {
		switch kind {
		case kindStream:
			select {
			case t.streams <- c: // memberlist closes it
				return
			case <-t.ctx.Done():
			}
		case kindHello:
			if err = c.SetDeadline(time.Now().Add(t.o.timeout)); err == nil {
				err = t.answer(c, from)
			}
		case tlsHandshake:
			err = errPeerSecure
		default:
			err = fmt.Errorf("%w: it begins with %#02x", errOtherProtocol, kind)
		}
	}
	// An end before the first byte is somebody who looks whether the port is open.
	if err != nil && t.ctx.Err() == nil && !errors.Is(err, io.EOF) {
		t.complain("gossip connection refused", from.Addr().String(), err)
	}
	// What a failing close could still say is of no interest: nothing is expected from the connection.
	_ = raw.Close()
}

// opened does the TLS of an accepted connection and reads its first byte.
func (t *transport) opened(raw *conn) (net.Conn, byte, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.o.timeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, 0, err
	}
	var c net.Conn = raw
	if t.o.security != nil {
		var err error
		if c, err = t.admitted(ctx, raw); err != nil {
			return nil, 0, err
		}
	}
	var kind [1]byte
	if _, err := io.ReadFull(c, kind[:]); err != nil {
		return nil, 0, err
	}
	return c, kind[0], c.SetDeadline(time.Time{})
}

// admitted does the TLS of an accepted connection. Whoever shows no certificate is refused.
func (t *transport) admitted(ctx context.Context, raw net.Conn) (net.Conn, error) {
	given := t.o.security.Server()
	if given == nil {
		return nil, errors.New("there is no TLS configuration")
	}
	config := given.Clone()
	config.MinVersion = tls.VersionTLS13
	config.SessionTicketsDisabled = true // each connection shows certificates anew
	if config.VerifyConnection == nil && config.VerifyPeerCertificate == nil {
		config.ClientAuth = tls.RequireAndVerifyClientCert // nobody else would look at it
	}
	s := tls.Server(raw, config)
	if err := s.HandshakeContext(ctx); err != nil {
		var record tls.RecordHeaderError
		if errors.As(err, &record) {
			err = fmt.Errorf("%w (%w)", errPeerInsecure, err)
		}
		return nil, err
	}
	if len(s.ConnectionState().PeerCertificates) == 0 {
		return nil, errNoCert
	}
	return s, nil
}

// maxPacket is the largest UDP packet there can be.
const maxPacket = 64 << 10

// receive takes the packets of others.
func (t *transport) receive() {
	defer t.wg.Done()
	buffer := make([]byte, maxPacket)
	var pause time.Duration
	for {
		n, from, err := t.udp.ReadFromUDPAddrPort(buffer)
		if err != nil {
			if t.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			t.complain("cannot receive gossip packets", t.bound.String(), err)
			var ok bool
			if pause, ok = t.pauseAfter(pause); !ok {
				return
			}
			continue
		}
		pause = 0
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if !t.o.allow(from) || n == 0 {
			continue
		}
		t.received(buffer[:n], from, time.Now())
	}
}

// received judges one packet. The buffer is used again.
func (t *transport) received(b []byte, from netip.AddrPort, now time.Time) {
	if t.keys == nil {
		if b[0] != packetPlain || len(b) == plainOverhead {
			t.metrics.forged.Inc()
			if b[0] == packetSealed {
				t.complain("gossip packet dropped", from.String(), errPeerSecure)
			}
			return
		}
		t.deliver(append([]byte(nil), b[plainOverhead:]...), from, now)
		return
	}
	if b[0] == packetPlain {
		t.metrics.forged.Inc()
		t.complain("gossip packet dropped", from.String(), errPeerInsecure)
		return
	}
	switch packet, err := t.keys.open(b, now); err {
	case nil:
		if len(packet) > 0 {
			t.deliver(packet, from, now)
		}
	case errUnknownKey:
		t.metrics.unknown.Inc()
		t.greetSoon(from, event.ID{})
	case errReplayed:
		t.metrics.replayed.Inc()
	default:
		t.metrics.forged.Inc()
	}
}

// keepKeys renews the sending key and forgets old ones.
func (t *transport) keepKeys() {
	defer t.wg.Done()
	for clock.Sleep(t.ctx, min(t.o.timing.rekey, t.o.timing.overlap)/4) == nil {
		if err := t.keys.tick(time.Now()); err != nil {
			t.complain("cannot renew the gossip key", t.bound.String(), err)
		}
	}
}
