package subscription

import (
	"context"
)

// done is the position of the log before which nothing of the source is left to do: each message
// was handed out and is acknowledged, skipped or parked.
func (c *core) done() int64 {
	end := c.until
	for _, m := range [...]*message{c.unanswered.head, c.buffer.head} {
		if m != nil {
			end = min(end, m.event.Position)
		}
	}
	return end
}

// Await returns when a group has nothing left to do of what its source has up to a position of the
// log, with ErrNotFound when there is no such group, or with the error of the context.
func (s *Service) Await(ctx context.Context, k Key, position int64) error {
	if _, err := s.group(k); err != nil {
		return err
	}
	if err := s.opts.Store.WaitLog(ctx, position); err != nil {
		return err
	}
	for {
		g, err := s.group(k)
		if err != nil {
			return err
		}
		err = g.reach(ctx, position)
		if err == nil || ctx.Err() != nil {
			return err
		}
		// It ended. It may be loaded again, when all of the change is done.
		if err := g.term.lock(ctx); err != nil {
			return err
		}
		g.term.unlock()
	}
}

// Done is the position of the log that Await returns at once for those before; 0 when there is no
// such group.
func (s *Service) Done(k Key) int64 {
	g, err := s.group(k)
	if err != nil {
		return 0
	}
	return g.line.End()
}

// reach is Await until the group ends.
func (g *group) reach(ctx context.Context, position int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.ctx, cancel)()
	return g.line.Wait(ctx, position, func() {
		g.mu.Lock()
		isBehind := g.core.until <= position
		g.mu.Unlock()
		// The source may have nothing new although the log has, and would not be looked at. A page
		// that is being read may have begun before the log had it.
		if isBehind {
			_, _ = g.fill(g.ctx) // If that fails, the wait continues.
		}
	})
}
