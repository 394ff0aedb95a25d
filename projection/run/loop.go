package run

import (
	"context"
	"errors"
	"time"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// maxPendingBytes is how much may wait to be written, however few events it is.
const maxPendingBytes = 64 << 20

// turnTime is how long a turn is used at most. Statistics are published at its end.
const turnTime = 50 * time.Millisecond

// step is the reason why a turn ended.
type step uint8

const (
	toRead       step = iota // nothing is buffered
	toYield                  // others are to have the turn, or the lock
	toPause                  // too many emitted events wait
	toCheckpoint             // a checkpoint is due
)

// begin loads the checkpoint and opens input and output.
func (r *Run) begin() error {
	r.board.show(statusLoading)
	zero := source.Zero(r.def.Definition)
	from := output.Checkpoint{At: zero}
	kept := r.parts.keep(r.opts.checkpointOptions())
	r.lock.work()
	r.checkpoints = kept
	r.lock.release()
	if r.opts.writesCheckpoints() {
		c, err := kept.Load(r.reading)
		if err != nil {
			return err
		}
		if c.Found && r.opts.resumes() {
			from = c
		}
	}
	at, err := position.Convert(from.At, zero)
	if err != nil {
		return &handler.Fault{Message: "The projection cannot resume from its checkpoint: " + err.Error() + ". Reset it to read its sources from the start."}
	}
	r.board.show(statusLoaded)
	r.began = r.opts.Store.LogEnd()

	o := source.Options{Store: r.opts.Store, Definition: r.def.Definition, From: at, Once: r.opts.Mode != Continuous || r.opts.Until != nil,
		Until: r.opts.Until, FaultOutOfOrder: r.opts.FaultOutOfOrder, Waiting: r.waiting, May: r.opts.MayRead, Links: r.opts.Links}
	if len(r.def.Streams)+len(r.def.Categories) > 1 && r.opts.Mode != Transient && !r.opts.Silent && (r.opts.Config.EmitEnabled || r.def.runningResults()) {
		o.Order = &source.Order{Stream: r.names.Order(), Version: r.opts.Version}
	}
	var in reader
	err = retry(r.reading, r.opts.Logger, func() (err error) {
		in, err = r.parts.read(r.reading, o)
		return err
	})
	if err != nil {
		return err
	}
	write := r.parts.write
	if r.opts.Silent {
		write = func(output.Options) writer { return silence{} }
	}
	out := write(output.Options{Store: r.opts.Store, Version: r.opts.Version, From: at,
		MaxBatch: int(r.opts.Config.MaxWriteBatchLength), MaxInFlight: int(r.opts.Config.MaxAllowedWritesInFlight),
		Track: r.opts.Config.TrackEmittedStreams && r.opts.Config.EmitEnabled, MayWrite: r.opts.MayWrite,
		Volatile: r.opts.Mode == Transient, Streams: r.names, Passed: r.passed})
	r.board.show(statusSubscribed)
	r.enter(in, out, from, at)
	return nil
}

// passed tells of an event from the outside that a reset left behind.
func (r *Run) passed(what string) {
	r.opts.Logger.Warn("a projection skips an event", logkey.Reason, what)
	r.board.update(func() { r.board.passed = what })
}

// enter makes the run what its checkpoint says.
func (r *Run) enter(in reader, out writer, from output.Checkpoint, at position.Position) {
	r.lock.work()
	defer r.lock.release()
	r.reader, r.out, r.entered = in, out, true
	r.cache = newCache(r.opts.CachedPartitions, !r.opts.resumes())
	r.saved, r.shared = from, from.Shared
	r.progress.move(at)
	r.saver.savedAt = r.opts.Now()
	if from.State != nil || !r.def.partitioned() {
		r.cache.add(&entry{state: from.State, result: r.def.resultOf(from.State, from.Result), known: from.State != nil})
	}
	fail := r.fail
	r.unwatch = context.AfterFunc(out.Failed(), func() { fail(out.Err()) })
	r.board.update(func() {
		r.board.out = out
		if from.Found {
			r.board.statistics.Checkpoint = &at
		}
	})
	r.mark()
	r.publish()
}

// loop reads and handles events until something ends that, and says what.
func (r *Run) loop() error {
	r.board.show(statusRunning)
	for {
		if r.reader.Buffered() == 0 {
			if err := r.fill(); err != nil {
				return r.cause(err)
			}
		}
		if err := r.turn.take(r.reading); err != nil {
			return err
		}
		r.lock.work()
		next, err := r.use()
		r.lock.release()
		r.turn.give()
		if err != nil {
			return r.cause(err)
		}
		switch next {
		case toPause:
			err = r.hold()
		case toCheckpoint:
			err = r.checkpoint()
		}
		if err != nil {
			return r.cause(err)
		}
	}
}

// cause returns what ended the attempt, if it has been ended from outside, in
// place of the error that came of that.
func (r *Run) cause(err error) error {
	if errors.Is(err, handler.ErrInterrupted) {
		<-r.reading.Done()
	}
	var fault *handler.Fault
	if r.reading.Err() != nil && !errors.As(err, &fault) {
		return context.Cause(r.reading)
	}
	return err
}

// fill reads ahead. A checkpoint that is due and had to wait is written meanwhile.
func (r *Run) fill() error {
	for {
		wait := time.Duration(0) // for ever
		if r.saver.due(&r.opts) {
			if err := r.saver.settled(r.reading); err != nil {
				return err
			}
			wait = r.saver.savedAt.Add(r.opts.checkpointAfter()).Sub(r.opts.Now())
			if wait <= 0 {
				if err := r.checkpoint(); err != nil {
					return err
				}
				continue
			}
		}
		ctx, cancel := within(r.reading, wait)
		r.rest.begin(cancel)
		r.board.reading(true)
		err := retry(ctx, r.opts.Logger, func() error { return r.reader.Fill(ctx) })
		r.board.reading(false)
		r.rest.end()
		isCut := ctx.Err() != nil && r.reading.Err() == nil
		cancel()
		if !isCut {
			return err
		}
		if r.reader.Buffered() > 0 {
			return nil
		}
	}
}

// waiting is called by the reader when all that it handed on is handled, and it is about to wait.
func (r *Run) waiting(done int64) {
	r.handled = done
	r.opts.Done(done)
	r.board.update(func() { r.board.statistics.Settled = r.isCaughtUp() })
	r.rest.wait()
}

// use handles the events in the buffer. The caller has a turn and the lock.
func (r *Run) use() (step, error) {
	began := r.opts.Now()
	r.spent.start(began)
	defer r.publish()
	for {
		if err := r.reading.Err(); err != nil {
			return 0, err
		}
		e, ok := r.reader.Next()
		if !ok {
			r.progress.move(r.reader.Position())
			r.handled = r.reader.Done()
			r.saver.passedOver(r.reader.Passed(), r.processed)
			if r.saver.due(&r.opts) && r.saver.may(&r.opts, r.opts.Now(), r.cache.full) {
				return toCheckpoint, nil
			}
			return toRead, nil
		}
		r.progress.begin(r.reader.Position())
		if err := r.handle(e); err != nil {
			r.progress.undo()
			return 0, err
		}
		r.handled = r.reader.Done()
		now := r.opts.Now()
		r.spent.lap(now)
		switch {
		case r.emitted > 0 && r.opts.tooMuch(r.out):
			return toPause, nil
		case r.saver.due(&r.opts) && r.saver.may(&r.opts, now, r.cache.full):
			return toCheckpoint, nil
		case r.lock.asked.Load() > 0, now.Sub(began) >= turnTime:
			return toYield, nil
		}
	}
}

// hold stops reading until half of what waits is written, or less than half of what may wait is
// left.
func (r *Run) hold() error {
	r.board.pause(true)
	err := r.out.WaitBelow(r.reading, min(r.out.Pending(), int(r.opts.Config.PendingEventsThreshold))/2)
	r.board.pause(false)
	return err
}
