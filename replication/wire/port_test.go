package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/internal/throttle"
)

func TestPeersKnowEachOther(t *testing.T) {
	ca := newAuthority(t)
	for name, secured := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			a := Options{Node: node(1), Cluster: member(clusterA), Advertise: "a.example:1112"}
			b := Options{Node: node(2), Cluster: member(clusterA)}
			if secured {
				a.Security, b.Security = ca.security(1), ca.security(2)
			}
			pa, pb := open(t, a), open(t, b)
			if pa.Advertised() != "a.example:1112" || pb.Advertised() != pb.Addr().String() {
				t.Errorf("advertised %q and %q", pa.Advertised(), pb.Advertised())
			}
			l := pb.Listener(KindRelay)
			c := check.Value(dialAnd(pa, KindRelay, pb, l)).Must(t)
			defer func() { _, _ = c[0].Close(), c[1].Close() }()
			for i, want := range []Identity{{Node: node(2), Cluster: clusterA}, {Node: node(1), Cluster: clusterA}} {
				if ours, ok := unwrap(tls.Client(c[i], &tls.Config{ServerName: "x"})); !ok || ours.peer != want {
					t.Errorf("side %d is a connection of a port: %t", i, ok)
				}
				if Due(c[i]) {
					t.Errorf("side %d is due", i)
				}
			}
			check.Must(t, check.Err(io.WriteString(c[0], "hello")))
			got := make([]byte, 5)
			if _, err := io.ReadFull(c[1], got); err != nil || string(got) != "hello" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	plain, other := net.Pipe()
	defer func() { _, _ = plain.Close(), other.Close() }()
	if Due(plain) {
		t.Error("a connection of another owner is due")
	}
}

// dialAnd dials and accepts.
func dialAnd(from *Port, k Kind, to *Port, l net.Listener) (c [2]net.Conn, err error) {
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := l.Accept()
		accepted <- c
	}()
	if c[0], err = from.Dial(context.Background(), k, to.Addr().String()); err != nil {
		_ = l.Close()
		<-accepted
		return c, err
	}
	c[1] = <-accepted
	return c, nil
}

func TestRefusals(t *testing.T) {
	none := event.ID{}
	cases := []struct {
		name         string
		own, other   event.ID // clusters of the acceptor and of the dialler
		incarnation  uint32   // of the dialler
		dialler      event.ID // default: node 2
		kind, listen Kind
		status       Status // 0: accepted
		reason       string
	}{
		{name: "same cluster, raft", own: clusterA, other: clusterA, kind: KindRaft, listen: KindRaft},
		{name: "same cluster, relay", own: clusterA, other: clusterA, kind: KindRelay, listen: KindRelay},
		{name: "same cluster, service", own: clusterA, other: clusterA, kind: KindService, listen: KindService},
		{name: "service without clusters", kind: KindService, listen: KindService},
		{name: "service for a joiner", own: clusterA, kind: KindService, listen: KindService},
		{name: "service of a joiner", other: clusterA, kind: KindService, listen: KindService},
		{name: "other cluster, service", own: clusterA, other: clusterB, kind: KindService, listen: KindService,
			status: StatusOtherCluster, reason: "this node belongs to cluster " + clusterA.String() + ", the other to " + clusterB.String()},
		{name: "other cluster, raft", own: clusterA, other: clusterB, kind: KindRaft, listen: KindRaft,
			status: StatusOtherCluster, reason: "this node belongs to cluster " + clusterA.String() + ", the other to " + clusterB.String()},
		{name: "raft without own cluster", own: none, other: clusterA, kind: KindRaft, listen: KindRaft,
			status: StatusNoCluster, reason: "this node belongs to no cluster yet"},
		{name: "relay without other cluster", own: clusterA, other: none, kind: KindRelay, listen: KindRelay,
			status: StatusNoCluster, reason: "the other node belongs to no cluster yet"},
		{name: "install without other cluster", own: clusterA, other: none, kind: kindInstall, listen: kindInstall,
			status: StatusNoCluster, reason: "the other node belongs to no cluster yet"},
		{name: "other lineage, service", own: clusterA, other: clusterA, incarnation: 7, kind: KindService, listen: KindService},
		{name: "other lineage, raft", own: clusterA, other: clusterA, incarnation: 0xabcd, kind: KindRaft, listen: KindRaft,
			status: StatusOtherIncarnation, reason: "node " + node(1).String() + " at one.example:1112 belongs to incarnation 00000000 of cluster " + clusterA.String() +
				", node " + node(2).String() + " to incarnation 0000abcd: to give up the latter's history, stop that node, rename its folder raft, and start it: it joins with its data"},
		{name: "no listener", own: clusterA, other: clusterA, kind: KindRaft, listen: KindService,
			status: StatusNoListener, reason: "this node takes no connections of the kind raft at the moment"},
		{name: "unknown kind", own: clusterA, other: clusterA, kind: 77, listen: KindService,
			status: StatusNoListener, reason: "this node takes no connections of the kind kind 77 at the moment"},
		{name: "one id twice", own: clusterA, other: clusterA, dialler: node(1), kind: KindService, listen: KindService,
			status: StatusSameNode, reason: "two nodes have the id " + node(1).String() + ", or this one dialled itself"},
	}
	ca := newAuthority(t)
	for _, secured := range []bool{false, true} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s, TLS %t", c.name, secured), func(t *testing.T) {
				var log lines
				if c.dialler.IsZero() {
					c.dialler = node(2)
				}
				own := Options{Node: node(1), Cluster: member(c.own), Advertise: "one.example:1112", Logger: log.logger(hclog.Debug)}
				other := Options{Node: c.dialler, Cluster: member(c.other), Incarnation: func() uint32 { return c.incarnation }}
				if secured {
					own.Security, other.Security = ca.security(1), ca.security(2)
				}
				to, from := open(t, own), open(t, other)
				echo(t, to, c.listen)
				conn, err := from.Dial(t.Context(), c.kind, to.Addr().String())
				if c.status == StatusAccepted {
					check.Must(t, err)
					say(t, conn, "hello")
					check.NoError(t, conn.Close())
					return
				}
				want := RefusedError{Address: to.Addr().String(), Status: c.status, Reason: c.reason, Peer: Identity{Node: node(1), Cluster: c.own}}
				check.Equal(t, *refused(t, err), want)
				// A second time is not logged again.
				if _, err := from.Dial(t.Context(), c.kind, to.Addr().String()); err == nil {
					t.Error("accepted the second time")
				}
				testkit.Eventually(t, patience, func() error {
					if n := to.metrics.refused.Value(); n != 2 {
						return fmt.Errorf("%d refusals counted", n)
					}
					return nil
				})
				if got := log.with(c.reason); len(got) != 1 || !strings.Contains(got[0], "peer=127.0.0.1:") {
					t.Errorf("logged %q", got)
				}
			})
		}
	}
}

// A node of a version without cluster incarnations accepts all nodes of its cluster: the dialling
// node checks the incarnation itself.
func TestOtherIncarnationOfTheVersionBefore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.Must(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := readRequest(c, nil); err == nil {
				a := answer{version: 1, status: StatusAccepted, Identity: Identity{Node: node(1), Cluster: clusterA}}
				_, _ = c.Write(a.encode())
			}
			_ = c.Close()
		}
	}()
	p := open(t, Options{Node: node(2), Cluster: member(clusterA), Incarnation: func() uint32 { return 7 }})
	_, err = p.Dial(t.Context(), KindRaft, l.Addr().String())
	if got := refused(t, err); got.Status != StatusOtherIncarnation {
		t.Errorf("got %+v", got)
	}
	c, err := p.Dial(t.Context(), KindService, l.Addr().String())
	check.Must(t, err)
	check.NoError(t, c.Close())
}

func TestOtherFormatVersion(t *testing.T) {
	var log lines
	p := open(t, Options{Node: node(1), Cluster: member(clusterA), Logger: log.logger(hclog.Warn)})
	echo(t, p, KindService)
	raw, err := net.Dial("tcp", p.Addr().String())
	check.Must(t, err)
	defer func() { _ = raw.Close() }()
	// A longer request than ours, of which this node cannot know.
	q := request{version: 9, kind: KindService, Identity: Identity{Node: node(2)}}
	check.Must(t, check.Err(raw.Write(append(q.encode(), make([]byte, 3000)...))))
	got, err := readAnswer(raw)
	want := answer{version: 1, status: StatusOtherFormat, Identity: Identity{Node: node(1), Cluster: clusterA},
		reason: "this node speaks version 1 of the protocol between nodes, the other 9"}
	check.Must(t, err)
	check.Equal(t, got, want)
}

// A node that runs with TLS and one that does not both say so.
func TestMismatchOfTLS(t *testing.T) {
	ca := newAuthority(t)
	cases := []struct {
		name     string
		own      bool // the acceptor has TLS
		status   Status
		logged   string
		received string
	}{
		{"plain to TLS", true, StatusWantsTLS, "this node is configured for TLS between nodes, the other for plain TCP",
			"this node is configured for TLS between nodes, the other for plain TCP"},
		{"TLS to plain", false, StatusWantsPlain, "this node is configured for plain TCP between nodes, the other for TLS",
			"that node is configured for plain TCP between nodes, this one for TLS"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var log lines
			own := Options{Node: node(1), Cluster: member(clusterA), Logger: log.logger(hclog.Warn)}
			other := Options{Node: node(2), Cluster: member(clusterA)}
			if c.own {
				own.Security = ca.security(1)
			} else {
				other.Security = ca.security(2)
			}
			to, from := open(t, own), open(t, other)
			echo(t, to, KindService)
			_, err := from.Dial(t.Context(), KindService, to.Addr().String())
			if got := refused(t, err); got.Status != c.status || got.Reason != c.received {
				t.Errorf("got %+v", got)
			}
			testkit.Eventually(t, patience, func() error {
				if got := log.with(c.logged); len(got) != 1 {
					return fmt.Errorf("logged %q", log.String())
				}
				return nil
			})
		})
	}
}

func TestCertificatesAreChecked(t *testing.T) {
	ca, foreign := newAuthority(t), newAuthority(t)
	good := ca.security(1)
	cases := []struct {
		name       string
		own, other *security
		err        string
		by         int // who refuses: 1 is the acceptor
	}{
		{"the acceptor's is for another host", &security{pool: ca.pool, cert: ca.issue(1, nil, "elsewhere.example")}, ca.security(2), "127.0.0.1", 2},
		{"the acceptor's is of another authority", foreign.security(1), ca.security(2), "unknown authority", 2},
		{"the dialler's is of another authority", good, &security{pool: ca.pool, cert: foreign.issue(2, loopback)}, "remote error: tls", 1},
		{"the dialler has none", good, &security{pool: ca.pool}, "remote error: tls", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var log, dialler lines
			to := open(t, Options{Node: node(1), Security: c.own, Logger: log.logger(hclog.Warn)})
			from := open(t, Options{Node: node(2), Security: c.other, Logger: dialler.logger(hclog.Warn)})
			echo(t, to, KindService)
			_, err := from.Dial(t.Context(), KindService, to.Addr().String())
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), to.Addr().String()) {
				t.Errorf("error %v", err)
			}
			testkit.Eventually(t, patience, func() error {
				if got := log.with("TLS"); len(got) != 1 {
					return fmt.Errorf("logged %q", log.String())
				}
				return nil
			})
			if c.by == 0 {
				return
			}
			// Both say who refuses whom, once.
			_, _ = from.Dial(t.Context(), KindService, to.Addr().String())
			own, other := &log, &dialler
			if c.by == 2 {
				own, other = other, own
			}
			testkit.Eventually(t, patience, func() error {
				for said, by := range map[string]*lines{"this node refuses the certificate of another node": own, "another node refuses the certificate of this node": other} {
					if got := by.with(said); len(got) != 1 {
						return fmt.Errorf("%q is not said once: %q", said, by.String())
					}
				}
				if said := from.Distrust(); !strings.Contains(said, "refuses the certificate of") {
					return fmt.Errorf("the port tells %q", said)
				}
				return nil
			})
			if said := to.Distrust(); said != "" { // A client that is not a node may have dialed.
				t.Errorf("the port that was dialed tells %q", said)
			}
			if c.by == 1 { // It gets a good one.
				c.other.exchange(ca.issue(2, loopback))
				check.Must(t, check.Err(from.Dial(t.Context(), KindService, to.Addr().String())))
				testkit.Eventually(t, patience, func() error {
					if said := to.Distrust() + from.Distrust(); said != "" {
						return fmt.Errorf("the ports still tell %q", said)
					}
					return nil
				})
			}
		})
	}
}

// A connection made after an exchange shows the new certificate, never a resumed session.
func TestCertificatesAreExchanged(t *testing.T) {
	ca := newAuthority(t)
	own, other := ca.security(1), ca.security(2)
	to, from := open(t, Options{Node: node(1), Security: own}), open(t, Options{Node: node(2), Security: other})
	echo(t, to, KindService)
	for range 2 {
		c := check.Value(from.Dial(t.Context(), KindService, to.Addr().String())).Must(t)
		say(t, c, "hello")
		check.NoError(t, c.Close())
		own.exchange(ca.issue(11, loopback))
		other.exchange(ca.issue(12, loopback))
	}
	if a, b := fmt.Sprint(own.shown()), fmt.Sprint(other.shown()); a != "[2 12]" || b != "[1 11]" {
		t.Errorf("the acceptor saw %s, the dialler %s", a, b)
	}
}

func TestSilentConnections(t *testing.T) {
	ca := newAuthority(t)
	for name, s := range map[string]Security{"plain": nil, "TLS": ca.security(1)} {
		first := magic
		if s != nil {
			first = "\x16\x03\x01"
		}
		// silence makes connections of which one begins as a node would and stops.
		silence := func(t *testing.T, to *Port) (silent []net.Conn) {
			t.Helper()
			for i := range 3 {
				c := check.Value(net.Dial("tcp", to.Addr().String())).Must(t)
				t.Cleanup(func() { _ = c.Close() })
				check.Must(t, check.Err(io.WriteString(c, first[:3*(i%2)])))
				silent = append(silent, c)
			}
			return silent
		}
		t.Run(name+", hold up no node", func(t *testing.T) {
			to := open(t, Options{Node: node(1), Security: s, HandshakeTimeout: time.Hour})
			echo(t, to, KindService)
			other := Options{Node: node(2)}
			if s != nil {
				other.Security = ca.security(2)
			}
			silence(t, to)
			c, err := open(t, other).Dial(t.Context(), KindService, to.Addr().String())
			check.Must(t, err)
			say(t, c, "not held up")
			_ = c.Close()
		})
		t.Run(name+", are ended", func(t *testing.T) {
			var log lines
			to := open(t, Options{Node: node(1), Security: s, HandshakeTimeout: 100 * time.Millisecond, Logger: log.logger(hclog.Warn)})
			for _, c := range silence(t, to) {
				_ = c.SetReadDeadline(time.Now().Add(patience))
				if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a silent connection was answered or left open: %v", err)
				}
			}
			testkit.Eventually(t, patience, func() error {
				if got := log.with("no complete request in time"); len(got) != 1 {
					return fmt.Errorf("logged %q", log.String())
				}
				return nil
			})
		})
	}
}

// A flood of silent connections holds up no node, however long they might stay.
func TestFlood(t *testing.T) {
	to := open(t, Options{Node: node(1), HandshakeTimeout: time.Hour})
	echo(t, to, KindService)
	from := open(t, Options{Node: node(2)})
	for i := range 3 * maxHandshakes {
		c := check.Value(net.Dial("tcp", to.Addr().String())).Must(t)
		defer func() { _ = c.Close() }()
		if i%maxHandshakes != 0 {
			continue
		}
		good := check.Value(from.Dial(t.Context(), KindService, to.Addr().String())).Must(t)
		say(t, good, "hello")
		_ = good.Close()
	}
	to.mu.Lock()
	n := to.handshakes.Len()
	to.mu.Unlock()
	if n > maxHandshakes {
		t.Errorf("%d handshakes", n)
	}
}

func TestTooManyConnections(t *testing.T) {
	to := open(t, Options{Node: node(1), Cluster: member(clusterA), MaxConns: 8})
	echo(t, to, KindService)
	echo(t, to, KindRaft)
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	dial := func(k Kind) (net.Conn, error) { return from.Dial(t.Context(), k, to.Addr().String()) }
	var conns []net.Conn
	for range 7 {
		c := check.Value(dial(KindService)).Must(t)
		conns = append(conns, c)
	}
	_, err := dial(KindService)
	if r := refused(t, err); r.Status != StatusBusy || r.Reason != "this node has 7 connections of other nodes already" {
		t.Errorf("refused with %+v", r)
	}
	c, err := dial(KindRaft) // has places of its own
	check.Must(t, err)
	conns = append(conns, c)
	_, err = dial(KindRaft)
	if r := refused(t, err); r.Status != StatusBusy {
		t.Errorf("refused with %+v", r)
	}
	for _, c := range conns {
		check.NoError(t, c.Close())
	}
	testkit.Eventually(t, patience, func() error {
		c, err := dial(KindService)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

func TestStrangers(t *testing.T) {
	ca := newAuthority(t)
	for name, s := range map[string]Security{"plain": nil, "TLS": ca.security(1)} {
		for _, said := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", magic[:1] + strings.Repeat("x", 60), "\x15\x03\x01\x00\x02\x02\x28"} {
			t.Run(fmt.Sprintf("%s %.3q", name, said), func(t *testing.T) {
				p := open(t, Options{Node: node(1), Security: s})
				c := check.Value(net.Dial("tcp", p.Addr().String())).Must(t)
				defer func() { _ = c.Close() }()
				check.Must(t, check.Err(io.WriteString(c, said)))
				_ = c.SetReadDeadline(time.Now().Add(patience))
				if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("left open")
				}
			})
		}
	}
}

func TestDialWhatIsNoNode(t *testing.T) {
	ca := newAuthority(t)
	// a TLS server that knows nothing of preambles
	other := open(t, Options{Node: node(1), Security: ca.security(1)})
	cases := []struct {
		name string
		say  string // empty: nothing
		err  string
	}{
		{"says nothing", "", "no answer in time"},
		{"talks HTTP", "HTTP/1.1 400 Bad Request\r\n\r\n", errNotOurs.Error()},
		{"talks TLS", "\x15\x03\x01\x00\x02\x02\x28", errTLS.Error()},
		{"has much to say", magic + "\x01\x01\xff\xff" + strings.Repeat("x", 100), errNotOurs.Error()},
	}
	from, hasty := open(t, Options{Node: node(2)}), open(t, Options{Node: node(2), HandshakeTimeout: 100 * time.Millisecond})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			check.Must(t, err)
			done := make(chan struct{})
			go func() {
				defer close(done)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, c.say)
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
			dialler := from
			if c.say == "" {
				dialler = hasty
			}
			_, err = dialler.Dial(t.Context(), KindService, l.Addr().String())
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), l.Addr().String()) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			_ = l.Close()
			<-done
		})
	}
	check.Fails(t, check.Err(other.Dial(t.Context(), KindService, "nonsense")), "dialled nonsense")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := from.Dial(ctx, KindService, other.Addr().String()); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
}

func TestListeners(t *testing.T) {
	to, from := open(t, Options{Node: node(1)}), open(t, Options{Node: node(2)})
	l := to.Listener(KindService)
	check.Equal(t, l.Addr().String(), to.Advertised(), "address")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a second listener for the same kind")
			}
		}()
		to.Listener(KindService)
	}()
	c, err := dialAnd(from, KindService, to, l)
	check.Must(t, err)
	for range 2 {
		check.NoError(t, l.Close())
	}
	check.Is(t, check.Err(l.Accept()), net.ErrClosed, "accept after close")
	_, err = from.Dial(t.Context(), KindService, to.Addr().String())
	if r := refused(t, err); r.Status != StatusNoListener {
		t.Errorf("refused with %+v", r)
	}
	_, _ = c[1].Close(), c[0].Close()
	echo(t, to, KindService)
	again, err := from.Dial(t.Context(), KindService, to.Addr().String())
	check.Must(t, err)
	say(t, again, "the connection outlives what accepts")
	// Closing the port ends the connections of both directions.
	check.NoError(t, to.Close())
	if _, err := again.Read(make([]byte, 1)); err == nil {
		t.Error("the other side closed, and reading continues")
	}
	check.NoError(t, again.Close())
	if _, err := to.Dial(t.Context(), KindService, from.Addr().String()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("dial from a closed port: %v", err)
	}
	if _, err := to.Listener(KindService).Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept at a closed port: %v", err)
	}
	// The server of a connection closes it when the port has ended it.
	testkit.Eventually(t, patience, func() error {
		left := 0
		for _, p := range []*Port{from, to} {
			p.mu.Lock()
			left += len(p.conns)
			p.mu.Unlock()
		}
		if left != 0 {
			return fmt.Errorf("%d connections are left", left)
		}
		return nil
	})
}

func TestOptions(t *testing.T) {
	cases := map[string]Options{
		"no address":       {Node: node(1)},
		"no node":          {Bind: "127.0.0.1:0"},
		"no such address":  {Bind: "192.0.2.1:1", Node: node(1)},
		"advertises what?": {Bind: "127.0.0.1:0", Node: node(1), Advertise: "nowhere"},
		"negative":         {Bind: "127.0.0.1:0", Node: node(1), Renew: -1},
	}
	for name, o := range cases {
		if p, err := Open(o); err == nil {
			_ = p.Close()
			t.Errorf("%s: opened", name)
		}
	}
}

func TestRateOfLines(t *testing.T) {
	synctest.Test(t, testRateOfLines)
}

func testRateOfLines(t *testing.T) {
	var log lines
	l := &Port{logger: log.logger(hclog.Warn), lines: throttle.Lines[line]{Every: logAgain}}
	peer := func(host, port string) net.Addr { return advertised(net.JoinHostPort(host, port)) }
	l.say(hclog.Warn, peer("10.0.0.1", "1"), "one", "first")
	l.say(hclog.Warn, peer("10.0.0.1", "2"), "one", "again")
	l.say(hclog.Warn, peer("10.0.0.1", "2"), "one", "again")
	l.say(hclog.Warn, peer("10.0.0.1", "3"), "two", "other reason")
	l.say(hclog.Warn, peer("10.0.0.2", "1"), "one", "other peer")
	time.Sleep(logAgain)
	l.say(hclog.Warn, peer("10.0.0.1", "4"), "one", "later")
	var got []string
	for line := range strings.Lines(log.String()) {
		_, text, _ := strings.Cut(line, "[WARN]  ")
		got = append(got, strings.TrimSpace(text))
	}
	want := "first: peer=10.0.0.1:1|other reason: peer=10.0.0.1:3|other peer: peer=10.0.0.2:1|later: peer=10.0.0.1:4 not-logged=2"
	check.Equal(t, strings.Join(got, "|"), want, "logged")
}

// A connection that was not accepted yet when its listener ends is dropped without a warning: a
// restart of raft causes this.
func TestListenerEndsBeforeAccept(t *testing.T) {
	var log lines
	to := open(t, Options{Node: node(1), Cluster: member(clusterA), Logger: log.logger(hclog.Info)})
	from := open(t, Options{Node: node(2), Cluster: member(clusterA)})
	l := to.Listener(KindService)
	c := check.Value(from.Dial(t.Context(), KindService, to.Addr().String())).Must(t)
	check.NoError(t, l.Close())
	check.Fails(t, check.Err(c.Read(make([]byte, 1))), "the connection lives on")
	// After it everything is logged.
	check.NoError(t, errors.Join(c.Close(), to.Close()))
	if len(log.with("has just ended")) != 1 || len(log.with("[WARN]")) != 0 {
		t.Errorf("logged\n%s", log.String())
	}
}
