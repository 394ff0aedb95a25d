package index

import "sync/atomic"

// state is what readers see: an immutable list of sources. Index holds one
// reference to the current state, every reader one while it reads.
type state struct {
	refs   atomic.Int64
	mems   []*memTable // newest first; the first one is being added to
	tables []*table    // newest first, levels never falling
}

// newState makes a state with the one reference of its owner.
func newState(mems []*memTable, tables []*table) *state {
	s := &state{mems: mems, tables: tables}
	s.refs.Store(1)
	for _, t := range tables {
		t.retain()
	}
	return s
}

func (s *state) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	for _, t := range s.tables {
		t.release()
	}
}

// acquire returns the current state with a reference, or nil when the index is closed.
func (x *Index) acquire() *state {
	for {
		s := x.current.Load()
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
func (x *Index) install(s *state) *state { return x.current.Swap(s) }

// discard removes a table that no state lists.
func (t *table) discard() {
	t.doomed.Store(true)
	t.release()
}
