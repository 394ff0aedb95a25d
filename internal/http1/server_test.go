package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
)

// pipes is a listener whose connections are in memory, so that a bubble of synctest owns their
// time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(t *testing.T) *client {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return talk(t, ours)
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

func ok(http.ResponseWriter, *http.Request) {}

// TestTimeouts: connections that wait too long are closed, and no others.
func TestTimeouts(t *testing.T) {
	for _, c := range []struct {
		name, sent string
		lasts      time.Duration
	}{
		{"nothing sent", "", 3 * time.Second},
		{"half a header", get[:20], 3 * time.Second},
		{"idle", get, 10 * time.Second},
		{"half a header behind a request", get + get[:20], 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipes()
				serve(t, New(&http.Server{Handler: http.HandlerFunc(ok), ReadHeaderTimeout: 3 * time.Second, IdleTimeout: 10 * time.Second}), l)
				time.Sleep(lookEvery / 2)
				w := l.dial(t)
				go w.send(c.sent)
				if strings.HasPrefix(c.sent, get) {
					w.answer("GET")
				}
				begun := time.Now()
				check.Equal(t, w.ended(), "", "sent at the end")
				if d := time.Since(begun); d < c.lasts || d > c.lasts+2*lookEvery {
					t.Errorf("it lasted %v, want %v", d, c.lasts)
				}
			})
		})
	}
	// What net/http answers to half of what HTTP/2 begins with is its own affair.
	for _, sent := range []string{"PRI * HTTP/2.0\r\n\r\n", "\r\n\r\n"} {
		t.Run(fmt.Sprintf("handed over with %q", sent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, h := newPipes(), &http.Server{Handler: http.HandlerFunc(ok), ReadHeaderTimeout: 3 * time.Second, IdleTimeout: 10 * time.Second, Protocols: new(http.Protocols)}
				h.Protocols.SetHTTP1(true)
				h.Protocols.SetUnencryptedHTTP2(true)
				serve(t, New(h), l)
				w := l.dial(t)
				go w.send(sent)
				begun := time.Now()
				w.ended()
				if d := time.Since(begun); d > 7*time.Second {
					t.Errorf("it lasted %v", d)
				}
			})
		})
	}
	t.Run("long request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newPipes()
			serve(t, New(&http.Server{ReadHeaderTimeout: 3 * time.Second, IdleTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Hour)
				if err := r.Context().Err(); err != nil {
					t.Error(err)
				}
			})}), l)
			w := l.dial(t)
			for range 2 {
				w.send(get)
				w.answer("GET")
			}
		})
	})
}

// TestClientLeaves: a request's context ends when its client leaves, and for nothing else that the
// client does.
func TestClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, left := newPipes(), make(chan time.Time, 1)
		serve(t, New(&http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Error(err)
			}
			select {
			case <-r.Context().Done():
				left <- time.Now()
			case <-time.After(10 * time.Second):
			}
		})}), l)
		for _, sent := range []string{get, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"} {
			w := l.dial(t)
			w.send(sent)
			w.answer("") // It stayed.
			w.send(sent)
			time.Sleep(time.Second)
			w.send(get) // The next request came while it was watched.
			w.answer("")
			w.answer("")
			w.send(sent)
			time.Sleep(time.Second)
			now := time.Now()
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			check.Equal(t, (<-left).Sub(now), 0, "time until it was noticed")
			w = l.dial(t)
			w.send(sent)
			time.Sleep(time.Millisecond) // Before it is watched.
			now = time.Now()
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if d := (<-left).Sub(now); d > 2*lookEvery {
				t.Errorf("noticed after %v", d)
			}
		}
	})
}

// TestShutdown lets requests finish, and closes connections without one at once.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := New(&http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/long" {
				time.Sleep(time.Minute)
			}
			_, _ = io.WriteString(w, "done")
		})}), newPipes()
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		silent, idle, busy, net := l.dial(t), l.dial(t), l.dial(t), l.dial(t)
		idle.send(get)
		idle.answer("GET")
		busy.send("GET /long HTTP/1.1\r\nHost: h\r\n\r\n")
		net.send("GET /long HTTP/1.1\r\nHost: h\r\nPragma: x\r\n\r\n")
		synctest.Wait()
		begun := time.Now()
		down := make(chan error, 1)
		go func() { down <- s.Shutdown(t.Context()) }()
		silent.ended()
		idle.ended()
		check.Equal(t, time.Since(begun), 0, "time until those without a request ended")
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
		for _, c := range []*client{busy, net} {
			r, body := c.answer("GET")
			check.Equal(t, body, "done", "answer")
			check.Equal(t, r.Close, true, "close")
			c.ended()
		}
		if err := <-down; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := s.Serve(newPipes()); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
}

// TestClose cuts off requests in flight.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		s, l := New(&http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(ended)
		})}), newPipes()
		serve(t, s, l)
		busy := l.dial(t)
		busy.send(get)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		check.Equal(t, busy.ended(), "", "sent")
		<-ended
	})
}

// texts are what was logged.
type texts chan string

func (l texts) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestPanic: a handler that panics ends its connection and no other; the log says why.
func TestPanic(t *testing.T) {
	logged := make(texts, 10)
	l := listen(t)
	s := New(&http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, ErrorLog: hclog.New(&hclog.LoggerOptions{Output: logged}).StandardLogger(nil), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path != "/" {
			_, _ = io.WriteString(w, "not sent")
			panic("this is why")
		}
	})})
	serve(t, s, l)
	other := dial(t, l.Addr().String())
	other.send(get)
	other.answer("GET")
	for _, path := range []string{"/abort", "/x"} {
		check.Equal(t, len(logged), 0, "logged before")
		c := dial(t, l.Addr().String())
		c.send("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n")
		check.Equal(t, c.ended(), "", "sent")
	}
	other.send(get)
	other.answer("GET")
	if text := <-logged; !strings.Contains(text, "this is why") || !strings.Contains(text, "TestPanic") {
		t.Errorf("the log has %q", text)
	}
}

// secured is a listener that does the handshakes of TLS.
type secured struct {
	net.Listener
	config *tls.Config
}

func (l secured) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := tls.Server(c, l.config)
	return s, s.Handshake()
}

type markKey struct{}

// TestConnections: whatever a connection speaks, its handler knows it, what the server put into its
// context, and phrases.
func TestConnections(t *testing.T) {
	// Only its certificate and its client are of use here.
	model := httptest.NewTLSServer(http.NotFoundHandler())
	defer model.Close()
	for _, c := range []struct {
		name    string
		tls     bool
		proto   string
		headers http.Header
	}{
		{"plain", false, "HTTP/1.1", nil},
		{"handed over", false, "HTTP/1.1", http.Header{"Pragma": {"no-cache"}}},
		{"TLS", true, "HTTP/1.1", nil},
		{"TLS, handed over", true, "HTTP/1.1", http.Header{"Pragma": {"no-cache"}}},
		{"HTTP/2", true, "HTTP/2.0", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			marks := 0
			h := &http.Server{
				Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if (r.TLS != nil && r.TLS.HandshakeComplete) != c.tls || r.Proto != c.proto {
						t.Errorf("the handler sees %v, %v", r.Proto, r.TLS)
					}
					check.Equal(t, r.Context().Value(markKey{}), any("mark"), "mark")
					SetReason(r.Context(), http.StatusGone, "Deleted")
					SetFields(r.Context(), w.Header(), NewFields("X-One", "1"))
					SetFields(r.Context(), w.Header(), NewFields("X-One", "2"))
					w.WriteHeader(http.StatusGone)
				}),
				ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
					marks++
					return context.WithValue(ctx, markKey{}, "mark")
				},
				ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute,
			}
			l := listen(t)
			scheme := "http://"
			client := &http.Client{Transport: &http.Transport{}}
			address := l.Addr().String()
			if c.tls {
				scheme = "https://"
				config := model.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				client.Transport = &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: c.proto == "HTTP/2.0"}
				server := &tls.Config{Certificates: model.TLS.Certificates}
				if c.proto == "HTTP/2.0" {
					server.NextProtos = []string{"h2"}
				}
				l = secured{l, server}
			}
			serve(t, New(h), l)
			defer client.CloseIdleConnections()
			for range 3 {
				r, err := http.NewRequest("GET", scheme+address, nil)
				if err != nil {
					t.Fatal(err)
				}
				if c.headers != nil {
					r.Header = c.headers
				}
				a, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, a.Body); err != nil {
					t.Error(err)
				}
				if err := a.Body.Close(); err != nil {
					t.Error(err)
				}
				want := "410 Deleted"
				if c.proto == "HTTP/2.0" {
					want = "410 Gone"
				}
				check.Equal(t, a.Status, want, "status")
				check.Equal(t, strings.Join(a.Header["X-One"], ","), "2", "fields")
			}
			check.Equal(t, marks, 1, "connections")
		})
	}
}

// failing is a listener that fails for a while, and then for good.
type failing struct {
	pipes
	temporary int
}

type failure struct{ isTemporary bool }

func (f failure) Error() string   { return "failure" }
func (f failure) Timeout() bool   { return false }
func (f failure) Temporary() bool { return f.isTemporary }

func (f *failing) Accept() (net.Conn, error) {
	f.temporary--
	return nil, failure{f.temporary >= 0}
}

func TestAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		l := &failing{*newPipes(), 12}
		err := New(&http.Server{Handler: http.HandlerFunc(ok), ErrorLog: hclog.NewNullLogger().StandardLogger(nil)}).Serve(l)
		if f, ok := errors.AsType[failure](err); !ok || f.isTemporary {
			t.Errorf("%v", err)
		}
		// 5 ms, twice as much each time, 1 s at most.
		check.Equal(t, time.Since(begun), 1275*time.Millisecond+4*time.Second, "time")
		select {
		case <-l.closed:
		default:
			t.Error("the listener is open")
		}
	})
}

// TestBodyIsReadOn: a goroutine that reads a body when the answer is finished reads nothing of the
// next request.
func TestBodyIsReadOn(t *testing.T) {
	bodies := make(chan io.ReadCloser, 2)
	_, address := start(t, func(_ http.ResponseWriter, r *http.Request) { bodies <- r.Body })
	c := dial(t, address)
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc")
	c.answer("POST")
	b := <-bodies
	c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\ndef")
	c.answer("POST")
	if n, err := b.Read(make([]byte, 3)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
		t.Errorf("%d, %v", n, err)
	}
}

// TestBodyDoesNotCome: the rest of a body is waited for as long as for a header.
func TestBodyDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		serve(t, New(&http.Server{Handler: http.HandlerFunc(ok), ReadHeaderTimeout: 3 * time.Second, IdleTimeout: time.Hour}), l)
		c := l.dial(t)
		begun := time.Now()
		c.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 30\r\n\r\nabc")
		r, _ := c.answer("POST")
		check.Equal(t, r.Close, true, "close")
		check.Equal(t, time.Since(begun), 3*time.Second, "time")
		c.ended()
	})
}

// TestDeadlines: what a handler bounds is bounded for its request alone.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		serve(t, New(&http.Server{ReadHeaderTimeout: time.Hour, IdleTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			control := http.NewResponseController(w)
			if err := errors.Join(control.SetReadDeadline(time.Now().Add(time.Second)), control.SetWriteDeadline(time.Now().Add(time.Second))); err != nil {
				t.Error(err)
			}
			if r.URL.Path == "/" {
				return
			}
			if _, err := w.Write(make([]byte, 10)); err != nil { // It is held back.
				t.Error(err)
			}
			if err := control.Flush(); !isTimeout(err) {
				t.Errorf("%v", err)
			}
			<-r.Context().Done() // The client is not to be reached.
			if _, err := w.Write(make([]byte, 10)); !isTimeout(err) {
				t.Errorf("%v", err)
			}
		})}), l)
		c := l.dial(t)
		for range 3 {
			c.send(get)
			c.answer("GET")
			time.Sleep(time.Minute)
		}
		c.send("GET /stuck HTTP/1.1\r\nHost: h\r\n\r\n")
		time.Sleep(time.Minute)
		check.Equal(t, c.ended(), "", "sent")
	})
}
