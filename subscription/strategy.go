package subscription

import "github.com/annalsdb/annals/event"

// strategy chooses the consumer that a message is pushed to. It is a part of the core.
type strategy interface {
	// choose returns who gets a message. No consumer and not full: this message waits, later ones
	// may pass it. Full: no consumer takes any message now.
	choose(m *message) (to *consumer, full bool)
	// bucket returns the bucket within which messages keep their order while one of them is
	// delayed; -1: there is no order.
	bucket(m *message) int16
	// joined and left follow the core's consumers, which have changed already.
	joined(*consumer)
	left(*consumer)
	// handed and returned follow what consumers have.
	handed(m *message)
	returned(m *message)
}

// newStrategy returns the strategy of a core. member is as in Options; whole returns an event with
// its payload.
func newStrategy(c *core, member func() string, whole func(*event.Resolved) *event.Resolved) strategy {
	bySource := func(e *event.Resolved) string { return sourceStream(whole(e)) }
	switch c.settings.Strategy {
	case DispatchToSingle:
		return &inTurn{c: c, stay: true, hashed: bySource}
	case Pinned:
		return &pinned{c: c, hashed: bySource}
	case PinnedByCorrelation:
		return &pinned{c: c, hashed: func(e *event.Resolved) string { return correlation(whole(e), member()) }}
	}
	return &inTurn{c: c}
}

// hashed puts messages into buckets by a text of their events; nil: into none.
type hashed func(e *event.Resolved) string

func (text hashed) bucket(m *message) int16 {
	if m.bucket < 0 && text != nil {
		m.bucket = int16(hash32([]byte(text(m.event))) % buckets)
	}
	return m.bucket
}

// inTurn gives messages to one consumer after the other, or stays with one
// until that has no room left.
type inTurn struct {
	hashed
	c    *core
	stay bool
	at   int // index of the consumer to be asked first
}

func (s *inTurn) choose(*message) (to *consumer, full bool) {
	all := s.c.consumers
	for range all {
		s.at %= len(all)
		if to = all[s.at]; to.free() {
			if !s.stay {
				s.at++
			}
			return to, false
		}
		s.at++
	}
	return nil, true
}

func (s *inTurn) joined(*consumer)  {}
func (s *inTurn) left(*consumer)    {}
func (s *inTurn) handed(*message)   {}
func (s *inTurn) returned(*message) {}
