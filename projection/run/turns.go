package run

import (
	"context"
	"strconv"
	"time"

	"github.com/annalsdb/annals/stats"
)

// maxTurns is more than any machine has use for.
const maxTurns = 1024

// Turns bounds how many projections handle events at the same time. Waiting runs get one in the
// order of asking.
type Turns struct {
	free chan *turn // turns that are free
}

// turn is the right to handle events, and counts its use.
type turn struct {
	queue *stats.Queue
	work  *stats.Work
	begun time.Time
}

// ownTurn is the turn of one loop, which has one at most and gives back no other.
type ownTurn struct {
	turns *Turns
	held  *turn // nil: none
}

// take waits for a turn.
func (o *ownTurn) take(ctx context.Context) (err error) {
	o.held, err = o.turns.take(ctx)
	return err
}

func (o *ownTurn) give() {
	o.turns.give(o.held)
	o.held = nil
}

// NewTurns returns n turns; at least one. Each is a queue in the statistics, as
// dashboards expect it; the registry may be nil.
func NewTurns(n int, r *stats.Registry) *Turns {
	n = min(max(1, n), maxTurns)
	t := &Turns{free: make(chan *turn, n)}
	for i := range n {
		q := r.Queue("Projection Core #"+strconv.Itoa(i), "Projection Core", 1)
		t.free <- &turn{queue: q, work: q.Work("HandleEvents")}
	}
	return t
}

func (t *Turns) take(ctx context.Context) (*turn, error) {
	select {
	case own := <-t.free:
		return own.begin(0), nil
	default:
	}
	asked := time.Now()
	select {
	case own := <-t.free:
		return own.begin(time.Since(asked)), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (own *turn) begin(waited time.Duration) *turn {
	own.queue.Enter(1)
	own.begun = own.work.Begin(waited)
	return own
}

// give gives a turn back, if there is one.
func (t *Turns) give(own *turn) {
	if own == nil {
		return
	}
	own.work.End(own.begun, 1)
	t.free <- own
}
