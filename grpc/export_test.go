package grpcapi

import "time"

// CutOff has Close wait for no call.
func CutOff(s *Server) { s.patience = 0 }

// OpenCalls is how many calls there are.
func OpenCalls(s *Server) (n int) {
	s.conns.each(func(c *conn) { c.each(func(*call) { n++ }) })
	return n
}

// RunningCalls is how many methods have not returned.
func RunningCalls(s *Server) (n int) {
	s.conns.each(func(c *conn) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, one := range c.calls {
			if !one.isOver {
				n++
			}
		}
	})
	return n
}

// WithTicks has the server look for stalled calls when a test says.
func WithTicks(o Options, ticks <-chan time.Time) Options {
	o.ticks = ticks
	return o
}

// StallLooks is after how many looks a call is stalled.
const StallLooks = stallLooks
