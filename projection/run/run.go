// Package run is one projection at work: it takes events from a reader, hands them to a handler,
// keeps the states of partitions, writes the outputs, and reports its progress.
package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// Ending is how a run ended.
type Ending uint8

// Endings of a run.
const (
	Unfinished Ending = iota // it runs
	Stopped                  // Stop; what it emitted and a checkpoint are written
	Aborted                  // Abort
	Completed                // it was to end with its input, and did
	Faulted                  // Statistics().Reason says why
	Lost                     // its context ended, or the node does not lead any more
)

// Run is one projection at work, from its start until it ends. Its methods may
// be called from any goroutine.
//
// One goroutine, the loop, does the work. It holds lock while it handles events and
// has a turn, and waits without either. What is read from the store while events
// are handled (a state of a partition) is read with the lock and without the turn.
type Run struct {
	opts  Options
	def   definition
	parts parts
	names output.Streams

	lifetime
	lock lock
	turn ownTurn
	attempt
	// saved is the last checkpoint: the one begun from, or written since.
	saved  output.Checkpoint
	ending Ending // set under lock

	checkpoints checkpoints

	restarts  restarts
	processed int64
	emitted   int64
	spent     stopwatch // in the handler

	board board
	rest  rest
}

// attempt is what starts again when a run goes back to its checkpoint.
type attempt struct {
	script  compiled
	reader  reader
	out     writer
	unwatch func() bool // no failure of out ends this attempt any more

	reading context.Context // a part of wanted: ends when this attempt does
	fail    context.CancelCauseFunc
	work    sync.WaitGroup // besides the loop

	entered bool // what follows is as the checkpoint says, or beyond
	cache   *cache
	in      *entry // the partition that the handler works on; nil: none yet
	shared  []byte
	progress

	saver saver
}

// progress is how far an attempt came. An event that could not be handled leaves it as it was:
// before is at without the event that is being handled, and the same when there is none.
type progress struct {
	at, before position.Position
	handled    int64 // all events before this position of the log are
	began      int64 // the end of the log when this attempt did
}

// begin is called with the position after an event that is handled next.
func (p *progress) begin(after position.Position) { p.before, p.at = p.at, after }

// undo takes begin back.
func (p *progress) undo() { p.at = p.before }

// move goes to a position before which there is nothing to handle.
func (p *progress) move(to position.Position) { p.at, p.before = to, to }

// stopwatch adds up times. What lies between a lap and the next start does not count.
type stopwatch struct {
	total time.Duration
	at    time.Time // what comes after this is not in total yet
}

func (s *stopwatch) start(now time.Time) { s.at = now }

func (s *stopwatch) lap(now time.Time) { s.total, s.at = s.total+now.Sub(s.at), now }

// restarts counts the attempts that began, one after the other, from the same checkpoint.
type restarts struct {
	n    int
	from position.Position
}

// next counts one more, from the checkpoint at a position.
func (s *restarts) next(from position.Position) int {
	if !from.Equal(s.from) {
		s.n = 0
	}
	s.from = from
	s.n++
	return s.n
}

// Start begins a run, which lasts until it is stopped or ends by itself. The end of ctx ends it
// without a word to the store: the node does not lead any more, or stops.
func Start(ctx context.Context, o Options) *Run { return start(ctx, o, realParts) }

func start(ctx context.Context, o Options, p parts) *Run {
	o.ensureDefaults()
	r := &Run{opts: o, parts: p, lock: lock{held: make(chan struct{}, 1)}, turn: ownTurn{turns: o.Turns}}
	r.lifetime.begin(ctx)
	r.def = definition{o.Definition, &r.opts}
	r.at = source.Zero(o.Definition)
	r.names = output.StreamsOf(o.Name, &r.def.Options)
	r.saved.At = r.at
	r.board.statistics = Statistics{Progress: -1}
	r.board.status, r.board.changed = statusInitial, o.Changed
	go r.run()
	return r
}

// run is the goroutine of a run.
func (r *Run) run() {
	defer r.lifetime.over()
	for {
		err := r.try()
		if !errors.Is(err, output.ErrRestart) {
			r.end(err)
			return
		}
		if err := r.again(); err != nil {
			r.end(err)
			return
		}
	}
}

// try works from the checkpoint on until something ends that, and says what.
func (r *Run) try() error {
	r.reading, r.fail = context.WithCancelCause(r.wanted)
	defer func() { r.fail(nil) }()
	over := r.interruptible(r.script.interrupt)
	err := r.begin()
	if err == nil {
		r.noteStarted()
		err = r.loop()
		switch {
		case !errors.Is(err, source.ErrEnd):
		case r.opts.Until != nil:
			err = r.reached()
		default:
			err = r.complete()
		}
	}
	over()
	err = r.finish(err)
	r.fail(err) // Goroutines that save for this attempt end.
	if r.out != nil {
		r.unwatch()
		r.out.Close()
	}
	r.work.Wait()
	return err
}

// code returns the handler, which is compiled for the first event. The caller has a turn and the
// lock.
func (r *Run) code() (h handler.Handler, err error) {
	if r.script.handler != nil {
		return r.script.handler, nil
	}
	if err := r.script.compile(r.opts.Compile); err != nil {
		return nil, err
	}
	// It may be too early for the caller that interrupts it.
	if r.wanted.Err() != nil || r.reading.Err() != nil {
		return nil, handler.ErrInterrupted
	}
	if h = r.script.handler; r.def.IsBiState {
		err = h.LoadShared(r.shared)
	}
	return h, err
}

// again makes ready for another attempt. The same checkpoint is begun from at
// most 12 times, with growing pauses.
func (r *Run) again() error {
	n := r.restarts.next(r.saved.At)
	if n > maxTries {
		return &handler.Fault{Message: "The projection was restarted from its checkpoint too often, because others write to its streams."}
	}
	r.opts.Logger.Info("a projection restarts from its checkpoint", logkey.Reason, output.ErrRestart)
	if err := clock.Sleep(r.wanted, pause(n-1)); err != nil {
		return err
	}
	r.lock.work()
	defer r.lock.release()
	r.letGo()
	r.attempt = attempt{progress: progress{at: r.saved.At}}
	return nil
}

// letGo closes the parts that an attempt used. The caller holds the lock.
func (r *Run) letGo() {
	if r.reader != nil {
		r.reader.Close()
	}
	r.reader = nil
	r.script.close()
}

// end ends the run.
func (r *Run) end(err error) {
	r.lock.work()
	r.letGo()
	r.ending = r.endingOf(err)
	settled := r.isSettled(err)
	if r.opts.resumes() { // Answers come from the checkpoint from now on.
		r.cache, r.in, r.shared = nil, nil, nil
		if !r.at.Equal(r.saved.At) {
			r.handled = 0
		}
	}
	r.publish()
	r.board.update(func() { r.board.statistics.Settled = settled })
	ending := r.ending
	r.lock.release()

	switch ending {
	case Faulted:
		r.opts.Logger.Warn("projection faulted", logkey.Reason, err)
		r.board.end(ending, statusFaulted, reasonOf(err))
	default:
		r.board.end(ending, statusStopped, "")
	}
	r.board.changed()
}

// isSettled reports whether nothing was emitted, also by runs before, for events after the last
// checkpoint of a run that ends. A script is deterministic and faults where it faulted before: no
// run came past that event.
func (r *Run) isSettled(err error) bool {
	_, isOfEvent := errors.AsType[*handler.Fault](err)
	return r.at.Equal(r.saved.At) && (r.isCaughtUp() || r.ending == Faulted && isOfEvent)
}

// isCaughtUp reports whether all was handled that lay in the log when this attempt began.
func (r *Run) isCaughtUp() bool { return r.entered && r.handled >= r.began }
