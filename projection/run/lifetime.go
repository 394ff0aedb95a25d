package run

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/annalsdb/annals/projection/output"
)

// Why a run or one of its attempts ends, besides faults and errors of the store.
var (
	errStopped   = errors.New("the projection is being stopped")
	errAborted   = errors.New("the projection is being aborted")
	errLost      = errors.New("the projection lost its node's leadership")
	errCompleted = errors.New("the projection wrote its results")
)

// patience is how long an event that is being handled may take when the run is stopped.
const patience = 250 * time.Millisecond

// lifetime is how a run is ended from outside, and how others wait for it. Events are handled no
// longer than the run may write: wanted is a part of all. The first who ends either says why, and
// no one is left to wait when done is closed: started is closed before it.
type lifetime struct {
	all    context.Context // ends when nothing more may be written
	endAll context.CancelCauseFunc
	wanted context.Context // ends when no more events are to be handled
	halt   context.CancelCauseFunc

	started chan struct{}
	once    sync.Once // closes started
	done    chan struct{}
}

// begin is called once, before all else.
func (l *lifetime) begin(ctx context.Context) {
	l.done, l.started = make(chan struct{}), make(chan struct{})
	l.all, l.endAll = context.WithCancelCause(ctx)
	l.wanted, l.halt = context.WithCancelCause(l.all)
}

// noteStarted may be called more than once.
func (l *lifetime) noteStarted() { l.once.Do(func() { close(l.started) }) }

// over is called once, after all else.
func (l *lifetime) over() {
	l.halt(nil)
	l.endAll(nil)
	l.noteStarted()
	close(l.done)
}

// Stop begins to end the run: its emissions are written, then a checkpoint. An event that takes
// long to be handled is given up, and is behind the checkpoint.
func (l *lifetime) Stop() { l.halt(errStopped) }

// Abort begins to end the run: it waits for writes in flight, and writes nothing more.
func (l *lifetime) Abort() { l.endAll(errAborted) }

// Close ends the run as the end of its context does, and waits for it.
func (l *lifetime) Close() {
	l.endAll(errLost)
	<-l.done
}

// Done is closed when the run has ended, and none of its work is in flight any more.
func (l *lifetime) Done() <-chan struct{} { return l.done }

// Started is closed when the run has begun to read its input, or has ended.
func (l *lifetime) Started() <-chan struct{} { return l.started }

// interruptible calls interrupt when the run is to end: at once if nothing more may be written.
// The function that it returns ends that.
func (l *lifetime) interruptible(interrupt func()) (over func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(l.wanted, func() {
		defer close(ended)
		t := time.NewTimer(patience)
		defer t.Stop()
		select {
		case <-done:
			return
		case <-l.all.Done():
		case <-t.C:
		}
		interrupt()
	})
	return func() {
		close(done)
		if !stop() {
			<-ended
		}
	}
}

// endingOf says what ended a run whose last attempt returned an error.
func (l *lifetime) endingOf(err error) Ending {
	switch {
	case errors.Is(err, errCompleted):
		return Completed
	case errors.Is(context.Cause(l.all), errAborted):
		return Aborted
	case output.IsLost(err), l.all.Err() != nil:
		return Lost
	case errors.Is(err, errStopped):
		return Stopped
	}
	return Faulted
}
