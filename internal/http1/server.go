package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// lookEvery is how often a server looks at its connections.
	lookEvery = 250 * time.Millisecond
	// maxPause bounds the pause after a connection that could not be accepted.
	maxPause = time.Second
)

// Server serves what an http.Server describes: its Handler, ConnContext, ReadHeaderTimeout,
// IdleTimeout and ErrorLog hold for plain requests, all of it for others.
type Server struct {
	// Calls serves connections of HTTP/2 whose first request is a call of gRPC, with their context.
	// It reads them from their first byte on; our SETTINGS have been sent. It does not block. Nil:
	// net/http serves them too. It must not change once Serve is called.
	Calls func(ctx context.Context, c net.Conn)

	// ByNetHTTP leaves every request to net/http. It must not change once Serve is called.
	ByNetHTTP bool

	others                 *http.Server // serves requests that are not plain
	handler                http.Handler
	headerTicks, idleTicks int64 // no connection waits for longer
	handed                 *handed
	requests               requests // of others

	// TLSClient hears of each client that speaks TLS on a connection without it. The server then
	// answers 400 and closes the connection. It must not change once the server serves. Nil:
	// net/http, which waits for the end of a line, gets the connection.
	TLSClient func(remote net.Addr)

	owned         sync.WaitGroup // of what Serve starts, and of connections while they are sorted
	greetingFrame []byte

	tick atomic.Int64           // how often it has looked
	date atomic.Pointer[string] // the field, as of then

	closing context.Context // ends when it closes
	close   context.CancelFunc
	gone    context.Context // ends when it closes and there are no conns
	empty   context.CancelFunc

	mu       sync.Mutex // guards the fields below
	listener net.Listener
	conns    map[*conn]struct{}
	sorting  map[*sorted]struct{}
}

// New returns a server of what h describes, which nothing else may use.
func New(h *http.Server) *Server {
	s := &Server{
		others: h, handler: h.Handler, headerTicks: int64(h.ReadHeaderTimeout / lookEvery), idleTicks: int64(h.IdleTimeout / lookEvery),
		handed: newHanded(),
		conns:  map[*conn]struct{}{}, sorting: map[*sorted]struct{}{},
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.gone, s.empty = context.WithCancel(context.Background())
	h.Handler = http.HandlerFunc(s.watch)
	given := h.ConnContext
	h.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if p, ok := c.(interface{ context() context.Context }); ok { // It was ours.
			return context.WithValue(p.context(), connKey{}, p)
		}
		if given != nil {
			ctx = given(ctx, c)
		}
		return ctx
	}
	s.setDate()
	s.greetingFrame = s.greeting()
	return s
}

// Serve answers the requests of the listener's connections, on which handshakes of TLS must be
// done. It closes the listener, and returns http.ErrServerClosed after Shutdown or Close. It is
// called once.
func (s *Server) Serve(l net.Listener) error {
	if !s.begin(l) {
		return errors.Join(http.ErrServerClosed, l.Close())
	}
	err := s.accept(l)
	if s.isClosing() {
		return http.ErrServerClosed
	}
	return errors.Join(err, s.Close())
}

// begin starts what Serve needs, unless the server is closing.
func (s *Server) begin(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() {
		return false
	}
	s.listener = l
	s.owned.Go(s.look)
	s.owned.Go(func() {
		if err := s.others.Serve(s.handed); !errors.Is(err, http.ErrServerClosed) {
			s.logf("http1: %v", err)
		}
	})
	return true
}

// accept takes connections until the listener fails for good.
func (s *Server) accept(l net.Listener) error {
	var pause time.Duration
	for {
		c, err := l.Accept()
		if err == nil {
			pause = 0
			s.admit(c)
			continue
		}
		//lint:ignore SA1019 Nothing else says that there are too many files for now.
		if n, ok := errors.AsType[net.Error](err); !ok || !n.Temporary() {
			return err
		}
		pause = min(max(2*pause, 5*time.Millisecond), maxPause)
		s.logf("http1: accept: %v; again in %v", err, pause)
		select {
		case <-time.After(pause):
		case <-s.closing.Done():
			return err
		}
	}
}

// admit begins to serve a connection.
func (s *Server) admit(nc net.Conn) {
	c := &conn{server: s, net: nc, since: s.tick.Load(), buf: make([]byte, bufferSize), remote: nc.RemoteAddr().String()}
	c.out.tick = &s.tick
	if t, ok := nc.(interface{ ConnectionState() tls.ConnectionState }); ok {
		state := t.ConnectionState()
		c.tls = &state
	} else {
		c.out.resume = c.writeAgain
	}
	isH2 := c.tls != nil && c.tls.NegotiatedProtocol == "h2"
	if isH2 && s.Calls == nil {
		s.handed.give(nc)
		return
	}
	c.ctx = s.others.ConnContext(context.WithValue(context.Background(), http.LocalAddrContextKey, nc.LocalAddr()), nc)
	if isH2 {
		go s.sort(&sorted{begunConn: begunConn{Conn: nc, ctx: c.ctx}, tls: c.tls})
		return
	}
	c.answers = context.WithValue(c.ctx, connKey{}, &c.w)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() {
		_ = nc.Close()
		return
	}
	s.conns[c] = struct{}{}
	go c.serve()
}

// forget takes a connection off those that are served.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) == 0 && s.isClosing() {
		s.empty()
	}
}

func (s *Server) isClosing() bool { return s.closing.Err() != nil }

// look looks at all connections again and again.
func (s *Server) look() {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-s.gone.Done():
			return
		}
		now := s.tick.Add(1)
		s.setDate()
		s.mu.Lock()
		for c := range s.conns {
			c.look(now)
		}
		s.mu.Unlock()
		s.requests.look(now)
	}
}

func (s *Server) setDate() {
	field := "Date: " + time.Now().UTC().Format(http.TimeFormat) + "\r\n"
	s.date.Store(&field)
}

// beginClose takes no more connections and requests.
func (s *Server) beginClose() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosing() {
		return nil
	}
	s.close()
	for c := range s.conns {
		c.endUnlessServing()
	}
	for c := range s.sorting {
		_ = c.Conn.Close()
	}
	if len(s.conns) == 0 {
		s.empty()
	}
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// Shutdown lets the requests in flight finish, for as long as the context allows, and then closes.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.beginClose()
	err = errors.Join(err, s.others.Shutdown(ctx))
	select {
	case <-s.gone.Done():
		s.owned.Wait()
		return err
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
}

// Close cuts off all connections. Handlers see their contexts end, and are not waited for.
func (s *Server) Close() error {
	err := s.beginClose()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.net.Close()
		c.leave()
	}
	s.empty()
	s.mu.Unlock()
	err = errors.Join(err, s.others.Close())
	s.owned.Wait()
	return err
}

func (s *Server) logf(format string, args ...any) {
	if s.others.ErrorLog != nil {
		s.others.ErrorLog.Printf(format, args...)
	}
}
