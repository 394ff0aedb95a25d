package stats

import (
	"sync"
	"time"
)

// Status registers the states that something can be in, each as the metric
// eventstore_statuses with the labels name and status, and the Unix time in
// seconds at which that state was last the current one: 0 for never, now for the
// one that is. The greatest value marks the current state.
//
// Which one is current is asked whenever the metrics are read, from any goroutine,
// so that a state that came and went in between does not show; an empty answer
// means none. A state that was not given is added when it is first seen, and
// shows when metrics are next read. Registering the same name again replaces the
// function and forgets the times.
func (r *Registry) Status(name string, statuses []string, current func() string) {
	s := &status{registry: r, name: name, current: current, last: make(map[string]time.Time)}
	for _, given := range statuses {
		s.add(given)
	}
}

type status struct {
	registry *Registry
	name     string
	current  func() string

	mu   sync.Mutex // guards last; not held while functions are called
	last map[string]time.Time
}

func (s *status) add(one string) {
	s.mu.Lock()
	_, have := s.last[one]
	if !have {
		s.last[one] = time.Time{}
	}
	s.mu.Unlock()
	if have {
		return
	}
	s.registry.GaugeFunc("eventstore_statuses", "Unix time in seconds at which a status was last the current one.",
		func() float64 { return s.read(one) }, Label{"name", s.name}, Label{"status", one})
}

// read looks which status is current and returns the time of one.
func (s *status) read(one string) float64 {
	if now := s.current(); now != "" {
		s.add(now)
		s.mu.Lock()
		s.last[now] = time.Now()
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[one].IsZero() {
		return 0
	}
	return float64(s.last[one].UnixMicro()) / 1e6
}
