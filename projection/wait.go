package projection

import (
	"context"
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/source"
)

// Await returns when a projection has handled all events of its sources up to a position of the
// log. If it reads links that system projections write, those to events up to there count. Errors
// are ErrNotFound, event.ErrNotReady, and the error of the context.
func (s *Service) Await(ctx context.Context, name string, position int64) error {
	if _, err := s.find(name); err != nil {
		return err
	}
	if err := s.opts.Store.WaitLog(ctx, position); err != nil {
		return err
	}
	p, err := s.find(name)
	if err != nil {
		return err
	}
	for _, writer := range p.writers() {
		w, err := p.t.find(writer)
		if err != nil {
			continue
		}
		r := w.current()
		if r == nil || r.Statistics().Ending != run.Unfinished {
			continue // It writes nothing.
		}
		if err := w.await(ctx, position); err != nil {
			return err
		}
		if err := r.Flush(ctx); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			return fmt.Errorf("%w: projection %s: %w", event.ErrNotReady, writer, err)
		}
		position = max(position, s.opts.Store.LogEnd()-1)
	}
	return p.await(ctx, position)
}

// Done is the position of the log that Await returns at once for those before, if the sources are
// no links; 0 when there is no such projection.
func (s *Service) Done(name string) int64 {
	p, err := s.find(name)
	if err != nil {
		return 0
	}
	return p.line.End()
}

// writers are the system projections that write what the projection reads.
func (p *projection) writers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	reads := p.definition
	if reads == nil {
		reads = p.m.def.Source
	}
	if reads == nil {
		return nil
	}
	return source.Writers(reads)
}

// await waits until the run has handled all events up to a position.
func (p *projection) await(ctx context.Context, position int64) error {
	bound, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.t.ctx, func() { cancel(event.ErrNotReady) })()
	return p.line.Wait(bound, position, func() {
		if r := p.current(); r != nil {
			r.Look()
		}
	})
}
