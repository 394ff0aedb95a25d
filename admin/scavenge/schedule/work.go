package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

// How long a turn waits for what keeps its scavenge from starting.
const (
	startPace     = 10 * time.Second
	startPatience = time.Hour // other jobs on chunk files end by then, or an operator should look
)

// errLost is why the scavenge of a turn is stopped.
var errLost = errors.New("the turn is not this node's any more")

// worker does the scavenge of one turn, on a goroutine of its own.
type worker struct {
	number  int64 // of the event that took the turn
	cancel  context.CancelCauseFunc
	done    context.Context // ended when outcome is there
	outcome scavenge.Status // its id, result and error
}

// begin starts to do the scavenge of a turn of a round that began at a time.
func (s *Scheduler) begin(ctx context.Context, number int64, roundStarted time.Time) {
	done, finish := context.WithCancel(context.Background())
	working, cancel := context.WithCancelCause(ctx)
	w := &worker{number: number, cancel: cancel, done: done}
	s.worker = w
	s.workers.Go(func() {
		defer finish()
		defer cancel(nil)
		w.outcome = s.scavenge(working, roundStarted)
	})
}

// scavenge runs a scavenge of this node to its end. One that an operator began
// after the round did counts as well. When ctx ends because the turn is lost, the
// run is stopped, if it is not an operator's; when the process ends, it is left to
// the owner of the runner.
func (s *Scheduler) scavenge(ctx context.Context, roundStarted time.Time) scavenge.Status {
	runner := s.opts.Runner
	if last := runner.Last(); last.Result == scavenge.ResultSuccess && last.Started.After(roundStarted) {
		s.logger.Info("this node was scavenged since the round began", logkey.Scavenge, last.ID.String())
		return last
	}
	begun := s.opts.Now()
	for ctx.Err() == nil {
		id, err := runner.Start(s.opts.Request)
		switch {
		case err == nil:
			s.logger.Info("scheduled scavenge started", logkey.Scavenge, id.String())
			return s.await(ctx, id)
		case errors.Is(err, scavenge.ErrRunning):
			other := runner.Current()
			if other.ID.IsZero() {
				break // It has just ended.
			}
			s.logger.Info("waiting for a scavenge that is already running", logkey.Scavenge, other.ID.String())
			status, err := runner.Wait(ctx, other.ID)
			if err == nil && status.Started.After(roundStarted) {
				return status
			}
			if err == nil {
				continue
			}
		case errors.Is(err, event.ErrChunksLocked), errors.Is(err, event.ErrNotReady), errors.Is(err, event.ErrClosed):
			if s.opts.Now().Sub(begun) > startPatience {
				return scavenge.Status{Result: scavenge.ResultErrored, Error: fmt.Sprintf("start the scavenge: %v, for %v", err, startPatience)}
			}
		default:
			return scavenge.Status{Result: scavenge.ResultErrored, Error: fmt.Sprintf("start the scavenge: %v", err)}
		}
		_ = clock.Sleep(ctx, startPace)
	}
	return scavenge.Status{Result: scavenge.ResultStopped}
}

// await waits for the end of the run that this turn began.
func (s *Scheduler) await(ctx context.Context, id event.ID) scavenge.Status {
	status, err := s.opts.Runner.Wait(ctx, id)
	if err == nil {
		return status
	}
	if ctx.Err() == nil {
		return scavenge.Status{Result: scavenge.ResultErrored, ID: id, Error: fmt.Sprintf("wait for the scavenge: %v", err)}
	}
	if errors.Is(context.Cause(ctx), errLost) {
		// The next turn must not find it still running and take it for an operator's, so
		// its end is awaited. The worker's own context is of no use for that any more.
		if _, err := s.opts.Runner.Stop(s.lifetime, id); err != nil && !errors.Is(err, scavenge.ErrNoSuchRun) && s.lifetime.Err() == nil {
			s.logger.Warn("this node's turn is over, but its scavenge could not be stopped", logkey.Scavenge, id.String(), logkey.Error, err)
		}
	}
	return scavenge.Status{Result: scavenge.ResultStopped, ID: id}
}
