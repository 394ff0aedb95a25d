package pipeline

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/logkey"
)

// Decider turns writes into the bytes of entries. Only the pipeline's goroutine calls it.
type Decider interface {
	// Reset forgets everything decided and not applied. From now on, decisions
	// are made from the applied state.
	Reset() error
	// Decide decides a write against the applied state and everything decided
	// before it. It must not keep w.
	Decide(w *event.Write) event.Decision
	// Seal ends the entry being built and returns it; nil when nothing in it
	// wrote. The bytes belong to the caller for good.
	Seal() []byte
	// Applied says that the oldest sealed entry has been applied: its facts are
	// in the applied state now.
	Applied()
}

// Leadership says whether this node leads, and since which term.
type Leadership struct {
	Leading bool
	Term    uint64 // 0 when not leading
}

// Announced is a Leadership whose changes others wait for. The zero value does not lead.
type Announced struct {
	mu      sync.Mutex // guards what follows
	now     Leadership
	changed chan struct{} // made when a caller asks for it
}

// Publish announces a Leadership, unless it is the one that was announced last.
func (a *Announced) Publish(l Leadership) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now != l && a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
	a.now = l
}

// Current returns what was announced last, and a channel that is closed when that changes.
func (a *Announced) Current() (Leadership, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.now, a.changed
}

// Future is what raft returns for a proposal. One that came from Propose also has a method
// Response, as raft.ApplyFuture does.
type Future interface{ Error() error }

// Dependencies are what a pipeline needs of raft. A pipeline is tested without raft.
type Dependencies struct {
	Propose  func(entry []byte) Future // must not block
	Barrier  func() Future             // must not block
	Term     func() uint64             // current term
	Leader   func() bool               // raft considers this node the leader
	Quorum   func() Quorum             // must not block
	Hint     <-chan bool               // leadership may have changed
	Redirect func() string             // the leader's address for clients; empty when not known
	Fatal    func(error)               // the node must end
}

// Quorum is what raft's configuration says of an answer.
type Quorum struct {
	Configuration uint64 // which one was applied last: one is, before the next change is made
	Enough        bool   // it has the voters for an answer
	Alone         bool   // this node is the only one
}

// MaxEntryBytes bounds an entry: segment files read back very large ones as damaged.
const MaxEntryBytes = 16 << 20

// Bounds that are not options: any sane value does.
const (
	maxGroup    = 8192 // requests answered together
	maxRefusals = 8    // entries refused in a row before the node gives up
	gainRetry   = 20 * time.Millisecond
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
// One goroutine (run) does steps 2, 3 and 5. A second one does step 4, since raft's futures can
// only be waited for by blocking. A third one wakes callers whose context is over.
//
// In flight is an entry, a barrier that confirms a group in which nothing was written, or the
// barrier that ends an election.
type Pipeline struct {
	deps    Dependencies
	decider Decider
	logger  hclog.Logger
	queue   *queue
	metrics *metrics

	readOnly atomic.Pointer[error]

	// What the goroutine owns.
	leading  bool
	term     uint64 // in which this node leads, or wants to
	backlog  []*request
	next     int       // backlog before next is done with
	since    time.Time // when the first of the backlog came, about
	building *group
	full     bool // no more requests fit into building
	inFlight *group
	spare    []*group         // answered ones, for their memory
	refusals int              // entries refused in a row
	retry    <-chan time.Time // nil unless gaining leadership is to be tried again
	refused  time.Time        // since when a transfer of leadership keeps this node from gaining it
	failed   bool
	paused   bool // nothing is decided, proposed or refused
	// closed when nothing is in flight any more; nil unless a caller waits for that
	drained chan<- struct{}

	orders    chan order
	proposals chan Future // capacity 1, as results: at most one proposal is in flight
	results   chan result
	stop      chan struct{}
	stopped   sync.Once
	patience  time.Duration // for the proposal in flight when closing
	finished  chan struct{} // the goroutine has ended
	resolved  chan struct{} // the second goroutine has ended
	unwatched chan struct{} // the third goroutine has ended

	leadership Announced
}

// order has the pipeline pause or resume.
type order struct {
	pause   bool
	drained chan<- struct{}
}

// group is what one entry, or one barrier, answers together.
type group struct {
	requests []*request
	term     uint64
	gains    bool      // the barrier after an election; no requests
	entry    bool      // its bytes are in an entry
	quorum   Quorum    // before it was proposed
	counted  bool      // its requests are out of the length of the queue
	since    time.Time // when the first of its requests came
	begun    time.Time
}

type result struct {
	err      error
	response any
}

// New starts a pipeline.
func New(deps Dependencies, decider Decider, o Options) *Pipeline {
	o.ensureDefaults()
	m := newMetrics(o.Stats)
	p := &Pipeline{
		deps: deps, decider: decider, logger: o.Logger, metrics: m,
		queue:     newQueue(o.QueueRequests, o.QueueBytes, m.queue),
		building:  &group{},
		orders:    make(chan order),
		proposals: make(chan Future, 1),
		results:   make(chan result, 1),
		stop:      make(chan struct{}),
		patience:  o.DrainTimeout,
		finished:  make(chan struct{}),
		resolved:  make(chan struct{}),
		unwatched: make(chan struct{}),
	}
	p.watch(o.Stats)
	go p.run()
	go p.resolver()
	go func() {
		defer close(p.unwatched)
		p.queue.watchContexts(p.finished)
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
	case p.orders <- order{pause: true, drained: drained}:
	case <-p.finished:
		return event.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-drained:
		return nil
	case <-p.finished:
		return event.ErrClosed
	case <-ctx.Done():
		p.Resume()
		return ctx.Err()
	}
}

// Resume has what waited decided, or refused when this node does not lead any more.
func (p *Pipeline) Resume() {
	select {
	case p.orders <- order{}:
	case <-p.finished:
	}
}

// obey does not touch requests that are decided and not proposed: if this node still leads in the
// same term they are proposed as they are, and otherwise lose takes them back. To decide them again
// the decider would have to be reset, which is not allowed with an entry in flight.
func (p *Pipeline) obey(o order) {
	p.paused, p.drained, p.refused = o.pause, o.drained, time.Time{}
	p.reportDrained()
}

func (p *Pipeline) reportDrained() {
	if p.drained != nil && p.inFlight == nil {
		close(p.drained)
		p.drained = nil
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
	return p.leadership.Current()
}

// Close stops accepting, answers requests that were not proposed, gives the proposal in flight some
// time to resolve, and answers its requests too. It reports false when that did not resolve: a
// goroutine still waits for it then, and Close can be called again once it is sure to resolve.
func (p *Pipeline) Close() bool {
	p.stopped.Do(func() {
		p.queue.close(event.ErrClosed)
		close(p.stop)
	})
	<-p.finished
	<-p.unwatched
	select {
	case <-p.resolved:
		return true
	default:
	}
	select {
	case <-p.resolved:
		return true
	case <-time.After(p.patience / 10):
		return false
	}
}

// resolver waits for the proposal in flight.
func (p *Pipeline) resolver() {
	defer close(p.resolved)
	for f := range p.proposals {
		res := result{err: f.Error()}
		if r, ok := f.(interface{ Response() any }); ok && res.err == nil {
			res.response = r.Response()
		}
		p.results <- res
	}
}

func (p *Pipeline) run() {
	defer close(p.finished)
	for {
		p.advance()
		select {
		case <-p.queue.wake:
		case res := <-p.results:
			p.resolve(res)
			p.reportDrained()
		case o := <-p.orders:
			p.obey(o)
		case <-p.deps.Hint:
		case <-p.retry:
			p.retry = nil
		case <-p.stop:
			p.drain()
			return
		}
	}
}

// advance checks leadership, decides waiting requests, and proposes decided ones when nothing is in
// flight.
func (p *Pipeline) advance() {
	if p.failed {
		return
	}
	leader, term := p.deps.Leader(), p.deps.Term()
	if p.leading && (!leader || term != p.term) {
		p.lose()
	}
	switch {
	case p.paused:
	case p.leading:
		p.decideWaiting()
		p.launch()
	case !leader:
		p.refuseWaiting(p.elsewhere())
	case p.inFlight == nil && p.retry == nil:
		// Rule: leadership is known by its term. The barrier proves that
		// everything committed before it is applied here, and that this node led
		// in this term when it was committed.
		p.term = term
		p.start(&group{gains: true, term: term}, p.deps.Barrier())
		p.metrics.barriers.Add(1)
	}
}

// lose ends deciding. Requests that were decided and not proposed are decided again if this node
// wins again, else they are refused.
func (p *Pipeline) lose() {
	if p.leading {
		p.leading = false
		p.leadership.Publish(Leadership{})
		p.logger.Info("leadership ended", logkey.Term, p.term)
	}
	p.takeBack()
}

// takeBack makes everything decided and not proposed undecided.
func (p *Pipeline) takeBack() {
	p.redo(p.building)
	p.building.requests = p.building.requests[:0]
	p.full = false
}

// redo puts the requests of a group back in front of the backlog, undecided.
func (p *Pipeline) redo(g *group) {
	if len(g.requests) == 0 {
		return
	}
	again := make([]*request, 0, len(g.requests)+len(p.backlog)-p.next)
	for _, r := range g.requests {
		r.written, r.err, r.wrote = event.Written{}, nil, false
		if r.state.CompareAndSwap(decided, queued) {
			again = append(again, r)
		} else {
			p.drop(r)
		}
	}
	p.backlog, p.next, p.since = append(again, p.backlog[p.next:]...), 0, g.since
}

// drop takes an abandoned request out.
func (p *Pipeline) drop(r *request) {
	p.queue.lengths.Leave(1)
	p.queue.release(1, r.bytes)
	p.queue.recycle(r)
}

// elsewhere is the error of a request that this node cannot decide.
func (p *Pipeline) elsewhere() error {
	if address := p.deps.Redirect(); address != "" {
		return &event.NotLeader{Address: address}
	}
	return event.ErrNotReady
}

// refuseWaiting answers everything that is not decided.
func (p *Pipeline) refuseWaiting(err error) {
	for {
		p.answer(p.backlog[p.next:], func(*request) (event.Written, error) { return event.Written{}, err })
		p.takeWaiting()
		if len(p.backlog) == 0 {
			return
		}
	}
}

// takeWaiting makes what waits the backlog, which is done with.
func (p *Pipeline) takeWaiting() {
	p.backlog, p.since = p.queue.take(p.backlog[:0])
	p.next = 0
}

// decideWaiting decides in order until nothing waits or the entry is full.
func (p *Pipeline) decideWaiting() {
	for !p.full {
		if p.next == len(p.backlog) {
			p.takeWaiting()
			if len(p.backlog) == 0 {
				return
			}
		}
		r := p.backlog[p.next]
		if !r.state.CompareAndSwap(queued, decided) {
			p.next++
			p.drop(r)
			continue
		}
		if r.write != nil {
			d := p.decider.Decide(r.write)
			if d.Full && len(p.building.requests) > 0 {
				p.full = true
				// Withdrawn in this very moment, the state stays abandoned and the next round drops
				// it.
				r.state.CompareAndSwap(decided, queued)
				return
			}
			if d.Full {
				d.Err = event.ErrTooLarge
			}
			r.written, r.err = d.Written, d.Err
			r.wrote = d.Err == nil && !d.Written.Idempotent
		}
		p.next++
		if len(p.building.requests) == 0 {
			p.building.since = p.since
		}
		p.building.requests = append(p.building.requests, r)
		p.full = len(p.building.requests) >= maxGroup
	}
}

// launch seals and proposes the entry being built, if nothing is in flight.
func (p *Pipeline) launch() {
	if p.inFlight != nil || len(p.building.requests) == 0 {
		return
	}
	now := p.deps.Quorum()
	if !now.Enough {
		p.refuseFew()
		return
	}
	g := p.building
	p.building, p.full = p.fresh(), false
	g.term, g.quorum = p.term, now
	entry := p.decider.Seal()
	switch {
	case len(entry) > MaxEntryBytes:
		p.reuse(g, func(*request) (event.Written, error) { return event.Written{}, event.ErrTooLarge })
		p.reset()
	case entry != nil:
		g.entry = true
		p.metrics.entry(len(g.requests), len(entry))
		p.start(g, p.deps.Propose(entry))
	case now.Alone && p.deps.Leader() && p.deps.Term() == g.term:
		// While no other node has a vote, none can have become leader unnoticed, so the applied
		// state is the newest there is. This saves a lone node the sync of a barrier.
		p.reuse(g, decidedAnswer)
		// Come back for what still waits, but look at the other channels first.
		bell.Ring(p.queue.wake)
	default:
		p.metrics.barriers.Add(1)
		p.start(g, p.deps.Barrier())
	}
}

// refuseFew refuses waiting requests: the cluster has fewer voters than it needs to answer
// anything. Nothing is in flight.
func (p *Pipeline) refuseFew() {
	p.takeBack()
	p.refuseWaiting(event.ErrNotReady)
	p.reset()
}

// fresh returns an empty group.
func (p *Pipeline) fresh() *group {
	if n := len(p.spare); n > 0 {
		g := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return g
	}
	return &group{}
}

func (p *Pipeline) start(g *group, f Future) {
	if g.entry {
		g.begun = p.metrics.writes.Begin(time.Since(g.since))
	}
	p.inFlight = g
	p.proposals <- f
}

// decidedAnswer gives a request the answer that was decided.
func decidedAnswer(r *request) (event.Written, error) { return r.written, r.err }

// reuse answers a group and keeps its memory for the next one.
func (p *Pipeline) reuse(g *group, answer func(*request) (event.Written, error)) {
	p.answerGroup(g, answer)
	clear(g.requests)
	*g = group{requests: g.requests[:0]}
	if len(p.spare) < 2 {
		p.spare = append(p.spare, g)
	}
}

// ended notes that a group is not in flight any more: either all of it is done, or its requests
// will be decided again or refused.
func (p *Pipeline) ended(g *group, done bool) {
	switch {
	case !g.entry:
	case done:
		p.metrics.writes.End(g.begun, len(g.requests))
		g.counted = true
	default:
		p.metrics.writes.End(g.begun, 0)
	}
}

// answerGroup answers the requests of a group.
func (p *Pipeline) answerGroup(g *group, answer func(*request) (event.Written, error)) {
	if !g.counted {
		p.queue.lengths.Leave(len(g.requests))
	}
	p.give(g.requests, answer)
}

// answer takes requests out of the length of the queue and answers them.
func (p *Pipeline) answer(list []*request, answer func(*request) (event.Written, error)) {
	p.queue.lengths.Leave(len(list))
	p.give(list, answer)
}

// give gives each request its answer and wakes its caller. Room in the queue
// is made first, for the callers may be back at once.
func (p *Pipeline) give(list []*request, answer func(*request) (event.Written, error)) {
	if len(list) == 0 {
		return
	}
	bytes := int64(0)
	for _, r := range list {
		bytes += r.bytes
	}
	p.queue.release(len(list), bytes)
	for _, r := range list {
		r.written, r.err = answer(r)
		wake := r.wake // Once it is answered the request is its caller's.
		for {
			state := r.state.Load()
			if state == abandoned {
				p.queue.recycle(r)
				break
			}
			if r.state.CompareAndSwap(state, answered) {
				bell.Ring(wake)
				break
			}
		}
	}
}

// reset has the decider begin again from the applied state. When that state cannot be read, nothing
// can be decided: waiting requests are refused, and the reset is tried again later. It reports
// whether the state could be read.
func (p *Pipeline) reset() bool {
	err := p.decider.Reset()
	if err != nil {
		p.logger.Error("the applied state cannot be read, no writes are decided", logkey.Error, err)
		p.lose()
		p.refuseWaiting(fmt.Errorf("%w: %w", event.ErrNotReady, err))
		p.tryAgain()
	}
	return err == nil
}

func (p *Pipeline) tryAgain() { p.retry = time.After(gainRetry) }
