package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// Ask is what the leader asks a node, time and again: how far it is. It tells the node whose turn
// it is. Nodes of other versions read it: names stay as they are.
type Ask struct {
	Version int64     `json:"version"`          // of the stream, as the leader knew it
	Round   time.Time `json:"round,omitzero"`   // that is running
	Started time.Time `json:"started,omitzero"` // when it began
	Node    event.ID  `json:"node,omitzero"`    // whose turn it is
	Session event.ID  `json:"session,omitzero"` // the process that has the turn
	Ended   time.Time `json:"ended,omitzero"`   // the round that ended last
	Result  string    `json:"result,omitzero"`  // of that one

	Wait time.Duration `json:"wait,omitzero"`
}

// Answer is what a node answers.
type Answer struct {
	Endpoint string    `json:"endpoint"`
	Schedule string    `json:"schedule,omitzero"` // empty: it takes no turns
	Session  event.ID  `json:"session"`           // of its process
	Round    time.Time `json:"round,omitzero"`    // in which this process had a turn last
	Running  bool      `json:"running,omitzero"`  // it still has
	Result   string    `json:"result,omitzero"`   // of that turn, if it has ended; and what follows
	Scavenge event.ID  `json:"scavengeId,omitzero"`
	Error    string    `json:"error,omitzero"`
}

// turns are those of this process: the one that it works on, or worked on last.
type turns struct {
	mu      sync.Mutex // guards the fields below
	asked   Ask        // the newest; its version is -1 when there was none
	worker  *worker    // nil: none
	silence *time.Timer
	// the round in which the node had a turn that it cannot take any more
	withdrew time.Time
	owned    sync.WaitGroup
}

// worker does the scavenge of one turn, on a goroutine of its own.
type worker struct {
	round   time.Time
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when outcome is there
	isLost  bool          // it has to stop
	outcome scavenge.Status
}

func (w *worker) running() bool {
	if w == nil {
		return false
	}
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// Answer says how far this node is, and begins or stops the scavenge of its turn by what the leader
// says of it. A node that the leader has not asked for one grace takes its turn for lost, as the
// leader does.
//
// The answer to a question with Wait comes when the turn has ended, or when that time is over.
func (s *Scheduler) Answer(ctx context.Context, q Ask) Answer {
	t := &s.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.Version >= t.asked.Version { // Else of a leader that was.
		s.obey(q)
	}
	if w := t.worker; q.Wait > 0 && w.running() {
		t.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, min(q.Wait, askTime))
		select {
		case <-w.done:
		case <-ctx.Done():
		}
		cancel()
		t.mu.Lock()
	}
	a := Answer{Endpoint: s.opts.Endpoint, Schedule: s.schedule.String(), Session: s.session}
	if w := t.worker; w != nil {
		// What the end of the process does to a scavenge does not end the turn.
		if a.Round, a.Running = w.round, w.running() || s.running.Err() != nil; !a.Running {
			a.Result, a.Scavenge, a.Error = string(w.outcome.Result), w.outcome.ID, w.outcome.Error
		}
	}
	return a
}

// obey does what the leader says. The caller holds the mutex of the turns.
func (s *Scheduler) obey(q Ask) {
	t := &s.turns
	if t.asked.Version >= 0 && !q.Ended.Equal(t.asked.Ended) {
		count(s.metrics.rounds, q.Result)
	}
	t.asked = q
	s.metrics.round.Set(oneIf(!q.Round.IsZero()))
	t.silence.Reset(grace)
	isMine := q.Node == s.opts.Cluster.Node() && q.Session == s.session
	switch w := t.worker; {
	case q.Node == s.opts.Cluster.Node() && s.schedule.IsZero():
		if !t.withdrew.Equal(q.Round) {
			count(s.metrics.turns, TurnWithdrawn)
		}
		t.withdrew = q.Round
	case !isMine:
		s.lose()
	case w != nil && (w.running() || w.round.Equal(q.Round) && !w.isLost):
	case s.running.Err() == nil:
		s.begin(q.Round, q.Started)
	}
}

// lose stops the scavenge of a turn that is over. The caller holds the mutex of the turns.
func (s *Scheduler) lose() {
	if w := s.turns.worker; w.running() {
		w.isLost = true
		w.cancel(errLost)
	}
}

// begin starts to do the scavenge of a turn of a round that began at a time.
func (s *Scheduler) begin(round, started time.Time) {
	ctx, cancel := context.WithCancelCause(s.running)
	w := &worker{round: round, cancel: cancel, done: make(chan struct{})}
	s.turns.worker = w
	s.metrics.turn.Set(1)
	s.turns.owned.Go(func() {
		defer close(w.done)
		defer cancel(nil)
		w.outcome = s.scavenge(ctx, started)
		s.metrics.turn.Set(0)
		switch {
		case errors.Is(context.Cause(ctx), errLost):
			count(s.metrics.turns, TurnLost)
		case ctx.Err() == nil:
			count(s.metrics.turns, string(w.outcome.Result))
		}
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
		if _, err := s.opts.Runner.Stop(s.running, id); err != nil && !errors.Is(err, scavenge.ErrNoSuchRun) && s.running.Err() == nil {
			s.logger.Warn("this node's turn is over, but its scavenge could not be stopped", logkey.Scavenge, id.String(), logkey.Error, err)
		}
	}
	return scavenge.Status{Result: scavenge.ResultStopped, ID: id}
}
