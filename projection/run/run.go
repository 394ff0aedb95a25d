// Package run is one projection at work: it takes events from a reader, hands them to a handler,
// keeps the states of partitions, writes the outputs, and reports its progress.
package run

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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

// Why a run or one of its attempts ends, besides faults and errors of the store.
var (
	errStopped   = errors.New("the projection is being stopped")
	errAborted   = errors.New("the projection is being aborted")
	errLost      = errors.New("the projection lost its node's leadership")
	errCompleted = errors.New("the projection wrote its results")
)

// Run is one projection at work, from its start until it ends. Its methods may
// be called from any goroutine.
//
// One goroutine, the loop, does the work. It holds lock while it handles events and
// has a turn, and waits without either. What is read from the store while events
// are handled (a state of a partition) is read with the lock and without the turn.
type Run struct {
	opts    Options
	def     definition
	parts   parts
	names   output.Streams
	done    chan struct{}
	started chan struct{}
	once    sync.Once // closes started

	all    context.Context // ends when nothing more may be written
	endAll context.CancelCauseFunc
	wanted context.Context // ends when no more events are to be handled
	halt   context.CancelCauseFunc

	lock lock
	attempt
	// saved is the last checkpoint: the one begun from, or written since.
	saved  output.Checkpoint
	ending Ending // set under lock

	checkpoints checkpoints

	restarts  int // one after the other from the same checkpoint
	restarted position.Position
	processed int64
	emitted   int64
	spent     time.Duration // in the handler

	board board
	rest  rest
}

// attempt is what starts again when a run goes back to its checkpoint.
type attempt struct {
	handler handler.Handler // nil: no event came yet
	cut     atomic.Pointer[handler.Interrupter]
	reader  reader
	out     writer
	unwatch func() bool // no failure of out ends this attempt any more

	reading context.Context // a part of wanted: ends when this attempt does
	fail    context.CancelCauseFunc
	work    sync.WaitGroup // besides the loop

	entered    bool // what follows is as the checkpoint says, or beyond
	cache      *cache
	in         *entry // the partition that the handler works on; nil: none yet
	shared     []byte
	at, before position.Position // after the last event that was handled, and the one before it
	handled    int64             // all events before this position of the log are

	saver saver
	turn  *turn     // of the loop; nil: none
	clock time.Time // when the last event was handled
}

// Start begins a run, which lasts until it is stopped or ends by itself. The end of ctx ends it
// without a word to the store: the node does not lead any more, or stops.
func Start(ctx context.Context, o Options) *Run { return start(ctx, o, realParts) }

func start(ctx context.Context, o Options, p parts) *Run {
	o.ensureDefaults()
	r := &Run{opts: o, parts: p, done: make(chan struct{}), started: make(chan struct{}), lock: lock{held: make(chan struct{}, 1)}}
	r.all, r.endAll = context.WithCancelCause(ctx)
	r.wanted, r.halt = context.WithCancelCause(r.all)
	r.def = definition{o.Definition, &r.opts}
	r.at = source.Zero(o.Definition)
	r.names = output.StreamsOf(o.Name, &r.def.Options)
	r.saved.At = r.at
	r.board.statistics = Statistics{Progress: -1}
	r.board.status, r.board.changed = statusInitial, o.Changed
	go r.run()
	return r
}

// Stop begins to end the run: its emissions are written, then a checkpoint. An event that takes
// long to be handled is given up, and is behind the checkpoint.
func (r *Run) Stop() { r.halt(errStopped) }

// Abort begins to end the run: it waits for writes in flight, and writes nothing more.
func (r *Run) Abort() { r.endAll(errAborted) }

// Close ends the run as the end of its context does, and waits for it.
func (r *Run) Close() {
	r.endAll(errLost)
	<-r.done
}

// Done is closed when the run has ended, and none of its work is in flight any more.
func (r *Run) Done() <-chan struct{} { return r.done }

// Started is closed when the run has begun to read its input, or has ended.
func (r *Run) Started() <-chan struct{} { return r.started }

// run is the goroutine of a run.
func (r *Run) run() {
	defer close(r.done)
	defer r.once.Do(func() { close(r.started) })
	defer r.endAll(nil)
	defer r.halt(nil)
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
	over := r.interruptible()
	err := r.begin()
	if err == nil {
		r.once.Do(func() { close(r.started) })
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

// patience is how long an event that is being handled may take when the run is stopped.
const patience = 250 * time.Millisecond

// interruptible has the handler interrupted when the run is to end: at once if nothing
// more may be written. The function that it returns ends that.
func (r *Run) interruptible() (over func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(r.wanted, func() {
		defer close(ended)
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-done:
			return
		case <-r.all.Done():
		case <-t.C:
		}
		if h := r.cut.Load(); h != nil {
			(*h).Interrupt()
		}
	})
	return func() {
		close(done)
		if !stop() {
			<-ended
		}
	}
}

// takeTurn waits for a turn.
func (r *Run) takeTurn() (err error) {
	r.turn, err = r.opts.Turns.take(r.reading)
	return err
}

func (r *Run) giveTurn() {
	r.opts.Turns.give(r.turn)
	r.turn = nil
}

// code returns the handler, which is compiled when the first event comes: most projections
// have none to handle for a while, and a compiled script takes several times the memory of
// all else of a projection. The caller has a turn and the lock.
func (r *Run) code() (handler.Handler, error) {
	if r.handler != nil {
		return r.handler, nil
	}
	h, err := r.opts.Compile()
	if err != nil {
		return nil, err
	}
	r.handler = h
	if i, ok := h.(handler.Interrupter); ok {
		r.cut.Store(&i)
	}
	// It may be too early for the caller that interrupts it.
	if r.wanted.Err() != nil || r.reading.Err() != nil {
		return nil, handler.ErrInterrupted
	}
	if r.def.IsBiState {
		err = h.LoadShared(r.shared)
	}
	return h, err
}

// again makes ready for another attempt. The same checkpoint is begun from at
// most 12 times, with growing pauses.
func (r *Run) again() error {
	if r.restarts > 0 && !r.saved.At.Equal(r.restarted) {
		r.restarts = 0
	}
	r.restarted = r.saved.At
	r.restarts++
	if r.restarts > maxTries {
		return &handler.Fault{Message: "The projection was restarted from its checkpoint too often, because others write to its streams."}
	}
	r.opts.Logger.Info("a projection restarts from its checkpoint", logkey.Reason, output.ErrRestart)
	if err := clock.Sleep(r.wanted, pause(r.restarts-1)); err != nil {
		return err
	}
	r.lock.work()
	defer r.lock.release()
	r.letGo()
	r.attempt = attempt{at: r.saved.At}
	return nil
}

// letGo closes the parts that an attempt used. The caller holds the lock.
func (r *Run) letGo() {
	if r.reader != nil {
		r.reader.Close()
	}
	if r.handler != nil {
		r.handler.Close()
	}
	r.reader, r.handler = nil, nil
}

// end ends the run.
func (r *Run) end(err error) {
	r.lock.work()
	r.letGo()
	r.ending = r.endingOf(err)
	if r.opts.resumes() { // Answers come from the checkpoint from now on.
		r.cache, r.in, r.shared = nil, nil, nil
		if !r.at.Equal(r.saved.At) {
			r.handled = 0
		}
	}
	r.publish()
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

// endingOf says what ended a run.
func (r *Run) endingOf(err error) Ending {
	switch {
	case errors.Is(err, errCompleted):
		return Completed
	case errors.Is(context.Cause(r.all), errAborted):
		return Aborted
	case output.IsLost(err), r.all.Err() != nil:
		return Lost
	case errors.Is(err, errStopped):
		return Stopped
	}
	return Faulted
}
