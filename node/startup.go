package node

import (
	"sync/atomic"

	httpapi "github.com/annalsdb/annals/http"
)

// startup is how far the start of a node is.
type startup struct {
	done  atomic.Bool // it has served once
	doing atomic.Pointer[doing]
}

// doing is what a node does before it is ready: so much of a total, 0 when that is not known.
type doing struct {
	what        string
	done, total int64
}

// note takes what the one that opens files does.
func (s *startup) note(what string, done, total int64) {
	s.doing.Store(&doing{what: what, done: done, total: total})
}

func (d *doing) progress() httpapi.Progress {
	p := httpapi.Progress{Doing: d.what, Percent: -1}
	if d.total > 0 {
		p.Percent = min(100, 100*float64(d.done)/float64(d.total))
	}
	return p
}

// Starting says what the node does as long as it has never served.
func (p part) Starting() httpapi.Progress {
	n := p.n
	if n.startup.done.Load() {
		return httpapi.Progress{Started: true}
	}
	if p.serves() {
		n.startup.done.Store(true)
		return httpapi.Progress{Started: true}
	}
	if !p.Started() {
		if d := n.startup.doing.Load(); d != nil {
			return d.progress()
		}
		return httpapi.Progress{Doing: "opening files", Percent: -1}
	}
	if what, done, total := p.Progress(); what != "" {
		return (&doing{what: what, done: done, total: total}).progress()
	}
	if n.users.ready() != nil {
		return httpapi.Progress{Doing: "waiting for the built-in users", Percent: -1}
	}
	if n.load.since.Load() != nil && !n.load.done() {
		return httpapi.Progress{Doing: "loading projections", Percent: -1}
	}
	return httpapi.Progress{Doing: "waiting for the cluster", Percent: -1}
}
