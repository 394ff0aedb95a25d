package run

import (
	"sync/atomic"

	"github.com/annalsdb/annals/projection/handler"
)

// compiled is the handler of an attempt. It is compiled when the first event comes: most
// projections have none to handle for a while, and a compiled script takes several times the memory
// of all else of a projection. handler belongs to the loop, which has the lock. interrupt may be
// called by others at any moment: from the return of compile on it reaches the handler.
type compiled struct {
	handler handler.Handler // nil: not compiled, or closed
	cut     atomic.Pointer[handler.Interrupter]
}

// compile makes the handler.
func (s *compiled) compile(with func() (handler.Handler, error)) error {
	h, err := with()
	if err != nil {
		return err
	}
	s.handler = h
	if i, ok := h.(handler.Interrupter); ok {
		s.cut.Store(&i)
	}
	return nil
}

// interrupt has the handler give up its event. It does nothing before there is a handler.
func (s *compiled) interrupt() {
	if h := s.cut.Load(); h != nil {
		(*h).Interrupt()
	}
}

// close may be called more than once.
func (s *compiled) close() {
	if s.handler != nil {
		s.handler.Close()
	}
	s.handler = nil
}
