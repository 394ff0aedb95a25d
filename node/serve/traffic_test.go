package serve

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
)

// faultyListener fails so many times before each connection.
type faultyListener struct {
	net.Listener
	fault error
	left  atomic.Int64
}

func (l *faultyListener) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: l.fault}
	}
	return l.Listener.Accept()
}

// serveOn serves pongs, and /wait until the client has gone, on a listener as a node has it.
func serveOn(t *testing.T, traffic *Traffic, l net.Listener, security *certs.Store) (s *Server, waits chan struct{}) {
	t.Helper()
	waits = make(chan struct{}, 1)
	s = New(traffic.listener(l, hclog.NewNullLogger()), hclog.NewNullLogger())
	s.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			waits <- struct{}{}
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "pong")
	}), security)
	t.Cleanup(func() { check.NoError(t, s.Close()) })
	return s, waits
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	return l
}

func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c := check.Value(net.Dial("tcp", s.Addr().String())).Must(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// ping does a request on a connection.
func ping(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// Whatever keeps a connection from being accepted, the server waits and continues, with TLS and
// without.
func TestAcceptFails(t *testing.T) {
	for _, fault := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM} {
		l := &faultyListener{Listener: listen(t), fault: fault}
		l.left.Store(5)
		s, _ := serveOn(t, new(Traffic), l, nil)
		check.NoError(t, ping(dial(t, s)), "behind", fault)
		l.left.Store(1 << 40) // It must close all the same.
	}
}

// With no room for another connection the idlest one ends: not one on which something happens.
func TestConnectionsGiveWay(t *testing.T) {
	traffic := &Traffic{MaxConnections: 4}
	s, waits := serveOn(t, traffic, listen(t), nil)
	idle, waiting, silent, busy := dial(t, s), dial(t, s), dial(t, s), dial(t, s)
	check.Must(t, check.Err(io.WriteString(waiting, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")))
	<-waits
	check.Must(t, errors.Join(ping(idle), ping(busy)))
	for range 3 {
		check.Must(t, ping(busy))
		next := dial(t, s)
		check.Must(t, ping(next))
	}
	for _, gone := range []net.Conn{silent, waiting, idle} {
		check.Must(t, gone.SetReadDeadline(time.Now().Add(10*time.Second)))
		if _, err := gone.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("it did not end: %v", err)
		}
	}
	check.NoError(t, ping(busy))
	if open, gave := traffic.Connections(), traffic.GaveWay(); open > 4 || gave != 3 {
		t.Errorf("%d are open and %d gave way", open, gave)
	}
	traffic.GiveWay()
	check.Equal(t, traffic.GaveWay(), 4, "gave way")
}

// Who says nothing at the port with TLS holds no other up: of more handshakes than there may be the
// oldest ends.
func TestSilentHandshakes(t *testing.T) {
	dir := t.TempDir()
	authority, err := certs.NewAuthority(certs.AuthorityOptions{Key: certs.ECDSAP256})
	check.Must(t, err)
	issued, err := authority.Issue(certs.Localhost)
	check.Must(t, err)
	roots := filepath.Join(dir, "roots")
	check.Must(t, errors.Join(authority.Write(roots, false), issued.Write(dir, false)))
	set, err := certs.Load(certs.Files{
		Certificate: filepath.Join(dir, certs.NodeCertificateFile), PrivateKey: filepath.Join(dir, certs.NodeKeyFile), RootsDir: roots,
	})
	check.Must(t, err)
	traffic := new(Traffic)
	s, _ := serveOn(t, traffic, listen(t), certs.NewStore(set, certs.StoreOptions{}))
	trusted := x509.NewCertPool()
	trusted.AddCert(authority.Certificate)
	const over = 40
	var silent []net.Conn
	for range maxHandshakes + over {
		silent = append(silent, dial(t, s))
	}
	begun := time.Now()
	honest := tls.Client(dial(t, s), &tls.Config{RootCAs: trusted, ServerName: "localhost"})
	check.Must(t, ping(honest))
	if took := time.Since(begun); took > handshakeTimeout/2 {
		t.Errorf("an honest connection took %v", took)
	}
	for i, c := range silent[:over] {
		check.Must(t, c.SetReadDeadline(time.Now().Add(handshakeTimeout/2)))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("silent connection %d stays: %v", i, err)
		}
	}
}
