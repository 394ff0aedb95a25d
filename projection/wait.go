package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/run"
)

// Await returns when a projection has handled all events of its sources up to a position of the
// log. If it reads links that system projections write, those to events up to there count. Errors
// are ErrNotFound, *Resting when it does not run or comes to rest, event.ErrNotReady, and the error
// of the context. A projection that only begins again, as after an update, is waited for.
func (s *Service) Await(ctx context.Context, name string, position int64) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	ctx, cancel := p.whileActive(ctx)
	defer cancel()
	if err := s.opts.Store.WaitLog(ctx, position); err != nil && s.opts.Store.LogEnd() <= position {
		return cmp.Or(context.Cause(ctx), err)
	}
	v := p.view()
	for _, writer := range v.writers() {
		w, err := p.t.find(writer)
		if err != nil {
			continue
		}
		r := w.view().run
		if r == nil || r.Statistics().Ending != run.Unfinished {
			continue // It writes nothing.
		}
		bound, cancel := w.whileActive(ctx)
		err = w.await(bound, position)
		cancel()
		if _, rests := errors.AsType[*Resting](err); rests && ctx.Err() == nil {
			continue // Likewise.
		} else if rests {
			return context.Cause(ctx)
		} else if err != nil {
			return err
		}
		if err := r.Flush(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
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

// await waits until the run has handled all events up to a position.
func (p *projection) await(ctx context.Context, position int64) error {
	return p.line.Wait(ctx, position, func() {
		if r := p.view().run; r != nil {
			r.Look()
		}
	})
}

// whileActive returns a context that also ends when the projection comes to rest, with *Resting or
// ErrNotFound as its cause, and with the term.
func (p *projection) whileActive(ctx context.Context) (context.Context, context.CancelFunc) {
	p.mu.Lock()
	active := p.active
	p.mu.Unlock()
	bound, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(active, func() {
		if p.t.ctx.Err() != nil {
			end(event.ErrNotReady)
		} else {
			end(context.Cause(active))
		}
	})
	return bound, func() {
		stop()
		end(nil)
	}
}

// noteRest has active say whether the projection gets any further. The caller holds mu, and the
// machine may have changed.
func (p *projection) noteRest() {
	if p.m.status == p.noted {
		return
	}
	p.noted = p.m.status
	if p.active.Err() != nil {
		p.active, p.rest = context.WithCancelCause(p.t.ctx)
	}
	switch {
	case p.noted == deleting:
		p.rest(ErrNotFound)
	case p.noted.ended():
		v := p.viewLocked()
		f := v.ofRun()
		at := f.Checkpoint
		if p.m.def.Mode != Continuous {
			at = f.Position
		}
		p.rest(&Resting{strings.ToLower(p.noted.String()), textOf(at)})
	}
}
