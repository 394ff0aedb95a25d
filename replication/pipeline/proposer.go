package pipeline

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/logkey"
)

// Bounds that are not options: any sane value does.
const (
	maxGroup    = 8192 // requests answered together
	maxRefusals = 8    // entries refused in a row before the node gives up
	gainRetry   = 20 * time.Millisecond
)

// proposer has waiting requests decided and proposed, one entry after the other. Its goroutine does
// steps 2, 3 and 5 of a Pipeline, and owns the fields up to orders.
//
// In flight is an entry, a barrier that confirms a group in which nothing was written, or the
// barrier that ends an election.
type proposer struct {
	deps    Dependencies
	decider Decider
	logger  hclog.Logger
	queue   *queue
	metrics *metrics

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
	patience  time.Duration // for the proposal in flight when closing
	finished  chan struct{} // the goroutine has ended
	resolved  chan struct{} // the second goroutine has ended

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

// resolver waits for the proposal in flight.
func (p *proposer) resolver() {
	defer close(p.resolved)
	for f := range p.proposals {
		res := result{err: f.Error()}
		if r, ok := f.(interface{ Response() any }); ok && res.err == nil {
			res.response = r.Response()
		}
		p.results <- res
	}
}

func (p *proposer) run() {
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

// obey does not touch requests that are decided and not proposed: if this node still leads in the
// same term they are proposed as they are, and otherwise lose takes them back. To decide them again
// the decider would have to be reset, which is not allowed with an entry in flight.
func (p *proposer) obey(o order) {
	p.paused, p.drained, p.refused = o.pause, o.drained, time.Time{}
	p.reportDrained()
}

func (p *proposer) reportDrained() {
	if p.drained != nil && p.inFlight == nil {
		close(p.drained)
		p.drained = nil
	}
}

// advance checks leadership, decides waiting requests, and proposes decided ones when nothing is in
// flight.
func (p *proposer) advance() {
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
func (p *proposer) lose() {
	if p.leading {
		p.leading = false
		p.leadership.Publish(Leadership{})
		p.logger.Info("leadership ended", logkey.Term, p.term)
	}
	p.takeBack()
}

// takeBack makes everything decided and not proposed undecided.
func (p *proposer) takeBack() {
	p.redo(p.building)
	p.building.requests = p.building.requests[:0]
	p.full = false
}

// redo puts the requests of a group back in front of the backlog, undecided.
func (p *proposer) redo(g *group) {
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
func (p *proposer) drop(r *request) {
	p.queue.lengths.Leave(1)
	p.queue.release(1, r.bytes)
	p.queue.recycle(r)
}

// elsewhere is the error of a request that this node cannot decide.
func (p *proposer) elsewhere() error {
	if address := p.deps.Redirect(); address != "" {
		return &event.NotLeader{Address: address}
	}
	return event.ErrNotReady
}

// refuseWaiting answers everything that is not decided.
func (p *proposer) refuseWaiting(err error) {
	for {
		p.answer(p.backlog[p.next:], func(*request) (event.Written, error) { return event.Written{}, err })
		p.takeWaiting()
		if len(p.backlog) == 0 {
			return
		}
	}
}

// takeWaiting makes what waits the backlog, which is done with.
func (p *proposer) takeWaiting() {
	p.backlog, p.since = p.queue.take(p.backlog[:0])
	p.next = 0
}

// decideWaiting decides in order until nothing waits or the entry is full.
func (p *proposer) decideWaiting() {
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
func (p *proposer) launch() {
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
func (p *proposer) refuseFew() {
	p.takeBack()
	p.refuseWaiting(event.ErrNotReady)
	p.reset()
}

// fresh returns an empty group.
func (p *proposer) fresh() *group {
	if n := len(p.spare); n > 0 {
		g := p.spare[n-1]
		p.spare = p.spare[:n-1]
		return g
	}
	return &group{}
}

func (p *proposer) start(g *group, f Future) {
	if g.entry {
		g.begun = p.metrics.writes.Begin(time.Since(g.since))
	}
	p.inFlight = g
	p.proposals <- f
}

// decidedAnswer gives a request the answer that was decided.
func decidedAnswer(r *request) (event.Written, error) { return r.written, r.err }

// reuse answers a group and keeps its memory for the next one.
func (p *proposer) reuse(g *group, answer func(*request) (event.Written, error)) {
	p.answerGroup(g, answer)
	clear(g.requests)
	*g = group{requests: g.requests[:0]}
	if len(p.spare) < 2 {
		p.spare = append(p.spare, g)
	}
}

// ended notes that a group is not in flight any more: either all of it is done, or its requests
// will be decided again or refused.
func (p *proposer) ended(g *group, done bool) {
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
func (p *proposer) answerGroup(g *group, answer func(*request) (event.Written, error)) {
	if !g.counted {
		p.queue.lengths.Leave(len(g.requests))
	}
	p.give(g.requests, answer)
}

// answer takes requests out of the length of the queue and answers them.
func (p *proposer) answer(list []*request, answer func(*request) (event.Written, error)) {
	p.queue.lengths.Leave(len(list))
	p.give(list, answer)
}

// give gives each request its answer and wakes its caller. Room in the queue
// is made first, for the callers may be back at once.
func (p *proposer) give(list []*request, answer func(*request) (event.Written, error)) {
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
func (p *proposer) reset() bool {
	err := p.decider.Reset()
	if err != nil {
		p.logger.Error("the applied state cannot be read, no writes are decided", logkey.Error, err)
		p.lose()
		p.refuseWaiting(fmt.Errorf("%w: %w", event.ErrNotReady, err))
		p.tryAgain()
	}
	return err == nil
}

func (p *proposer) tryAgain() { p.retry = time.After(gainRetry) }
