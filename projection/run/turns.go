package run

import "context"

// Turns bounds how many projections handle events at the same time. Who waits
// gets one in the order of asking.
type Turns struct {
	taken chan struct{}
}

// NewTurns returns n turns; at least one.
func NewTurns(n int) *Turns { return &Turns{taken: make(chan struct{}, max(1, n))} }

func (t *Turns) take(ctx context.Context) error {
	select {
	case t.taken <- struct{}{}:
		return nil
	default:
	}
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *Turns) give() { <-t.taken }
