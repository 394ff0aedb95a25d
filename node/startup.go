package node

import (
	"sync/atomic"

	httpapi "github.com/annalsdb/annals/http"
)

// startup is how far the start of a node is.
type startup struct {
	started atomic.Bool // it has been ready once
	doing   atomic.Pointer[doing]
}

// doing is what a node does before it is ready: so much of a total, 0 when that is not known.
type doing struct {
	what        string
	done, total int64
}

// note is told by whoever opens files what it does.
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

// progress tells the HTTP interface how far the start is.
type progress struct{ n *Node }

var _ httpapi.Startup = progress{}

// Starting says what the node does as long as it has never served.
func (p progress) Starting() httpapi.Progress {
	n := p.n
	if n.start.started.Load() {
		return httpapi.Progress{Started: true}
	}
	if (cluster{n}).serves() {
		n.start.started.Store(true)
		return httpapi.Progress{Started: true}
	}
	c := n.cluster.Load()
	switch d := n.start.doing.Load(); {
	case c == nil && d != nil:
		return d.progress()
	case c == nil:
		return httpapi.Progress{Doing: "opening files", Percent: -1}
	}
	if what, done, total := c.Progress(); what != "" {
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

// CaughtUp reports whether this node has what the leader has, but for a moment.
func (p progress) CaughtUp() bool {
	c := p.n.cluster.Load()
	return c != nil && c.CaughtUp()
}
