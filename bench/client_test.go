package bench

import (
	"bufio"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// script is a server that answers the requests of its connections as told.
type script struct {
	t        *testing.T
	listener net.Listener
	wg       sync.WaitGroup
}

// newScript serves every connection with handle, which gets its number from 0 on and closes nothing
// itself.
func newScript(t *testing.T, handle func(number int, r *bufio.Reader, w io.Writer)) *script {
	t.Helper()
	listener := check.Value(net.Listen("tcp", "127.0.0.1:0")).Must(t)
	s := &script{t: t, listener: listener}
	s.wg.Go(func() {
		for number := 0; ; number++ {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() {
				handle(number, bufio.NewReader(nc), nc)
				_ = nc.Close() // the client may have closed it first
			})
		}
	})
	return s
}

func (s *script) close() {
	check.NoError(s.t, s.listener.Close())
	s.wg.Wait()
}

func (s *script) client(timeout time.Duration) *sender {
	to, prefix, err := parseBase(s.listener.Addr().String())
	check.Must(s.t, err)
	return newSender(to, prefix, &dialing{timeout: timeout})
}

// take reads one request and returns its body.
func take(r *bufio.Reader) (string, error) {
	req, err := http.ReadRequest(r)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(req.Body)
	return string(body), err
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestIdleConnectionIsReplaced(t *testing.T) {
	s := newScript(t, func(_ int, r *bufio.Reader, w io.Writer) {
		for range 3 { // and then it closes without a word
			if _, err := take(r); err != nil {
				return
			}
			_, _ = io.WriteString(w, fine)
		}
	})
	defer s.close()
	c := s.client(time.Minute)
	defer c.drop()
	req := request{method: "POST", path: []byte("/"), body: []byte("data"), keep: true}
	var resp response
	for range 10 {
		check.Must(t, c.do(context.Background(), &req, &resp))
		check.MustEqual(t, resp.body.String(), "ok", "body")
	}
	check.Equal(t, c.reconnects, 3, "connections replaced")
}

func TestAnswersOutOfTheOrdinary(t *testing.T) {
	large := strings.Repeat("x", 8<<20)
	cases := []struct {
		name   string
		body   string
		handle func(number int, r *bufio.Reader, w io.Writer)
		status int
		kind   string
	}{
		{"continue first", "data", func(_ int, r *bufio.Reader, w io.Writer) {
			if body, err := take(r); err == nil && body == "data" {
				_, _ = io.WriteString(w, "HTTP/1.1 100 Continue\r\n\r\n"+fine)
			}
		}, 200, ""},
		{"close announced", "data", func(_ int, r *bufio.Reader, w io.Writer) {
			if _, err := take(r); err == nil {
				_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nall")
			}
		}, 200, ""},
		{"no answer", "data", func(_ int, r *bufio.Reader, _ io.Writer) {
			_, _ = take(r)
		}, 0, "connection lost"},
		{"refused in the middle", large, func(_ int, r *bufio.Reader, w io.Writer) {
			if _, err := r.ReadString('\n'); err == nil {
				_, _ = io.WriteString(w, "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
				_, _ = io.Copy(io.Discard, r)
			}
		}, 413, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, c.handle)
			defer s.close()
			cl := s.client(time.Minute)
			defer cl.drop()
			req := request{method: "POST", path: []byte("/"), body: []byte(c.body)}
			var resp response
			for range 2 {
				err := cl.do(context.Background(), &req, &resp)
				if c.kind != "" {
					if err == nil || kindOf(err) != c.kind {
						t.Fatalf("got %v, want a %s", err, c.kind)
					}
				} else if err != nil || resp.status != c.status {
					t.Fatalf("got %d, %v", resp.status, err)
				}
				if c.status == 413 {
					break
				}
			}
		})
	}
}

func TestAnswerTakesTooLong(t *testing.T) {
	release := make(chan struct{})
	s := newScript(t, func(_ int, r *bufio.Reader, _ io.Writer) {
		_, _ = take(r)
		<-release
	})
	defer s.close()
	defer close(release)
	// The deadline has room for requests of the next second, which this takes off again.
	c := s.client(50*time.Millisecond - rearmInterval)
	defer c.drop()
	dialed, err := net.Dial("tcp", s.listener.Addr().String())
	check.Must(t, err)
	c.nc = dialed
	c.reader.in.Reset(dialed)
	var resp response
	err = c.do(context.Background(), &request{method: "GET", path: []byte("/")}, &resp)
	check.Equal(t, kindOf(err), "timeout", err)
}

func TestEndlessRedirect(t *testing.T) {
	var s *script
	ready := make(chan struct{})
	s = newScript(t, func(_ int, r *bufio.Reader, w io.Writer) {
		<-ready
		for {
			if _, err := take(r); err != nil {
				return
			}
			_, _ = fmt.Fprintf(w, "HTTP/1.1 307 x\r\nLocation: http://%s/again\r\nContent-Length: 0\r\n\r\n", s.listener.Addr())
		}
	})
	close(ready)
	defer s.close()
	c := s.client(time.Minute)
	defer c.drop()
	var resp response
	err := c.do(context.Background(), &request{method: "GET", path: []byte("/")}, &resp)
	if !errors.Is(err, errTooManyRedirects) || c.redirects != maxRedirects {
		t.Errorf("got %v after %d redirects", err, c.redirects)
	}
}

func TestEncryptedConnection(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	check.Must(t, os.WriteFile(file, block, 0o600))
	for name, c := range map[string]struct {
		o    options
		kind string
	}{
		"unknown authority": {options{}, "connect"},
		"known authority":   {options{tlsCA: file}, ""},
		"any":               {options{tlsInsecure: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.timeout = time.Minute
			how, err := newDialing(&c.o)
			check.Must(t, err)
			to, prefix, err := parseBase(server.URL + "/under/")
			check.Must(t, err)
			check.MustEqual(t, prefix, "/under")
			cl := newSender(to, prefix, how)
			defer cl.drop()
			var resp response
			err = cl.do(context.Background(), &request{method: "GET", path: []byte("/a"), keep: true}, &resp)
			if c.kind == "" && (err != nil || resp.body.String() != "/under/a") || c.kind != "" && (err == nil || kindOf(err) != c.kind) {
				t.Errorf("got %q, %v", resp.body.String(), err)
			}
		})
	}
}

func TestLayoutNamesAndNumbers(t *testing.T) {
	l := layout{prefix: "b", streams: 3, events: 8}
	var sum int64
	for i := 1; i <= 3; i++ {
		sum += l.eventsOf(i)
	}
	if sum != 8 || l.eventsOf(1) != 3 || l.eventsOf(3) != 2 {
		t.Errorf("%d events in all", sum)
	}
	for _, i := range []int{1, 9, 10, 12345, 99_999, 100_000, 999_999, 1_000_000} {
		if a, b := l.stream(i), string(appendStream(nil, "b", i)); a != b {
			t.Errorf("%q and %q", a, b)
		}
	}
	if n, err := numberIn([]byte("http://h/streams/a-7/42")); n != 42 || err != nil {
		t.Error(n, err)
	}
	for _, bad := range []string{"", "7", "http://h/streams/a7", "/99999999999999999999"} {
		check.Fails(t, check.Err(numberIn([]byte(bad))), bad, "has a number")
	}
	for size := 2; size < 40; size++ {
		check.Equal(t, len(payload(size, newRand(&options{}, 0, 0))), size, "payload has ... bytes")
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	const answer = "HTTP/1.1 201 Created\r\nLocation: http://h/streams/bench-append-000001/7\r\nETag: \"1;2\"\r\nContent-Length: 2\r\n\r\nok"
	s := newScript(t, func(_ int, r *bufio.Reader, w io.Writer) {
		text, buf := []byte(answer), make([]byte, 64<<10)
		for {
			// The driver sends each request with one write and waits, so one read is one request.
			if _, err := r.Read(buf); err != nil {
				return
			}
			if _, err := w.Write(text); err != nil {
				return
			}
		}
	})
	defer s.close()
	c := s.client(time.Minute)
	defer c.drop()
	o := defaultOptions()
	o.streams = 10
	recorder := newRecorder(1)
	for _, batch := range []int{0, 3} {
		o.batch = batch
		op := appending(&o).operation(0, 1)
		got := testing.AllocsPerRun(200, func() {
			out, err := op.do(context.Background(), c)
			check.NoError(t, err)
			recorder.add(out, time.Microsecond)
		})
		if got > 0 {
			t.Errorf("batch %d: %g allocations", batch, got)
		}
	}
}
