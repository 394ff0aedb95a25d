package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/http1"
)

// listen serves a handler on a loopback port and returns its address.
func listen(t testing.TB, h http.Handler) string {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	return listenOn(t, l, h, false)
}

// listenOn serves a handler on a listener, by net/http alone or not, and returns its address.
func listenOn(t testing.TB, l net.Listener, h http.Handler, byNetHTTP bool) string {
	srv := http1.New(&http.Server{Handler: h})
	srv.ByNetHTTP = byNetHTTP
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		check.NoError(t, srv.Close())
		check.Is(t, <-done, http.ErrServerClosed)
	})
	return l.Addr().String()
}

// wire is a client connection without an HTTP client's opinions.
type wire struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, address string) *wire {
	t.Helper()
	c := check.Value(net.Dial("tcp", address)).Must(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
	return &wire{t, c, bufio.NewReader(c)}
}

func (w *wire) send(text string) {
	w.t.Helper()
	check.Must(w.t, check.Err(io.WriteString(w, text)))
}

// answer reads one answer and returns its status line and body.
func (w *wire) answer(method string) (status, body string) {
	w.t.Helper()
	r := check.Value(http.ReadResponse(w.r, &http.Request{Method: method})).Must(w.t)
	b := check.Value(io.ReadAll(r.Body)).Must(w.t)
	return r.Status, string(b)
}

func request(method, path, headers, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n%s\r\n%s", method, path, len(body), headers, body)
}

// TestPhrases: texts in status lines are the same whichever server answers.
func TestPhrases(t *testing.T) {
	t.Run("our server", func(t *testing.T) { testPhrases(t, false) })
	t.Run("net/http", func(t *testing.T) { testPhrases(t, true) })
}

func testPhrases(t *testing.T, byNetHTTP bool) {
	n := newNode(t)
	n.filled("s", 2)
	const write = "Content-Type: application/json\r\nES-EventType: t\r\nES-EventId: 0f9fad5b-d9cb-469f-a165-70867728950e\r\n"
	steps := []struct{ method, path, headers, body, status, text string }{
		{"POST", "/streams/s", write + "ES-ExpectedVersion: 7\r\n", "{}", "400 Wrong expected EventNumber", "Wrong expected EventNumber"},
		{"GET", "/streams/s/0", "Accept: application/json\r\n", "", "200 OK", `{"n":0}`},
		{"POST", "/streams/s", write, "{", "400 Write request body invalid.", "Write request body invalid."},
		{"GET", "/streams/s/x%0d%0aInjected:%201", "", "", "400 'x  Injected: 1' is not valid event number", "'x\r\nInjected: 1' is not valid event number"},
		{"GET", "/streams/s", "Accept: image/png\r\n", "", "406 Requested URI is not available in requested format", "Requested URI is not available in requested format"},
		{"POST", "/streams/s", "", "{}", "415 Invalid or missing Content-Type", "Invalid or missing Content-Type"},
		{"GET", "/streams/none", "", "", "404 Not Found", "Not Found"},
		{"GET", "/streams/$all", "", "", "401 Unauthorized", "Unauthorized"},
		{"GET", "/streams/s/", "", "", "307 Temporary Redirect", "Moved Permanently"},
		{"POST", "/streams/s", write + "Expect: 100-continue\r\nES-HardDelete: x\r\n", "{}", "201 Created", ""},
		{"DELETE", "/streams/s", "", "", "204 Stream deleted", ""},
		{"DELETE", "/streams/s", "ES-HardDelete: true\r\n", "", "204 Stream deleted", ""},
		{"DELETE", "/streams/s", "", "", "410 Stream deleted", "Stream deleted"},
		{"GET", "/streams/s", "", "", "410 Deleted", "Deleted"},
		{"PUT", "/streams/s", "", "", "405 Method Not Allowed", "Method Not Allowed"},
	}
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	address := listenOn(t, l, n.handler, byNetHTTP)

	t.Run("keep-alive", func(t *testing.T) {
		w := dial(t, address)
		for _, s := range steps {
			w.send(request(s.method, s.path, s.headers, s.body))
			if strings.Contains(s.headers, "100-continue") {
				if line, err := w.r.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
					t.Fatalf("interim answer %q, %v", line, err)
				}
				check.Must(t, check.Err(w.r.Discard(2)))
			}
			status, body := w.answer(s.method)
			check.Equal(t, status, s.status, "status")
			check.Equal(t, body, s.text, "text")
		}
	})
	t.Run("pipelined", func(t *testing.T) {
		w := dial(t, address)
		var all strings.Builder
		for range 20 {
			all.WriteString(request("POST", "/streams/p", write+"ES-ExpectedVersion: 7\r\n", "{}"))
			all.WriteString(request("GET", "/streams/none", "", ""))
			all.WriteString(request("GET", "/streams/s", "", ""))
		}
		w.send(all.String())
		for range 20 {
			for _, want := range []string{"400 Wrong expected EventNumber", "404 Not Found", "410 Deleted"} {
				status, _ := w.answer("GET")
				check.Equal(t, status, want, "status")
			}
		}
	})
	t.Run("version 1.0", func(t *testing.T) {
		w := dial(t, address)
		w.send("GET /streams/s HTTP/1.0\r\n\r\n")
		all, err := io.ReadAll(w.r)
		if err != nil || !strings.HasPrefix(string(all), "HTTP/1.0 410 Deleted\r\n") {
			t.Errorf("%q, %v", all, err)
		}
	})
}

// TestFixedFields looks for the fields that every answer carries, each of them once,
// over a connection that is kept.
func TestFixedFields(t *testing.T) {
	n := newNode(t)
	n.filled("s", 2)
	n.filled("long", 300)
	behind, theirs := newSubscriber(t)
	theirs.define("s", "g")
	follower := newForwarding(t, behind, func(o *httpapi.Options) {
		o.Relay, o.Subscriptions = &relayTo{handler: behind.handler}, &memSubscriptions{}
	})
	login := "Authorization: " + admin().Get("Authorization") + "\r\n"
	const api, page = "default-src 'none'; sandbox", "default-src 'none'"
	const write = "Content-Type: application/json\r\nES-EventType: t\r\nES-EventId: 0f9fad5b-d9cb-469f-a165-70867728950e\r\n"
	here, there := dial(t, listen(t, n.handler)), dial(t, listen(t, follower.handler))
	for _, c := range []struct {
		name, method, path, headers, body string
		to                                *wire
		status, policy                    string
	}{
		{"event", "GET", "/streams/s/0", "Accept: application/json\r\n", "", here, "200 OK", api},
		{"XML", "GET", "/streams/s", "Accept: text/xml\r\n", "", here, "200 OK", api},
		{"raw", "GET", "/streams/s/0", "Accept: application/octet-stream\r\n", "", here, "200 OK", api},
		{"longer than a buffer", "GET", "/streams/long/0/forward/300?embed=body", "", "", here, "200 OK", api},
		{"page of a stream", "GET", "/streams/s", "Accept: text/html\r\n", "", here, "200 OK", page},
		{"page of an event", "GET", "/streams/s/0", "Accept: text/html\r\n", "", here, "200 OK", page},
		{"page that is not there", "GET", "/streams/none", "Accept: text/html\r\n", "", here, "404 Not Found", api},
		{"head", "HEAD", "/streams/s", "", "", here, "200 OK", api},
		{"options", "OPTIONS", "/streams/s", "", "", here, "200 OK", api},
		{"no route", "GET", "/nothing", "", "", here, "404 Not Found", api},
		{"phrase", "POST", "/streams/s", write + "ES-ExpectedVersion: 7\r\n", "{}", here, "400 Wrong expected EventNumber", api},
		{"no content", "DELETE", "/streams/long", "", "", here, "204 Stream deleted", api},
		{"redirect", "GET", "/streams/s/", "", "", here, "307 Temporary Redirect", api},
		{"forwarded", "POST", "/streams/s", write, "{}", there, "201 Created", api},
		{"forwarded, phrase", "POST", "/streams/s", write + "ES-ExpectedVersion: 7\r\n", "{}", there, "400 Wrong expected EventNumber", api},
		{"relayed", "GET", "/subscriptions/s/g/info", login, "", there, "200 OK", api},
		{"relayed, not there", "DELETE", "/subscriptions/s/none", login, "", there, "404 Not Found", api},
		{"not relayed", "GET", "/streams/s", "", "", there, "200 OK", api},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.to.send(request(c.method, c.path, c.headers, c.body))
			r := check.Value(http.ReadResponse(c.to.r, &http.Request{Method: c.method})).Must(t)
			check.Must(t, check.Err(io.Copy(io.Discard, r.Body)))
			check.Equal(t, r.Status, c.status, "status")
			for name, want := range map[string]string{
				"Content-Security-Policy": c.policy, "X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": "*",
				"Access-Control-Expose-Headers": "Location, ES-Position, ES-CurrentVersion",
			} {
				check.Equal(t, strings.Join(r.Header.Values(name), "|"), want, name)
			}
			check.Equal(t, len(r.Header.Values("Access-Control-Allow-Headers")), 1, "lists of headers")
		})
	}
	t.Run("page leads on", func(t *testing.T) {
		a := n.get("/streams/s/0", "text/html", "X-Forwarded-Prefix", `a"><script>`)
		const want = `<meta http-equiv="refresh" content="0; url=/a%22%3E%3Cscript%3E/web/index.html#/streams/s/0">`
		if !strings.Contains(a.body, want) || strings.Contains(a.body, "<script") {
			t.Errorf("%s lacks %s", a.body, want)
		}
		a.has(t, "Content-Security-Policy", page)
	})
}

// TestPhraseIsForOneAnswer sets phrases by hand, right and wrong.
func TestPhraseIsForOneAnswer(t *testing.T) {
	big := filepath.Join(t.TempDir(), "big")
	check.Must(t, os.WriteFile(big, []byte(strings.Repeat("x", 1<<20)), 0o600))
	address := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/other": // The code is another than the phrase is for.
			setReason(r, 404, "never seen")
		case "/file":
			http.ServeFile(w, r, big)
			return
		case "/big":
			setReason(r, 200, "Very Big")
			_, _ = io.WriteString(w, "HTTP/1.1 200 "+strings.Repeat("y", 1<<20))
			return
		case "/long":
			setReason(r, 200, strings.Repeat("z", 10_000))
		case "/empty":
			setReason(r, 200, "")
		}
		_, _ = io.WriteString(w, "HTTP/1.1 404 Not Found\r\n\r\n")
	}))
	w := dial(t, address)
	for range 2 {
		for _, c := range []struct {
			path, status string
			length       int
		}{
			{"/other", "200 OK", 26}, {"/plain", "200 OK", 26}, {"/file", "200 OK", 1 << 20}, {"/big", "200 Very Big", 1<<20 + 13},
			{"/long", "200 " + strings.Repeat("z", 512), 26}, {"/empty", "200 ", 26}, {"/plain", "200 OK", 26},
		} {
			w.send(request("GET", c.path, "", ""))
			status, body := w.answer("GET")
			check.Equal(t, status, c.status, c.path)
			check.Equal(t, len(body), c.length, c.path+" length")
		}
	}
}

// writesListener counts the pieces in which its connections send.
type writesListener struct {
	net.Listener
	writes *atomic.Int64
}

type writesConn struct {
	net.Conn
	writes *atomic.Int64
}

func (l writesListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return writesConn{c, l.writes}, err
}

func (c writesConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// TestAnswersInOnePiece: every further piece costs a call of the system, and wakes the client.
func TestAnswersInOnePiece(t *testing.T) {
	n := newNode(t)
	n.filled("s", 2)
	n.filled("long", 300)
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	var writes atomic.Int64
	w := dial(t, listenOn(t, writesListener{l, &writes}, n.handler, false))
	other := httptest.NewServer(n.handler)
	t.Cleanup(other.Close)
	plain := dial(t, other.Listener.Addr().String())
	for range 2 {
		for _, c := range []struct {
			name, method, path, headers, body, status string
			atMost                                    int64
		}{
			{"event", "GET", "/streams/s/0", "Accept: application/json\r\n", "", "200 OK", 1},
			{"page", "GET", "/streams/long?embed=body", "", "", "200 OK", 1},
			{"page, XML", "GET", "/streams/long/0/forward/100", "Accept: text/xml\r\n", "", "200 OK", 1},
			{"head of a page", "HEAD", "/streams/long?embed=body", "", "", "200 OK", 1},
			{"not there", "GET", "/nothing", "", "", "404 Not Found", 1},
			{"phrase", "POST", "/streams/s", "Content-Type: application/vnd.eventstore.events+json\r\n", "{", "400 Write request body invalid.", 1},
			{"large", "GET", "/streams/long/0/forward/300?embed=body", "", "", "200 OK", 2},
			{"event again", "GET", "/streams/s/0", "Accept: application/json\r\n", "", "200 OK", 1},
		} {
			writes.Store(0)
			w.send(request(c.method, c.path, c.headers, c.body))
			r, err := http.ReadResponse(w.r, &http.Request{Method: c.method})
			check.Must(t, err, c.name)
			got, err := io.ReadAll(r.Body)
			check.Must(t, err, c.name)
			check.Equal(t, r.Status, c.status, c.name+": status")
			plain.send(request(c.method, c.path, c.headers, c.body))
			_, want := plain.answer(c.method)
			if string(got) != want {
				t.Errorf("%s: %d bytes, %d without our connection", c.name, len(got), len(want))
			}
			if got := writes.Load(); got < 1 || got > c.atMost {
				t.Errorf("%s: %d pieces, want %d", c.name, got, c.atMost)
			}
		}
	}
}

// setReason reaches the connection as a handler does.
func setReason(r *http.Request, code int, phrase string) {
	http1.SetReason(r.Context(), code, phrase)
}

func TestTooLargeOverTheWire(t *testing.T) {
	n := newNode(t)
	address := listen(t, n.handler)
	const head = "POST /streams/s HTTP/1.1\r\nHost: h\r\nContent-Type: application/octet-stream\r\nES-EventType: t\r\n" +
		"ES-EventId: 0f9fad5b-d9cb-469f-a165-70867728950e\r\n"
	w := dial(t, address) // Refused for what it declares, before it sends anything.
	w.send(head + "Content-Length: 40000000\r\nExpect: 100-continue\r\n\r\n")
	status, body := w.answer("POST")
	check.Equal(t, status+"|"+body, "413 Too large events received. Limit is 4mb|Too large events received. Limit is 4mb", "declared")

	w = dial(t, address) // Refused while it sends.
	w.send(head + "Transfer-Encoding: chunked\r\n\r\n")
	chunk := "100000\r\n" + strings.Repeat("x", 1<<20) + "\r\n"
	for range 29 {
		w.send(chunk)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range 3 { // The server may have stopped reading.
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	}()
	status, _ = w.answer("POST")
	check.Equal(t, status, "413 Too large events received. Limit is 4mb", "chunked")
	check.NoError(t, w.Close())
	<-sent
}
