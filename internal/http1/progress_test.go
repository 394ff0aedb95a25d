package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// piped is a listener of connections in memory.
type piped struct{ conns chan net.Conn }

func (l *piped) Accept() (net.Conn, error) {
	if c, ok := <-l.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *piped) Close() error   { close(l.conns); return nil }
func (l *piped) Addr() net.Addr { return &net.TCPAddr{} }

func (l *piped) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

// slowly gives 4 KiB at a time, with a pause before each, and then nothing.
type slowly struct {
	parts int
	pause time.Duration
	gone  <-chan struct{}
}

func (s *slowly) Read(p []byte) (int, error) {
	if s.parts == 0 {
		<-s.gone
		return 0, io.ErrUnexpectedEOF
	}
	s.parts--
	time.Sleep(s.pause)
	return copy(p, make([]byte, min(len(p), leastMove))), nil
}

// What does not move ends after half a minute, over each protocol; what moves a little does not,
// and nothing is asked of a client that there is nothing to move for.
func TestLeastProgress(t *testing.T) {
	const parts = 5
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		length  int // of the body that the client announces
		parts   int // of it that come
		reads   int // how many times 4 KiB the client takes of the answer, with as long a pause
		pause   time.Duration
		after   time.Duration // when the handler ends, about
		failed  bool
	}{
		{"body that stops", readAll, MaxBody, 1, 0, 0, stallTime, true},
		{"body that is slow", readAll, parts * leastMove, parts, 0, 25 * time.Second, parts * 25 * time.Second, false},
		{"body that is slow and stops", readAll, MaxBody, parts, 0, 25 * time.Second, parts*25*time.Second + stallTime, true},
		{"body that is too slow", readAll, parts * leastMove, parts, 0, 35 * time.Second, stallTime, true},
		{"answer that is not read", writeMuch, 0, 0, 0, 0, stallTime, true},
		{"answer that is read for a while", writeMuch, 0, 0, parts, 25 * time.Second, parts*25*time.Second + stallTime, true},
		{"long wait", waitLong, 0, 0, 0, 0, time.Hour, false},
		{"long wait behind a body", func(w http.ResponseWriter, r *http.Request) { readAll(w, r); waitLong(w, r) }, leastMove, 1, 0, 0, time.Hour, false},
	} {
		for _, protocol := range []string{"plain", "net/http", "HTTP/2"} {
			if protocol == "HTTP/2" && c.reads > 0 {
				continue // It takes what its window has at once, and counts as quick.
			}
			t.Run(c.name+" over "+protocol, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := &piped{make(chan net.Conn)}
					var failed atomic.Bool
					ended := make(chan time.Time, 1)
					begun := time.Now()
					h := &http.Server{ReadHeaderTimeout: time.Minute, IdleTimeout: 2 * time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer func() { failed.Store(recover() != nil); ended <- time.Now() }()
						c.handler(w, r)
					})}
					h.Protocols = new(http.Protocols)
					h.Protocols.SetHTTP1(true)
					h.Protocols.SetUnencryptedHTTP2(true)
					s := New(h)
					done := make(chan error, 1)
					go func() { done <- s.Serve(l) }()
					ctx, gone := context.WithCancel(t.Context())
					var body io.Reader
					if c.length > 0 {
						body = io.LimitReader(&slowly{c.parts, c.pause, ctx.Done()}, int64(c.length))
					}
					client := make(chan struct{})
					go func() {
						defer close(client)
						request(ctx, l, protocol, body, int64(c.length), c.reads, c.pause)
					}()
					took := (<-ended).Sub(begun)
					if failed.Load() != c.failed || took < c.after-2*lookEvery || took > c.after+3*time.Second && protocol != "HTTP/2" || took > c.after+40*time.Second {
						t.Errorf("failed %v after %s, want %v after %s", failed.Load(), took, c.failed, c.after)
					}
					gone()
					<-client
					if err := s.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
						t.Error(err)
					}
					<-done
					time.Sleep(time.Minute) // net/http lingers.
				})
			})
		}
	}
}

func readAll(_ http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		panic(err)
	}
}

func writeMuch(w http.ResponseWriter, _ *http.Request) {
	if _, err := w.Write(make([]byte, 8<<20)); err != nil {
		panic(err)
	}
}

func waitLong(http.ResponseWriter, *http.Request) { time.Sleep(time.Hour) }

// request sends a request and takes so many times 4 KiB of its answer, with a pause before each.
func request(ctx context.Context, l *piped, protocol string, body io.Reader, length int64, reads int, pause time.Duration) {
	t := &http.Transport{Protocols: new(http.Protocols), WriteBufferSize: 1, ReadBufferSize: 1, DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial(), nil }}
	t.Protocols.SetHTTP1(protocol != "HTTP/2")
	t.Protocols.SetUnencryptedHTTP2(protocol == "HTTP/2")
	t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 16 << 10, MaxReceiveBufferPerConnection: 64 << 10}
	defer t.CloseIdleConnections()
	r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://node", body)
	r.ContentLength = length
	if protocol == "net/http" {
		r.Header.Set("Pragma", "x")
	}
	answer, err := t.RoundTrip(r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	for range reads {
		time.Sleep(pause)
		if _, err := io.CopyN(io.Discard, answer.Body, leastMove); err != nil {
			return
		}
	}
	<-ctx.Done()
}

// A client whose system took the beginning of an answer, and who takes nothing, is given up as soon
// as any other.
func TestUnreadAnswer(t *testing.T) {
	for name, size := range map[string]int{"more than the system takes": 64 << 20, "all of it": 200 << 10} {
		t.Run(name, func(t *testing.T) { unreadAnswer(t, size) })
	}
}

func unreadAnswer(t *testing.T, size int) {
	ended, begun := make(chan struct{}), make(chan struct{})
	answer := make([]byte, size)
	s, address := start(t, func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		_, _ = w.Write(answer)
	})
	client := dial(t, address)
	if err := client.Conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-begun // A busy machine may take long until then.
	go func() {
		defer close(ended)
		for isThere := true; isThere; time.Sleep(time.Millisecond) {
			s.mu.Lock()
			isThere = len(s.conns) > 0
			s.mu.Unlock()
		}
	}()
	// Half a minute in a few moments.
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		case <-time.After(2 * time.Millisecond):
			s.mu.Lock()
			for c := range s.conns {
				c.look(s.tick.Add(1))
			}
			s.mu.Unlock()
		}
	}
	if took := s.tick.Load(); took > stallTicks*3/2 {
		t.Errorf("it took %s", time.Duration(took)*lookEvery)
	}
}

// A client that left is noticed whatever it sent before, over each way that HTTP/1 is served.
func TestClientLeavesBehindPipelined(t *testing.T) {
	for _, c := range []struct{ name, field string }{{"plain", ""}, {"net/http", "Pragma: x\r\n"}} {
		for _, sent := range []int{0, 1, 8 << 10, 100 << 10} {
			noticed := make(chan struct{})
			_, address := start(t, func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				close(noticed)
			})
			client := dial(t, address)
			client.send("GET / HTTP/1.1\r\nHost: h\r\n" + c.field + "\r\n")
			client.send(strings.Repeat("x", sent))
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-noticed:
			case <-time.After(20 * time.Second):
				t.Fatalf("%s, %d bytes behind: nobody noticed", c.name, sent)
			}
		}
	}
}
