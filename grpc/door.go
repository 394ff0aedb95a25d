package grpcapi

import (
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/internal/h2"
)

// registrar registers services.
type registrar struct{ *Server }

func (r registrar) RegisterService(d *grpc.ServiceDesc, service any) {
	r.services[d.ServiceName] = true
	for _, m := range d.Streams {
		r.methods["/"+d.ServiceName+"/"+m.StreamName] = &method{m.ClientStreams, m.ServerStreams, service, m.Handler}
	}
	for _, m := range d.Methods {
		r.methods["/"+d.ServiceName+"/"+m.MethodName] = &method{service: service, handler: func(service any, stream grpc.ServerStream) (err error) {
			one := stream.(*single)
			one.answer, err = m.Handler(service, stream.Context(), stream.RecvMsg, nil)
			return err
		}}
	}
}

// conns are the connections that are open.
type conns struct {
	mu     sync.Mutex
	all    map[*conn]struct{}
	closed chan struct{} // is closed when none is left; nil: more may come
}

// add adds a connection. It is false when no more may come.
func (s *conns) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return false
	}
	if s.all == nil {
		s.all = map[*conn]struct{}{}
	}
	s.all[c] = struct{}{}
	return true
}

func (s *conns) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
	if s.closed != nil && len(s.all) == 0 {
		close(s.closed)
	}
}

// close lets the calls of all connections finish, for so long, and waits until there is none.
func (s *conns) close(patience time.Duration) {
	s.mu.Lock()
	if s.closed == nil {
		s.closed = make(chan struct{})
		if len(s.all) == 0 {
			close(s.closed)
		}
	}
	s.mu.Unlock()
	s.each((*conn).Shutdown)
	timer := time.AfterFunc(patience, func() { s.each((*conn).Close) })
	defer timer.Stop()
	<-s.closed
}

func (s *conns) each(f func(*conn)) {
	s.mu.Lock()
	all := make([]*conn, 0, len(s.all))
	for c := range s.all {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		f(c)
	}
}

// A call ends that should move and does not move so many bytes in so many looks, or in two when the
// node ends.
const (
	lookEvery  = time.Second
	leastMove  = 4 << 10
	stallLooks = 30
	endLooks   = 2
)

var (
	problemStalledIn  = plain(codes.DeadlineExceeded, "The client sent too little for 30 seconds")
	problemStalledOut = plain(codes.DeadlineExceeded, "The client took too little for 30 seconds")
)

// look looks at all calls again and again.
func (s *Server) look() {
	ticks := s.opts.ticks
	if ticks == nil {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		ticks = t.C
	}
	for {
		select {
		case <-ticks:
		case <-s.closed:
			return
		}
		most := stallLooks
		if s.draining.Err() != nil {
			most = endLooks
		}
		now := time.Now()
		s.conns.each(func(c *conn) {
			c.Look(now, most)
			c.Each(func(one h2.Receiver) { one.(*call).look(most) })
		})
	}
}

// look ends the call if it is stalled.
func (c *call) look(most int) {
	c.press()
	c.mu.Lock()
	isWaiting := c.state == isNew
	c.mu.Unlock()
	if isWaiting { // The caller may not be one.
		c.wake()
	}
	atRest, moved := c.in.isAtRest()
	if !c.receiving.Load() || atRest || moved-c.moved >= leastMove {
		c.moved, c.stalledIn = moved, 0
	} else if c.stalledIn++; c.stalledIn > stallLooks {
		c.giveUp(problemStalledIn)
	}
	taken := c.stream.Sent()
	if !c.sending.Load() || taken-c.taken >= leastMove {
		c.taken, c.stalledOut = taken, 0
		return
	}
	if c.stalledOut++; c.stalledOut > most {
		c.giveUp(problemStalledOut)
		c.stream.Reset(http2.ErrCodeCancel)
	}
}
