package serve

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/network"
)

// logged are the lines of a test's log.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// served starts a server of a loopback port and returns its address.
func served(t *testing.T, security *certs.Store) (address string, lines *logged) {
	t.Helper()
	lines = &logged{}
	s, err := Listen(t.Context(), network.TCP{}, "127.0.0.1:0", &Traffic{}, hclog.New(&hclog.LoggerOptions{Output: lines, Level: hclog.Debug}))
	check.Must(t, err)
	s.Serve(http.NotFoundHandler(), security)
	t.Cleanup(func() { check.NoError(t, s.Close()) })
	return s.Addr().String(), lines
}

// testSecurity are certificates of an authority of the test's own.
func testSecurity(t *testing.T) *certs.Store {
	t.Helper()
	authority, err := certs.NewAuthority(certs.AuthorityOptions{})
	check.Must(t, err)
	issued, err := authority.Issue(certs.NodeOptions{IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	check.Must(t, err)
	return certs.NewStore(authority.Set(issued), certs.StoreOptions{})
}

// TestTLSToPlainPort: a client that speaks TLS to a port without it learns so at once, and the log
// names it, once a minute.
func TestTLSToPlainPort(t *testing.T) {
	address, lines := served(t, nil)
	var last string
	for range 3 {
		conn, err := net.Dial("tcp", address)
		check.Must(t, err)
		last = conn.LocalAddr().String()
		check.Must(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
		// What net/http recognizes to say that the server speaks HTTP.
		wrong, ok := errors.AsType[tls.RecordHeaderError](err)
		if !ok || string(wrong.RecordHeader[:]) != "HTTP/" {
			t.Errorf("%v", err)
		}
		check.NoError(t, conn.Close())
		if text := lines.String(); strings.Count(text, "a client speaks TLS to a port without TLS") != 1 || !strings.Contains(text, "[WARN]") {
			t.Errorf("%s", text)
		}
	}
	if text := lines.String(); strings.Contains(text, last) || !strings.Contains(text, "remote=127.0.0.1:") {
		t.Errorf("%s", text)
	}
	_, err := (&http.Client{}).Get("https://" + address)
	check.Says(t, err, "server gave HTTP response to HTTPS client")
}

// TestTLSInPieces: a handshake that comes in pieces is refused as well, and the answer is not lost.
func TestTLSInPieces(t *testing.T) {
	address, _ := served(t, nil)
	conn, err := net.Dial("tcp", address)
	check.Must(t, err)
	defer func() { _ = conn.Close() }()
	for _, piece := range []string{"\x16", "\x03\x01\x07\x00", strings.Repeat("x", 1792)} {
		check.Must(t, check.Err(io.WriteString(conn, piece)))
	}
	check.Must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 Bad Request\r\n") || !strings.HasSuffix(string(answer), "a port without TLS") {
		t.Errorf("%q, %v", answer, err)
	}
}

// TestPlainToTLSPort: a client that speaks plain HTTP to a port with TLS is answered in words.
func TestPlainToTLSPort(t *testing.T) {
	address, lines := served(t, testSecurity(t))
	a, err := http.Get("http://" + address)
	check.Must(t, err)
	body, err := io.ReadAll(a.Body)
	if a.StatusCode != http.StatusBadRequest || string(body) != "Client sent an HTTP request to an HTTPS server.\n" || err != nil || a.Body.Close() != nil {
		t.Errorf("%s %q, %v", a.Status, body, err)
	}
	if text := lines.String(); !strings.Contains(text, "[DEBUG]") || !strings.Contains(text, "remote=127.0.0.1:") {
		t.Errorf("%s", text)
	}
	http.DefaultClient.CloseIdleConnections()
}
