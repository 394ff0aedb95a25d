package grpcapi

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// registrar registers services. It gives methods with one request what grpc-go gives streams alone:
// the caller is known before the request is read.
type registrar struct{ *Server }

func (r registrar) RegisterService(d *grpc.ServiceDesc, service any) {
	all := *d
	all.Methods, all.Streams = nil, nil
	add := func(name string, client, server bool, handler grpc.StreamHandler) {
		info := &grpc.StreamServerInfo{FullMethod: "/" + d.ServiceName + "/" + name, IsClientStream: client, IsServerStream: server}
		all.Streams = append(all.Streams, grpc.StreamDesc{
			StreamName: name,
			// grpc-go answers INTERNAL where a client sends too many messages; receiver does not.
			ClientStreams: true,
			Handler:       func(service any, stream grpc.ServerStream) error { return r.around(service, stream, info, handler) },
		})
	}
	for _, m := range d.Streams {
		add(m.StreamName, m.ClientStreams, m.ServerStreams, m.Handler)
	}
	for _, m := range d.Methods {
		add(m.MethodName, false, false, func(service any, stream grpc.ServerStream) (err error) {
			one := stream.(*single)
			one.answer, err = m.Handler(service, stream.Context(), stream.RecvMsg, nil)
			return err
		})
	}
	r.server.RegisterService(&all, service)
}

// conns are the connections that are open.
type conns struct {
	mu  sync.Mutex
	all map[*conn]struct{}
}

func (s *conns) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[*conn]struct{}{}
	}
	s.all[c] = struct{}{}
}

func (s *conns) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, c)
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
		case <-s.door.Closed():
			return
		}
		most := stallLooks
		if s.draining.Err() != nil {
			most = endLooks
		}
		s.conns.each(func(c *conn) { c.each(func(one *call) { one.look(most) }) })
	}
}

// look ends the call if it is stalled.
func (c *call) look(most int) {
	c.in.press()
	atRest, moved := c.in.isAtRest()
	if !c.receiving.Load() || atRest || moved-c.moved >= leastMove {
		c.moved, c.stalledIn = moved, 0
	} else if c.stalledIn++; c.stalledIn > stallLooks {
		c.giveUp(problemStalledIn)
	}
	taken := c.written.Load()
	if !c.sending.Load() || taken-c.taken >= leastMove {
		c.taken, c.stalledOut = taken, 0
		return
	}
	if c.stalledOut++; c.stalledOut > most {
		c.giveUp(problemStalledOut)
		c.conn.reset(c) // Or grpc-go keeps the messages.
	}
	if c.stalledOut > 2*stallLooks {
		_ = c.conn.Close() // The client has left half a frame, too.
	}
}
