package node

import (
	"context"
	"sync"

	"github.com/annalsdb/annals/replication"
)

// service is what runs on the leader alone.
type service interface {
	// Start begins to serve, when this node leads and has applied all that was
	// committed before. It does not wait.
	Start(ctx context.Context)
	// Stop ends that and waits for it. It may be called when nothing was started.
	Stop()
}

// leading starts and stops what runs on the leader alone, as leadership moves.
type leading struct {
	services []service
	lost     func() // called when this node ceases to lead; may be nil

	// guards the fields below; held while services start and stop, so that they do so one after the
	// other
	mu      sync.Mutex
	wanted  uint64 // the term in which this node leads, 0: none
	running uint64 // the term that services were started in, 0: none
	resting int    // those who want nothing to run for a while
}

// follow keeps to the leadership until ctx ends, and stops everything then.
func (l *leading) follow(ctx context.Context, c *replication.Cluster) {
	for before := uint64(0); ; {
		leadership, changed := c.Leadership()
		term := uint64(0)
		if leadership.Leading {
			term = leadership.Term
		}
		if before != 0 && term != before && l.lost != nil {
			l.lost()
		}
		before = term
		l.set(ctx, func() { l.wanted = term })
		select {
		case <-changed:
		case <-ctx.Done():
			l.set(ctx, func() { l.wanted = 0 })
			return
		}
	}
}

// rest stops everything until the returned function is called.
func (l *leading) rest(ctx context.Context) (again func()) {
	l.set(ctx, func() { l.resting++ })
	return func() { l.set(ctx, func() { l.resting-- }) }
}

// set changes the wanted state, and applies it.
func (l *leading) set(ctx context.Context, change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	wanted := l.wanted
	if l.resting > 0 || ctx.Err() != nil {
		wanted = 0
	}
	if wanted == l.running {
		return
	}
	if l.running != 0 {
		for _, s := range l.services {
			s.Stop()
		}
	}
	if wanted != 0 {
		for _, s := range l.services {
			s.Start(ctx)
		}
	}
	l.running = wanted
}
