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
	s, err := Listen("127.0.0.1:0", &Traffic{}, hclog.New(&hclog.LoggerOptions{Output: lines, Level: hclog.Debug}))
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(http.NotFoundHandler(), security)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addr().String(), lines
}

// testSecurity are certificates of an authority of the test's own.
func testSecurity(t *testing.T) *certs.Store {
	t.Helper()
	authority, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		t.Fatal(err)
	}
	issued, err := authority.Issue(certs.NodeOptions{IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	if err != nil {
		t.Fatal(err)
	}
	return certs.NewStore(authority.Set(issued), certs.StoreOptions{})
}

// TestTLSToPlainPort: a client that speaks TLS to a port without it learns so at once, and the log
// names it, once a minute.
func TestTLSToPlainPort(t *testing.T) {
	address, lines := served(t, nil)
	var last string
	for range 3 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		last = conn.LocalAddr().String()
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).Handshake()
		// What net/http recognizes to say that the server speaks HTTP.
		wrong, ok := errors.AsType[tls.RecordHeaderError](err)
		if !ok || string(wrong.RecordHeader[:]) != "HTTP/" {
			t.Errorf("%v", err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if text := lines.String(); strings.Count(text, "a client speaks TLS to a port without TLS") != 1 || !strings.Contains(text, "[WARN]") {
			t.Errorf("%s", text)
		}
	}
	if text := lines.String(); strings.Contains(text, last) || !strings.Contains(text, "remote=127.0.0.1:") {
		t.Errorf("%s", text)
	}
	_, err := (&http.Client{}).Get("https://" + address)
	if err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		t.Errorf("%v", err)
	}
}

// TestTLSInPieces: a handshake that comes in pieces is refused as well, and the answer is not lost.
func TestTLSInPieces(t *testing.T) {
	address, _ := served(t, nil)
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, piece := range []string{"\x16", "\x03\x01\x07\x00", strings.Repeat("x", 1792)} {
		if _, err := io.WriteString(conn, piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 Bad Request\r\n") || !strings.HasSuffix(string(answer), "a port without TLS") {
		t.Errorf("%q, %v", answer, err)
	}
}

// TestPlainToTLSPort: a client that speaks plain HTTP to a port with TLS is answered in words.
func TestPlainToTLSPort(t *testing.T) {
	address, lines := served(t, testSecurity(t))
	a, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(a.Body)
	if a.StatusCode != http.StatusBadRequest || string(body) != "Client sent an HTTP request to an HTTPS server.\n" || err != nil || a.Body.Close() != nil {
		t.Errorf("%s %q, %v", a.Status, body, err)
	}
	if text := lines.String(); !strings.Contains(text, "[DEBUG]") || !strings.Contains(text, "remote=127.0.0.1:") {
		t.Errorf("%s", text)
	}
	http.DefaultClient.CloseIdleConnections()
}
