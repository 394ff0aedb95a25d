package grpcapi

import (
	"context"
	"sync"
)

// leadership is the time in which this node leads, for those who want to hear of its end.
type leadership struct {
	mu   sync.Mutex
	ctx  context.Context // done when it is over; nil: no one asked
	over context.CancelFunc
}

// now returns a context that is done when this node ceases to lead from now on.
func (l *leadership) now() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.over = context.WithCancel(context.Background())
	}
	return l.ctx
}

// LostLead ends the subscriptions whose callers want the leader: this node leads no more.
func (s *Server) LostLead() {
	l := &s.term
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx != nil {
		l.over()
		l.ctx = nil
	}
}
