package node

import (
	"context"
	"sync/atomic"
	"time"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

// startup is how far the start of a node is.
type startup struct {
	done  atomic.Bool // it has served once
	doing atomic.Pointer[httpapi.Progress]
}

// note takes what the one that opens files does.
func (s *startup) note(what string, done, total int64) {
	p := progress(what, done, total)
	s.doing.Store(&p)
}

// progress is of what a node does before it is ready: so much of a total, 0 when that is not known.
func progress(what string, done, total int64) httpapi.Progress {
	p := httpapi.Progress{Doing: what, Percent: -1}
	if total > 0 {
		p.Percent = min(100, 100*float64(done)/float64(total))
	}
	return p
}

// readyPace is how often a node that starts looks whether it is ready, at first.
const readyPace = 100 * time.Millisecond

// sayReady logs once that the node is ready: that /health/ready answers 204.
func (n *Node) sayReady(ctx context.Context) {
	for pace := readyPace; n.Unready() != ""; pace = min(pace+pace/20, 20*readyPace) {
		if clock.Sleep(ctx, pace) != nil {
			return
		}
	}
	n.logger.Info("this node is ready", logkey.Took, time.Since(n.started).Round(time.Millisecond))
}

// Starting describes the current step of a node that has never served.
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
			return *d
		}
		return httpapi.Progress{Doing: "opening files", Percent: -1}
	}
	if what, done, total := p.Progress(); what != "" {
		return progress(what, done, total)
	}
	if n.users.ready() != nil {
		return httpapi.Progress{Doing: "waiting for the built-in users", Percent: -1}
	}
	if n.load.since.Load() != nil && !n.load.done() {
		return httpapi.Progress{Doing: "loading projections", Percent: -1}
	}
	return httpapi.Progress{Doing: "waiting for the cluster", Percent: -1}
}
