package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/projection/source"
)

// follower runs the second version of a projection, which is silent. It goes in legs: each is a run
// that ends with a checkpoint where the projection has its last one. So the second version is never
// ahead of what is certain to be emitted, and after a leg both have states of one position.
type follower struct {
	p      *projection
	r      *rebuild
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}      // closed when nothing of it runs any more
	wake   chan struct{}      // the projection has another checkpoint
	asked  chan *followerTask // what is to be done at the end of the next leg

	reads *handler.Definition // nil: the query is not prepared yet. Belongs to the goroutine

	mu         sync.Mutex // guards the fields below
	isReady    bool       // a leg was ended
	fault      string
	mark       *position.Position // that of the leg
	at         *position.Position // where the last leg ended
	leg        Run                // nil: none runs
	comparison *run.Comparison
}

// followerTask is something to be done while no leg runs.
type followerTask struct {
	ctx        context.Context
	isLast     bool // no leg follows
	withStates bool
	taken      atomic.Bool // either it is done, or it was given up
	done       chan error
}

// follow begins to run the second version, unless that is done already.
func (p *projection) follow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.follower; f != nil && f.ctx.Err() == nil && f.r == p.m.rebuild || !p.m.allowed {
		return
	}
	f := &follower{p: p, r: p.m.rebuild, done: make(chan struct{}), wake: make(chan struct{}, 1), asked: make(chan *followerTask)}
	f.ctx, f.cancel = context.WithCancel(p.t.ctx)
	before := p.follower
	p.follower = f
	p.t.work.Go(func() {
		before.end()
		f.work()
	})
}

// end ends it and waits. There may be none.
func (f *follower) end() {
	if f != nil {
		f.cancel()
		<-f.done
	}
}

// marked wakes the second version, if there is one: the projection has written a checkpoint.
func (p *projection) marked() {
	p.mu.Lock()
	f := p.follower
	p.mu.Unlock()
	if f == nil {
		return
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *follower) work() {
	defer close(f.done)
	defer f.cancel()
	var task *followerTask
	var fault *handler.Fault
	for pause := pauses(); ; {
		err := error(fault)
		if fault == nil {
			err = f.walk()
		}
		switch {
		case f.ctx.Err() != nil:
			return
		case errors.As(err, &fault):
			f.mu.Lock()
			f.fault = fault.Message
			f.mu.Unlock()
		case err != nil:
			if !pause.Wait(f.ctx) {
				return
			}
			continue
		}
		pause = pauses()
		if task != nil && task.taken.CompareAndSwap(false, true) {
			if fault != nil {
				err = f.notReady()
			} else if !task.isLast {
				err = f.doCompare(task)
			}
			task.done <- err
			if err == nil && task.isLast {
				return
			}
		}
		task = nil
		select {
		case <-f.wake:
		case task = <-f.asked:
		case <-f.ctx.Done():
			return
		}
	}
}

// walk takes the second version to the last checkpoint of the projection. A *handler.Fault is its
// end, until another node leads.
func (f *follower) walk() error {
	mine, first, err := f.options()
	if err != nil {
		return err
	}
	first.Definition = mine.Definition
	stored, err := f.p.t.opts.Stored(f.ctx, first, "")
	if err != nil {
		return err
	}
	mark, err := position.Convert(*stored.Position, source.Zero(mine.Definition))
	if err != nil {
		return &handler.Fault{Message: otherSource(err).Text}
	}
	f.mu.Lock()
	isThere := f.at != nil && f.at.Equal(mark)
	f.mark = &mark
	f.mu.Unlock()
	if isThere {
		return nil
	}
	mine.Until = &mark
	leg := f.p.t.opts.Start(f.ctx, mine)
	f.mu.Lock()
	f.leg = leg
	f.mu.Unlock()
	<-leg.Done()
	s := leg.Statistics()
	leg.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leg = nil
	switch s.Ending {
	case run.Stopped:
		f.at, f.isReady = &mark, true
		return nil
	case run.Faulted:
		return &handler.Fault{Message: s.Reason}
	}
	return errUnsettled // It lost its writes, and is tried again.
}

// options returns those of a leg, and those of the projection.
func (f *follower) options() (mine, first run.Options, err error) {
	p := f.p
	v := p.view()
	d := v.m.def
	f.r.apply(&d)
	if f.reads == nil {
		if f.reads, err = p.t.define(p.name, &d); err != nil {
			return mine, first, &handler.Fault{Message: err.Error()}
		}
	}
	v = p.view()
	mine, first = v.optionsOf(&d, f.reads), v.options()
	mine.Silent, mine.Saved, mine.Logger = true, nil, mine.Logger.With("rebuild", true)
	return mine, first, nil
}

// do has a task done at the end of a leg, within a time. The error may be *Conflict.
func (f *follower) do(ctx context.Context, task *followerTask, within time.Duration) error {
	var cancel context.CancelFunc
	task.ctx, cancel = context.WithTimeout(ctx, within)
	defer cancel()
	task.done = make(chan error, 1)
	select {
	case f.asked <- task:
	case <-f.done:
		return errUnsettled
	case <-task.ctx.Done():
		return errBehind
	}
	select {
	case <-f.done:
	case <-task.ctx.Done():
	case err := <-task.done:
		return err
	}
	if task.taken.CompareAndSwap(false, true) {
		return errBehind
	}
	return <-task.done
}

// compare compares both versions.
func (f *follower) compare(ctx context.Context, withStates bool) error {
	if err := f.notReady(); err != nil {
		return err
	}
	return f.do(ctx, &followerTask{withStates: withStates}, compareTime)
}

func (f *follower) doCompare(task *followerTask) error {
	mine, first, err := f.options()
	switch {
	case err != nil:
		return err
	case first.Definition == nil:
		return errUnsettled
	}
	ctx, cancel := context.WithCancel(task.ctx)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	c, err := run.Compare(ctx, first, mine, task.withStates)
	switch {
	case f.ctx.Err() != nil:
		return errUnsettled
	case err != nil:
		return fmt.Errorf("compare: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.comparison = c
	return nil
}

// catchUp takes the second version to the mark of the projection, which does not run, for a swap.
func (p *projection) catchUp() {
	v := p.view()
	f, err := v.follower, error(nil)
	if !v.ofRun().Settled { // Since it was asked.
		err = errAhead
	}
	if err == nil {
		err = f.do(p.t.ctx, &followerTask{isLast: true}, swapTime)
	}
	p.push(func(m *machine) []effect {
		if err == nil { // Nothing of it runs any more.
			m.storing.def.Source = f.reads
		}
		return m.caughtUp(err)
	})
}

// notReady says why the second version cannot take over; nil: it can.
func (f *follower) notReady() error {
	if f == nil {
		return &Conflict{"The rebuild does not run on this node: see RunProjections"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.fault != "":
		return &Conflict{"The rebuild has faulted: " + f.fault}
	case !f.isReady:
		return errBehind
	}
	return nil
}

// status is its status in a word. It may not run.
func (f *follower) status() string {
	if f == nil {
		return RebuildStopped
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.fault != "":
		return RebuildFaulted
	case f.isReady:
		return RebuildReady
	}
	return RebuildRunning
}

// describe fills in what is known besides the status.
func (f *follower) describe(r *Rebuild, withStates bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Reason, r.Mark, r.Position = f.fault, textOf(f.mark), textOf(f.at)
	if f.isReady {
		r.Progress = 100
	}
	if f.leg != nil {
		s := f.leg.Statistics()
		r.Position, r.Processed = textOf(s.Position), s.Processed
		if !f.isReady {
			r.Progress = s.Progress
		}
	}
	if c := f.comparison; c != nil {
		shown := *c
		if shown.Partitions = slices.Clone(c.Partitions); !withStates {
			for i := range shown.Partitions {
				shown.Partitions[i].Running, shown.Partitions[i].Rebuilt = nil, nil
			}
		}
		r.Comparison = &shown
	}
}
