package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// TestCloseWithoutBody: who says that the connection ends with the answer gets it without having
// sent the body, as of net/http.
func TestCloseWithoutBody(t *testing.T) {
	l := listen(t)
	serve(t, &http.Server{Handler: http.HandlerFunc(ok)}, l)
	_, ours := start(t, ok)
	for _, to := range []struct{ name, address string }{{"net/http", l.Addr().String()}, {"ours", ours}} {
		t.Run(to.name, func(t *testing.T) {
			c := dial(t, to.address)
			c.send("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 3\r\n\r\n")
			if err := c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
				t.Fatal(err)
			}
			c.answer("POST")
		})
	}
}

// TestCloseEndsYoungRequest: Close ends the contexts of all requests, not only of those that are
// watched.
func TestCloseEndsYoungRequest(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		select {
		case <-r.Context().Done():
			close(ended)
		case <-time.After(10 * time.Second):
		}
	})
	l := listen(t)
	s := New(&http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute})
	serve(t, s, l)
	c := dial(t, l.Addr().String())
	c.send(get)
	<-begun
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	case <-time.After(3 * time.Second):
		t.Error("the request's context goes on")
	}
}

type numbered struct {
	net.Conn
	n int
}

// TestConnContextInOrder: ConnContext is asked in the order in which connections are accepted, and
// before the next one is. The mark of a node's connection (node/serve/tls.go) lies under its
// address, which another may have afterwards.
func TestConnContextInOrder(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	asked := make(chan int, 100)
	l := newPipes()
	serve(t, New(&http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute, Handler: http.HandlerFunc(ok), ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		asked <- c.(numbered).n
		return ctx
	}}), l)
	for i := range 20 {
		ours, theirs := net.Pipe()
		t.Cleanup(func() { _ = ours.Close() })
		l.conns <- numbered{theirs, i}
	}
	for i := range 20 {
		if n := <-asked; n != i {
			t.Fatalf("connection %d was asked for as number %d", n, i)
		}
	}
}

// TestGoexit: a handler that ends its goroutine ends its connection, and Shutdown does not wait for
// it.
func TestGoexit(t *testing.T) {
	s, address := start(t, func(http.ResponseWriter, *http.Request) { runtime.Goexit() })
	c := dial(t, address)
	c.send(get)
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); isTimeout(err) {
		t.Error("the connection is open")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// TestShutdownWithHalfAHeader: a connection on which no request is whole holds Shutdown up no
// longer than with net/http, which takes it for idle if it was used before, and which node/serve
// closes at once if it was not.
func TestShutdownWithHalfAHeader(t *testing.T) {
	for _, c := range []struct{ name, sent string }{{"first request", get[:20]}, {"later request", get + get[:20]}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := New(&http.Server{Handler: http.HandlerFunc(ok), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}), newPipes()
				serve(t, s, l)
				w := l.dial(t)
				go w.send(c.sent)
				if len(c.sent) > len(get) {
					w.answer("GET")
				}
				time.Sleep(time.Second)
				begun := time.Now()
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				if d := time.Since(begun); d > 6*time.Second {
					t.Errorf("Shutdown took %v", d)
				}
			})
		})
	}
}

// TestLargeWrite: a part of an answer that is larger than any buffer is on its way before the next
// one is made, and is not copied. Pages are sent in parts of 8 MiB so that none is held whole.
func TestLargeWrite(t *testing.T) {
	const part = 8 << 20
	next := make(chan struct{})
	handler := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, part))
		<-next
		_, _ = w.Write(make([]byte, part))
	}
	l := listen(t)
	serve(t, &http.Server{Handler: http.HandlerFunc(handler)}, l)
	_, ours := start(t, handler)
	for _, to := range []struct{ name, address string }{{"net/http", l.Addr().String()}, {"ours", ours}} {
		t.Run(to.name, func(t *testing.T) {
			c := dial(t, to.address)
			c.send(get)
			if err := c.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
				t.Fatal(err)
			}
			got := 0
			for b := make([]byte, 64<<10); got < part-64<<10; {
				n, err := c.Read(b)
				if got += n; err != nil {
					t.Errorf("of the first part %d bytes came: %v", got, err)
					break
				}
			}
			next <- struct{}{}
		})
	}
}

// TestClientLeavesBehindMore: a client that sent the beginning of its next request is noticed to
// leave, as net/http notices it.
func TestClientLeavesBehindMore(t *testing.T) {
	begun, ended := make(chan struct{}, 10), make(chan bool, 10)
	handler := func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/first" {
			return
		}
		begun <- struct{}{}
		select {
		case <-r.Context().Done():
			ended <- true
		case <-time.After(5 * time.Second):
			ended <- false
		}
	}
	l := listen(t)
	serve(t, &http.Server{Handler: http.HandlerFunc(handler)}, l)
	_, ours := start(t, handler)
	for name, address := range map[string]string{"net/http": l.Addr().String(), "ours": ours} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, address)
			c.send("GET /first HTTP/1.1\r\nHost: h\r\n\r\n" + get)
			<-begun
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			check.Equal(t, <-ended, true, "noticed")
		})
	}
}

// TestNoTimeouts: timeouts of zero are none, as http.Server has it. The tests of package http have
// such a server.
func TestNoTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		serve(t, New(&http.Server{Handler: http.HandlerFunc(ok)}), l)
		w := l.dial(t)
		time.Sleep(time.Second)
		w.send(get)
		w.answer("GET")
		time.Sleep(time.Second)
		w.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n")
		time.Sleep(time.Second)
		w.send("abc")
		r, _ := w.answer("POST")
		check.Equal(t, r.Close, false, "close")
	})
}

// TestShutdownAtOnce: Shutdown and Serve may begin at the same time.
func TestShutdownAtOnce(t *testing.T) {
	for range 2000 {
		s, l := New(&http.Server{Handler: http.HandlerFunc(ok), ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}), newPipes()
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Fatal(err)
		}
	}
}

// TestShutdownBehindFlushedAnswer: a request whose answer began before Shutdown holds it up until
// it is answered, and no longer. Live tails are such requests: they end because the node does.
func TestShutdownBehindFlushedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := New(&http.Server{ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Second)
		})}), newPipes()
		serve(t, s, l)
		c := l.dial(t)
		go func() {
			c.send(get)
			c.answer("GET")
		}()
		time.Sleep(100 * time.Millisecond)
		begun := time.Now()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d > 2*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
	})
}

// TestSlowReader: a handler that gives its client so much time for each piece, as a live tail does,
// serves one that takes each piece in time. docs/architecture.md says: 30 s for 4 KiB at most.
func TestSlowReader(t *testing.T) {
	const pieces, piece, stall = 40, 4 << 10, 30 * time.Second
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		control := http.NewResponseController(w)
		for i := range pieces {
			_ = control.SetWriteDeadline(time.Now().Add(stall))
			_, err := w.Write(make([]byte, piece))
			if err == nil && i == pieces-1 {
				err = control.Flush()
			}
			if err != nil {
				t.Errorf("piece %d: %v", i, err)
				return
			}
		}
	})
	for _, name := range []string{"net/http", "ours"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, l := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}, newPipes()
				if name == "ours" {
					serve(t, New(h), l)
				} else {
					serve(t, h, l)
				}
				c := l.dial(t)
				c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
				got := 0
				for b := make([]byte, 1<<10); ; time.Sleep(time.Second) { // 1 KiB a second.
					n, err := c.Read(b)
					if err != nil {
						if err != io.EOF {
							t.Error(err)
						}
						break
					}
					got += n
				}
				if got < pieces*piece {
					t.Errorf("it got %d of %d bytes", got, pieces*piece)
				}
			})
		})
	}
}

// TestNothingIsHeld: an answer that waits for what comes next holds no buffer. There may be
// hundreds of live tails.
func TestNothingIsHeld(t *testing.T) {
	_, address := start(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 100<<10))
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		if out := w.(*response).out; out != nil {
			t.Errorf("%d bytes are held", cap(*out))
		}
	})
	c := dial(t, address)
	c.send(get)
	c.answer("GET")
}

// TestPanicBehindAnswers: answers that went out before a handler gave up reach the client, as of
// net/http: what is left of the body is read before the connection is closed, or else the system
// resets it.
func TestPanicBehindAnswers(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
		_, _ = w.Write(make([]byte, 400000))
	}
	l := listen(t)
	serve(t, &http.Server{Handler: http.HandlerFunc(handler)}, l)
	_, ours := start(t, handler)
	for _, to := range []struct{ name, address string }{{"net/http", l.Addr().String()}, {"ours", ours}} {
		t.Run(to.name, func(t *testing.T) {
			for range 20 {
				conn, err := net.Dial("tcp", to.address)
				if err != nil {
					t.Fatal(err)
				}
				c := talk(t, conn)
				c.send(get + "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50000\r\n\r\n" + strings.Repeat("x", 50000))
				time.Sleep(20 * time.Millisecond)
				r, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, r.Body); n != 400000 || err != nil {
					t.Fatalf("%d bytes, %v", n, err)
				}
			}
		})
	}
}

// TestFieldOrder: the same request gets the same answer to the byte, as of net/http, which sorts
// the fields.
func TestFieldOrder(t *testing.T) {
	_, address := start(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"A", "B", "C", "D", "E", "Date"} {
			w.Header().Set(name, "x")
		}
	})
	first := ""
	for range 30 {
		c := dial(t, address)
		c.send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		got := c.ended()
		if first == "" {
			first = got
		}
		if got != first {
			t.Fatalf("%q, and before %q", got, first)
		}
	}
}
