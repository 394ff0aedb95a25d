package replication

import (
	"sync"
	"time"
)

// growth is how fast the cluster's log grows, as its nodes tell.
type growth struct {
	mu    sync.Mutex // guards what follows
	end   int64
	at    time.Time
	speed float64 // bytes a second
	known time.Time
}

const growthSpan = 500 * time.Millisecond // below that a measurement means little

// saw takes note of where the longest log ended at some time.
func (g *growth) saw(end int64, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() {
		g.end, g.at = end, at
		return
	}
	span := at.Sub(g.at)
	if span < growthSpan {
		return
	}
	if span < 10*peerPace {
		g.speed, g.known = float64(max(end-g.end, 0))/span.Seconds(), at
	}
	g.end, g.at = end, at
}

// rate returns the bytes a second of late; known is false when there was no chance to see.
func (g *growth) rate() (speed float64, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.speed, time.Since(g.known) < 5*peerPace
}
