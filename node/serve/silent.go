package serve

import (
	"net"
	"net/http"
	"sync"
)

// silentConns are the connections on which no request has begun. Clients open
// them ahead of need. http.Server.Shutdown takes a young one for busy and would
// wait five seconds for it, so they are closed before.
type silentConns struct {
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// note is the http.Server's ConnState.
func (s *silentConns) note(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case state != http.StateNew:
		delete(s.conns, c)
	case s.closed:
		// Its reader ends with an error, as when the client had gone.
		_ = c.Close()
	default:
		if s.conns == nil {
			s.conns = map[net.Conn]struct{}{}
		}
		s.conns[c] = struct{}{}
	}
}

// close ends all of them, and those that still come.
func (s *silentConns) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}
