package integration_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestLongOperations follows the page of procedures on one cluster, those about
// certificates first: while they change, clients write.
func TestLongOperations(t *testing.T) {
	for _, tool := range []string{"curl", "bash"} {
		testkit.NeedTool(t, tool)
	}
	o := newOperator(t, "a.db.example.com")
	c := o.cluster
	for _, m := range c.members {
		m.start()
	}
	c.settled()
	o.follow("How the machines look")

	led := c.said(leads)
	l := startCertificateLoad(o)
	for _, procedure := range []string{"Renew certificates", "Change the common name", "Change the authority"} {
		begun := time.Now()
		o.reloads = 0
		o.reloaded = nil
		if procedure != "Renew certificates" {
			// With every kind of certificate there at once, a node opens all its connections
			// again.
			o.reloaded = func(n int) {
				if n == 5 {
					o.bounceFollower()
				}
			}
		}
		o.follow(procedure)
		o.presented()
		t.Logf("%s: %s", procedure, time.Since(begun).Round(time.Millisecond))
	}
	o.reloaded = nil
	o.strangersRefused()
	l.finish(t)
	check.Equal(t, c.said(leads), led, "nodes led ... times before and ... times after")
	c.acknowledgedOnce(l.ledger)

	check.Must(t, copyFile(testkit.Binary(t), filepath.Join(o.folder, "annals-new")))
	for _, procedure := range []string{
		"Back up", "Restore one node", "Restore the whole cluster", "A majority lost for good", "Look into a backup", "Go back to a point in time", "Redact", "Replace a node", "Roll out a version",
	} {
		begun := time.Now()
		o.follow(procedure)
		t.Logf("%s: %s", procedure, time.Since(begun).Round(time.Millisecond))
	}
	c.settled()
	c.same()
	c.finish()
}

// TestLongFirstStart follows the page for a first start on machines that have the program and
// nothing else.
func TestLongFirstStart(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "bash", "openssl"} {
		testkit.NeedTool(t, tool)
	}
	o := newMachines(t, clusterOptions{
		filed:    true,
		security: func(h *lab.Host) []string { return []string{"--config", machine(h, "etc", "annals.conf")} },
	})
	o.read(firstStartPage, "")
	o.cluster.finish()
}

// bounceFollower stops and starts a node that does not lead.
func (o *operator) bounceFollower() {
	o.t.Helper()
	_, followers := o.cluster.settled()
	m := followers[0]
	m.stop()
	m.start()
	o.cluster.settled()
}

// identity is the certificate that a node has on its disk.
func (o *operator) identity(m *member) tls.Certificate {
	o.t.Helper()
	pair, err := tls.LoadX509KeyPair(machine(m.host, "etc", "node.crt"), machine(m.host, "etc", "node.key"))
	check.Must(o.t, err)
	return pair
}

// presented demands that each node shows, on each of its ports, the certificate that
// is on its disk.
func (o *operator) presented() {
	o.t.Helper()
	for i, m := range o.cluster.members {
		own := o.identity(o.cluster.members[(i+1)%len(o.cluster.members)])
		want := o.identity(m)
		for _, port := range []int{clientPort, replicationPort} {
			state, err := o.handshake(m, port, &own)
			if err != nil {
				o.t.Errorf("%s, port %d: %v", m, port, err)
			} else if !state.PeerCertificates[0].Equal(want.Leaf) {
				o.t.Errorf("%s, port %d: shows serial %x, on the disk is %x", m, port, state.PeerCertificates[0].SerialNumber, want.Leaf.SerialNumber)
			}
		}
	}
}

// handshake connects to a port with a certificate, and waits for the other side's opinion of it.
func (o *operator) handshake(m *member, port int, own *tls.Certificate) (state tls.ConnectionState, err error) {
	// A version in which the client hears in the handshake that it is refused.
	config := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }}
	ctx, cancel := context.WithTimeout(o.t.Context(), settleLimit)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", net.JoinHostPort(m.host.Addr(), fmt.Sprint(port)))
	if err != nil {
		return state, err
	}
	return conn.(*tls.Conn).ConnectionState(), conn.Close()
}

// strangersRefused demands that a certificate of the authority that is no longer trusted opens no
// port.
func (o *operator) strangersRefused() {
	o.t.Helper()
	old, err := tls.LoadX509KeyPair(filepath.Join(o.folder, "short", "node1", "node.crt"), filepath.Join(o.folder, "short", "node1", "node.key"))
	check.Must(o.t, err)
	for _, m := range o.cluster.members {
		for _, port := range []int{clientPort, replicationPort} {
			if _, err := o.handshake(m, port, &old); err == nil {
				o.t.Errorf("%s, port %d: a certificate of the old authority was accepted", m, port)
			}
		}
	}
}

// The load while certificates change.
const (
	certificateWriters = 10 // of them one makes a connection for every request
	certificatePace    = 20 * time.Millisecond
)

// certificateLoad writes 500 times a second through all nodes. A client repeats a
// write once; one that fails twice is a failure.
type certificateLoad struct {
	o           *operator
	ledger      *ledger
	kept, fresh *load // by connections that are kept, and by new ones
	begun       time.Time

	mu     sync.Mutex
	failed []string
	wrote  int
}

func startCertificateLoad(o *operator) *certificateLoad {
	l := &certificateLoad{o: o, ledger: &ledger{}, begun: time.Now()}
	ctx, cancel := context.WithCancel(o.t.Context())
	stop := make(chan struct{})
	of := func(writers int) *load {
		var nodes []*testkit.Client
		for _, m := range o.cluster.members {
			nodes = append(nodes, testkit.NewClient(m.URL(), o.cluster.o.tls))
			o.t.Cleanup(nodes[len(nodes)-1].CloseIdle)
		}
		return newLoad(l.ledger, writers, loadStreams, settleLimit, stop, cancel, nodes...)
	}
	l.kept, l.fresh = of(certificateWriters-1), of(1)
	s := seed(o.t)
	for i := range certificateWriters {
		load := l.kept
		if i == 0 {
			load = l.fresh
		}
		w := load.writer(s, i)
		l.kept.owned.Go(func() { l.write(ctx, w) })
	}
	leader, _ := o.cluster.settled()
	l.kept.owned.Go(func() { l.hold(ctx, leader.URL(), stop) })
	o.t.Cleanup(l.kept.cut)
	return l
}

func (l *certificateLoad) write(ctx context.Context, w *writer) {
	pace := time.NewTicker(certificatePace)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-w.load.stop:
			return
		case <-ctx.Done():
			return
		}
		if w.load == l.fresh {
			node, _ := w.load.at(w.at)
			node.CloseIdle()
		}
		next := w.next()
		l.ledger.begin(next)
		for attempt := 1; !w.try(ctx, next); attempt++ {
			if attempt == 2 {
				l.fail(next.String())
			}
			if pause(ctx, retryPause) != nil {
				return
			}
		}
		l.mu.Lock()
		l.wrote++
		l.mu.Unlock()
	}
}

// hold uses one connection to a node for as long as the load lasts: nothing may cut it.
func (l *certificateLoad) hold(ctx context.Context, url string, stop <-chan struct{}) {
	transport := &http.Transport{TLSClientConfig: l.o.cluster.o.tls, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	connections := 0
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if !c.Reused {
			connections++
		}
	}})
	pace := time.NewTicker(5 * certificatePace)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-stop:
			return
		case <-ctx.Done():
			return
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/ping", nil)
		if err != nil {
			l.fail(err.Error())
			return
		}
		answer, err := transport.RoundTrip(r)
		if err == nil {
			_, err = io.Copy(io.Discard, answer.Body)
			err = errors.Join(err, answer.Body.Close())
		}
		if ctx.Err() == nil && (err != nil || connections != 1) {
			l.fail(fmt.Sprintf("a connection that was held was cut: %v, %d connections", err, connections))
			return
		}
	}
}

func (l *certificateLoad) fail(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, what)
}

// finish ends the load, and demands that no client saw a failure.
func (l *certificateLoad) finish(t *testing.T) {
	t.Helper()
	l.kept.finish(t)
	took := time.Since(l.begun)
	t.Logf("%d writes in %s, %.0f/s; answers by kept connections %s; by new ones %s", l.wrote, took.Round(time.Millisecond),
		float64(l.wrote)/took.Seconds(), l.kept.told(), l.fresh.told())
	for _, what := range l.failed {
		t.Errorf("failed twice: %s", what)
	}
}
