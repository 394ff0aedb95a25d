package subscription

import (
	"time"

	"github.com/annalsdb/annals/event"
)

// Forget drops the data and metadata of all events that groups hold in memory. Those who hand them
// to a consumer read them again, as they are in the log by then: data that was redacted before the
// call is not handed out any more. Nothing else changes.
func (s *Service) Forget() {
	t := s.term.Load()
	if t == nil {
		return
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, g := range t.groups {
		g.apply(func(c *core, _ time.Time) { c.forgetPayloads() })
	}
}

// forgets returns how often payloads were forgotten: what was read before the next time is not to
// be kept.
func (g *group) forgets() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.forgotten
}

// withoutPayload returns an event bare. Links stay whole: they are never redacted, and the group
// needs their content.
func withoutPayload(e *event.Resolved) *event.Resolved {
	bare := *e
	of := &bare.Record
	if e.Target != nil {
		target := *e.Target
		bare.Target, of = &target, &target
	}
	if of.Type == event.TypeLink {
		return e
	}
	of.Strip()
	return &bare
}
