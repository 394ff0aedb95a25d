package grpcapi

import (
	"time"

	"github.com/annalsdb/annals/internal/h2"
)

// CutOff has Close wait for no call.
func CutOff(s *Server) { s.patience = 0 }

// OpenCalls is how many calls there are.
func OpenCalls(s *Server) (n int) {
	s.conns.each(func(c *conn) { c.Each(func(h2.Receiver) { n++ }) })
	return n
}

// WithTicks has the server look for stalled calls when a test says.
func WithTicks(o Options, ticks <-chan time.Time) Options {
	o.ticks = ticks
	return o
}

// StallLooks is after how many looks a call is stalled.
const StallLooks = stallLooks

// RestingWorkers is how many goroutines wait for calls.
const RestingWorkers = restingWorkers

// Methods have the operation that each method is.
var Methods = methods
