package index

import "sync/atomic"

// reading is what readers of an index need. They take no lock: a reader holds a reference to one
// state, which never changes but for entries that are added to its newest table. So it sees all of
// a change of tables or nothing, and what it reads stays open until it is done, also after Close.
type reading struct {
	metrics   *metrics
	current   atomic.Pointer[state] // nil once closed
	existence existence
}

// acquire returns the current state with a reference, or nil when the index is closed.
func (r *reading) acquire() *state {
	for {
		s := r.current.Load()
		if s == nil {
			return nil
		}
		// A count of 0 means that the state was replaced since; the new one is there already.
		if n := s.refs.Load(); n > 0 && s.refs.CompareAndSwap(n, n+1) {
			return s
		}
	}
}

// install makes a state the current one. Index.mu must be held. The caller
// releases the state returned after it has let go of mu: that may close and
// remove files.
func (r *reading) install(s *state) *state { return r.current.Swap(s) }

// read calls look with the current state, if the index is open.
func (r *reading) read(look func(*state)) {
	if s := r.acquire(); s != nil {
		look(s)
		s.release()
	}
}
