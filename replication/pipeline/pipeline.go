package pipeline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
)

// Pipeline is the leader's write path. A write takes five steps:
//
//  1. Submit (or Begin) puts it into the queue, which is bounded in count and bytes. Its caller
//     waits for the answer, or until its context is over.
//  2. decideWaiting has it decided against the applied state and everything decided before it, in
//     the order of the queue. What was decided joins the group being built.
//  3. launch seals the group into one entry and proposes it to raft, when no entry is in flight. A
//     group in which nothing was written gets a barrier, which shows that this node still led.
//  4. Raft stores the entry on a quorum and the state machine applies it. resolver waits for that.
//  5. resolve launches the next group, then answers the callers of this one. Where raft gives the
//     entry back, its writes are decided again or refused (outcome.go).
//
// The proposer's goroutine (run) does steps 2, 3 and 5. A second one does step 4, since raft's
// futures can only be waited for by blocking. A third one wakes callers whose context is over.
type Pipeline struct {
	queue    *queue
	metrics  *metrics
	proposer *proposer

	readOnly atomic.Pointer[error]

	stopped   sync.Once
	unwatched chan struct{} // the third goroutine has ended
}

// New starts a pipeline.
func New(deps Dependencies, decider Decider, o Options) *Pipeline {
	o.ensureDefaults()
	m := newMetrics(o.Stats)
	p := &Pipeline{queue: newQueue(o.QueueRequests, o.QueueBytes, m.queue), metrics: m, unwatched: make(chan struct{})}
	p.proposer = &proposer{
		deps: deps, decider: decider, logger: o.Logger, queue: p.queue, metrics: m,
		building:  &group{},
		orders:    make(chan order),
		proposals: make(chan Future, 1),
		results:   make(chan result, 1),
		stop:      make(chan struct{}),
		patience:  o.DrainTimeout,
		finished:  make(chan struct{}),
		resolved:  make(chan struct{}),
	}
	p.watch(o.Stats)
	go p.proposer.run()
	go p.proposer.resolver()
	go func() {
		defer close(p.unwatched)
		p.queue.watchContexts(p.proposer.finished)
	}()
	return p
}

// Submit has a write decided by the leader, replicated and applied, and returns the answer. On
// another node than the leader it fails with *event.NotLeader, or event.ErrNotReady when no leader
// is known.
//
// The write must not be changed before Submit returns. After ErrWriteTimeout it must never be
// changed: it may still be in the queue of the entry in flight.
func (p *Pipeline) Submit(ctx context.Context, w *event.Write) (event.Written, error) {
	d, err := p.Begin(ctx, w, nil)
	if err != nil {
		return event.Written{}, err
	}
	return d.outcome(p.queue.wait(d.r))
}

// Pending is a write that was begun. Its answer must be collected.
type Pending struct {
	p *Pipeline
	r *request
}

// Begin is Submit for one who does not wait for each answer: the writes that a goroutine begins are
// decided in that order. wake, of capacity 1, is signalled when the answer is there or ctx
// is over; a signal may also stand for another write, or for nothing.
func (p *Pipeline) Begin(ctx context.Context, w *event.Write, wake chan<- struct{}) (Pending, error) {
	if reason := p.readOnly.Load(); reason != nil {
		return Pending{}, *reason
	}
	size := w.Size()
	if size > MaxEntryBytes {
		return Pending{}, event.ErrTooLarge
	}
	if err := label.Check(w); err != nil {
		return Pending{}, err
	}
	if ctx.Err() != nil {
		p.metrics.timeouts.Add(1)
		return Pending{}, event.ErrWriteTimeout
	}
	r := p.queue.fresh(ctx, w, size)
	if wake != nil {
		r.wake = wake
	}
	if err := p.queue.push(r); err != nil {
		p.queue.recycle(r)
		if err == event.ErrBusy {
			p.metrics.busy.Add(1)
		}
		return Pending{}, err
	}
	return Pending{p, r}, nil
}

// Done returns the answer if it is there: ok is true once, and Done must not be called again then.
// With giveUp it is always true: what has no answer gets event.ErrWriteTimeout.
func (d Pending) Done(giveUp bool) (written event.Written, err error, ok bool) {
	if !giveUp && d.r.state.Load() != answered {
		return event.Written{}, nil, false
	}
	written, err = d.outcome(d.p.queue.collect(d.r))
	return written, err, true
}

// outcome is the answer to a caller; without one it gave up.
func (d Pending) outcome(written event.Written, err error, answered bool) (event.Written, error) {
	if !answered {
		d.p.metrics.timeouts.Add(1)
		return event.Written{}, event.ErrWriteTimeout
	}
	return written, err
}

// SetReadOnly makes Submit fail with the reason; nil lifts it. Writes that are already in the queue
// are still done.
func (p *Pipeline) SetReadOnly(reason error) {
	if reason == nil {
		p.readOnly.Store(nil)
		return
	}
	p.readOnly.Store(&reason)
}

// Depth counts the requests that are not yet answered, and the bytes of their data.
func (p *Pipeline) Depth() (count int, bytes int64) { return p.queue.depth() }

// Pause stops deciding and returns when nothing is in flight any more. New requests wait in the
// queue, until Resume. When Pause fails, the pipeline continues.
func (p *Pipeline) Pause(ctx context.Context) error {
	drained := make(chan struct{})
	select {
	case p.proposer.orders <- order{pause: true, drained: drained}:
	case <-p.proposer.finished:
		return event.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-drained:
		return nil
	case <-p.proposer.finished:
		return event.ErrClosed
	case <-ctx.Done():
		p.Resume()
		return ctx.Err()
	}
}

// Resume has what waited decided, or refused when this node does not lead any more.
func (p *Pipeline) Resume() {
	select {
	case p.proposer.orders <- order{}:
	case <-p.proposer.finished:
	}
}

// Confirm returns nil once this node's applied state is known to hold every
// write that was acknowledged anywhere in the cluster before the call.
func (p *Pipeline) Confirm(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("confirm leadership: %w", err)
	}
	r := p.queue.fresh(ctx, nil, 0)
	if err := p.queue.push(r); err != nil {
		p.queue.recycle(r)
		return err
	}
	_, err, ok := p.queue.wait(r)
	if !ok {
		return fmt.Errorf("confirm leadership: %w", ctx.Err())
	}
	return err
}

// Leadership says whether this node leads, and returns a channel that is
// closed when that changes. A node leads once everything committed before is
// applied. When leadership was lost and won again quickly, the term tells.
func (p *Pipeline) Leadership() (Leadership, <-chan struct{}) {
	return p.proposer.leadership.Current()
}

// Close stops accepting, answers requests that were not proposed, gives the proposal in flight some
// time to resolve, and answers its requests too. It reports false when that did not resolve: a
// goroutine still waits for it then, and Close can be called again once it is sure to resolve.
func (p *Pipeline) Close() bool {
	p.stopped.Do(func() {
		p.queue.close(event.ErrClosed)
		close(p.proposer.stop)
	})
	<-p.proposer.finished
	<-p.unwatched
	select {
	case <-p.proposer.resolved:
		return true
	default:
	}
	select {
	case <-p.proposer.resolved:
		return true
	case <-time.After(p.proposer.patience / 10):
		return false
	}
}
