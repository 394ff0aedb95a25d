package wire

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

var (
	clusterA = event.ID{0xaa}
	clusterB = event.ID{0xbb}
)

func node(n byte) event.ID { return event.ID{15: n} }

func member(id event.ID) func() event.ID { return func() event.ID { return id } }

// patience bounds what a test waits for; a test that reaches it has found something.
const patience = 3 * time.Minute

// open opens a port for the duration of a test.
func open(t testing.TB, o Options) *Port {
	t.Helper()
	if o.Bind == "" {
		o.Bind = "127.0.0.1:0"
	}
	o.HandshakeTimeout, o.DialTimeout = cmp.Or(o.HandshakeTimeout, patience), cmp.Or(o.DialTimeout, patience)
	p := check.Value(Open(o)).Must(t)
	t.Cleanup(func() { check.NoError(t, p.Close(), "close port") })
	return p
}

// echo answers on the connections of a kind what they say.
func echo(t testing.TB, p *Port, k Kind) {
	t.Helper()
	l := p.Listener(k)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		check.NoError(t, p.Close(), "close port")
		tasks.Wait()
	})
}

// say sends a text to an echo and wants it back.
func say(t testing.TB, c net.Conn, text string) {
	t.Helper()
	check.Must(t, c.SetDeadline(time.Now().Add(patience)))
	check.Must(t, check.Err(io.WriteString(c, text)))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("said %q, heard %q, %v", text, got, err)
	}
}

// authority makes certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check.Must(t, err)
	cert, err := x509.ParseCertificate(der)
	check.Must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{t, cert, key, pool}
}

// issue makes the certificate of a node with the address 127.0.0.1 and the names.
func (a *authority) issue(serial int64, ips []net.IP, names ...string) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check.Must(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "node"}, DNSNames: names, IPAddresses: ips,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	check.Must(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// security is a Security whose certificate can be exchanged.
type security struct {
	pool *x509.CertPool

	mu   sync.Mutex
	cert tls.Certificate
	seen []int64 // serial numbers of the certificates that others showed
}

func (s *security) config() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &tls.Config{
		Certificates: []tls.Certificate{s.cert}, RootCAs: s.pool, ClientCAs: s.pool, ClientAuth: tls.RequireAndVerifyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen = append(s.seen, state.PeerCertificates[0].SerialNumber.Int64())
			return nil
		},
	}
}

func (s *security) Server() *tls.Config       { return s.config() }
func (s *security) Client(string) *tls.Config { return s.config() }

func (s *security) exchange(c tls.Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cert = c
}

func (s *security) shown() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int64(nil), s.seen...)
}

var loopback = []net.IP{net.IPv4(127, 0, 0, 1)}

func (a *authority) security(serial int64) *security {
	return &security{pool: a.pool, cert: a.issue(serial, loopback)}
}

// lines collects what is logged.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// with returns the lines that contain a text.
func (l *lines) with(text string) []string {
	var found []string
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

func (l *lines) logger(level hclog.Level) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Output: l, Level: level})
}

// refused wants a RefusedError.
func refused(t testing.TB, err error) *RefusedError {
	t.Helper()
	r, ok := errors.AsType[*RefusedError](err)
	if !ok {
		t.Fatalf("error %v, want a refusal", err)
	}
	return r
}
