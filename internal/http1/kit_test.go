package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// listen is a loopback port.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serve has a server answer what comes to a listener, until the test ends.
func serve(t testing.TB, s interface {
	Serve(net.Listener) error
	Close() error
}, l net.Listener) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
}

// start serves a handler and returns the server with its address.
func start(t testing.TB, h http.HandlerFunc) (*Server, string) {
	t.Helper()
	return startBy(t, h, false)
}

// startBy is start, with net/http alone or not.
func startBy(t testing.TB, h http.HandlerFunc, byNetHTTP bool) (*Server, string) {
	t.Helper()
	s, l := New(&http.Server{Handler: h, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}), listen(t)
	s.ByNetHTTP = byNetHTTP
	serve(t, s, l)
	return s, l.Addr().String()
}

// client is a connection without an HTTP client's opinions.
type client struct {
	t testing.TB
	net.Conn
	r *bufio.Reader
}

func dial(t testing.TB, address string) *client {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return talk(t, c)
}

func talk(t testing.TB, c net.Conn) *client {
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// answer reads an answer to a request of the method.
func (c *client) answer(method string) (r *http.Response, body string) {
	c.t.Helper()
	r, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return r, string(b)
}

// ended waits for the end of the connection, and returns what comes before it.
func (c *client) ended() string {
	c.t.Helper()
	b, err := io.ReadAll(c.r)
	if err != nil && !strings.Contains(err.Error(), "reset by peer") {
		c.t.Fatal(err)
	}
	return string(b)
}

// obey is a handler that answers with all it sees of a request, in a way that the query names:
// status=N; head=name:value, sets a field; write=N, writes as many bytes; flush; read=N, reads as
// much of the body; all, reads all of it; late=name, sets a field when the header is gone; abort.
// Anything else does nothing.
func obey(w http.ResponseWriter, r *http.Request) {
	var saw strings.Builder
	fmt.Fprintf(&saw, "%s %s %s %s %d %v\n", r.Method, r.RequestURI, r.URL, r.Host, r.ContentLength, r.Proto)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&saw, "%s: %q\n", name, r.Header[name])
	}
	if r.Host == "" || r.RemoteAddr == "" || r.Body == nil || r.Context().Value(http.LocalAddrContextKey) == nil {
		fmt.Fprintln(&saw, "something is missing")
	}
	for op := range strings.SplitSeq(r.URL.RawQuery, "&") {
		name, value, _ := strings.Cut(op, "=")
		n, _ := strconv.Atoi(value)
		n = min(n, 1<<20)
		switch name {
		case "status":
			w.WriteHeader(max(200, n%600))
		case "head":
			name, value, _ := strings.Cut(value, ":")
			w.Header().Add(name, value)
		case "none":
			w.Header()[value] = nil
		case "write":
			got, err := w.Write([]byte(strings.Repeat("y", max(n, 0))))
			fmt.Fprintln(&saw, got, err)
		case "flush":
			_ = http.NewResponseController(w).Flush()
		case "read":
			b := make([]byte, max(n, 0))
			got, err := io.ReadFull(r.Body, b)
			fmt.Fprintf(&saw, "%q %v\n", b[:got], err)
		case "all":
			b, err := io.ReadAll(r.Body)
			fmt.Fprintf(&saw, "%q %v\n", b, err)
		case "late":
			w.Header().Set(value, "late")
		case "abort":
			panic(http.ErrAbortHandler)
		}
	}
	_, _ = io.WriteString(w, saw.String())
}
