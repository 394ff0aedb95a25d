package subscription

import "github.com/annalsdb/annals/event"

// strategy chooses the connection that a message is pushed to. The group's mutex
// is held in all of its methods.
type strategy interface {
	// choose returns who gets a message. No connection and not full: this message waits, later ones
	// may pass it. Full: no connection takes any message now.
	choose(m *message) (to *Connection, full bool)
	// joined and left follow the group's connections, which have changed already.
	joined(c *Connection)
	left(c *Connection)
	// handed and returned follow what connections have.
	handed(m *message)
	returned(m *message)
}

// newStrategy returns a strategy of a group. member is as in Options.
func newStrategy(s Strategy, g *group, member func() string) strategy {
	switch s {
	case DispatchToSingle:
		return &inTurn{g: g, stay: true}
	case Pinned:
		return &pinned{g: g, text: sourceStream}
	case PinnedByCorrelation:
		return &pinned{g: g, text: func(e *event.Resolved) string { return correlation(e, member()) }}
	}
	return &inTurn{g: g}
}

// inTurn gives messages to one connection after the other, or stays with one
// until that has no room left.
type inTurn struct {
	g    *group
	stay bool
	at   int // index of the connection to be asked first
}

func (s *inTurn) choose(*message) (to *Connection, full bool) {
	all := s.g.connections
	for range all {
		s.at %= len(all)
		c := all[s.at]
		if c.free() {
			if !s.stay {
				s.at++
			}
			return c, false
		}
		s.at++
	}
	return nil, true
}

func (s *inTurn) joined(*Connection) {}
func (s *inTurn) left(*Connection)   {}
func (s *inTurn) handed(*message)    {}
func (s *inTurn) returned(*message)  {}
