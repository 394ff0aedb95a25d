package run

import (
	"context"
	"sync"
	"time"
)

// rest is how others have the reader look at its sources again while it waits at their end.
type rest struct {
	mu      sync.Mutex         // guards the fields below
	cut     context.CancelFunc // ends the Fill that runs
	isWait  bool               // it waits
	isAsked bool               // it is to look again before it waits
}

func (s *rest) begin(cut context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = cut
}

func (s *rest) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isWait = false
}

func (s *rest) wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isWait = !s.isAsked; s.isAsked {
		s.isAsked = false
		s.cut()
	}
}

// within returns a context that ends after a time; 0: with its parent alone.
func within(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(parent)
	}
	return context.WithTimeout(parent, d)
}

// Look has the run find out whether its sources have anything new, though nothing was written to
// them: Options.Done learns how far the log is without.
func (r *Run) Look() {
	s := &r.rest
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isAsked = !s.isWait; s.isWait {
		s.isWait = false
		s.cut()
	}
}

// Flush returns nil when everything that was emitted so far is stored, or when the run has ended.
func (r *Run) Flush(ctx context.Context) error {
	r.board.mu.Lock()
	out := r.board.out
	r.board.mu.Unlock()
	if out == nil {
		return nil
	}
	return out.Flush(ctx)
}
