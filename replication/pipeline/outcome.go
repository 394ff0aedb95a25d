package pipeline

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// resolve handles the outcome of the entry or barrier that was in flight.
func (p *proposer) resolve(res result) {
	g := p.inFlight
	p.inFlight = nil
	if g.gains {
		p.resolveGain(g, res.err)
		return
	}
	refusal, isError := res.response.(error)
	now := p.deps.Quorum()
	p.ended(g, res.err == nil && !isError && g.certain(now))
	switch {
	case res.err == nil && !isError:
		p.refusals = 0
		if g.entry {
			p.decider.Applied()
			p.metrics.commit.ObserveSince(g.begun)
		} else if p.deps.Term() != g.term {
			p.lose()
			p.redo(p.settleUnknown(g, errTerm))
			return
		}
		if !now.Enough {
			p.redo(p.settleUnknown(g, errFew))
			p.refuseFew()
			return
		}
		if !g.certain(now) {
			// A barrier that is committed now has everything before it on enough nodes.
			g.entry, g.term, g.quorum = false, p.deps.Term(), now
			p.metrics.barriers.Add(1)
			p.start(g, p.deps.Barrier())
			return
		}
		if p.leading && !p.paused {
			p.launch() // the next entry is on its way while the callers of this one wake up
		}
		p.reuse(g, decidedAnswer)
	case res.err == nil && errors.Is(refusal, event.ErrEntryRefused):
		p.metrics.refused.Add(1)
		if p.refusals++; p.refusals > maxRefusals {
			p.fail(g, fmt.Errorf("state machine refused %d entries in a row: decisions and log disagree", p.refusals))
			return
		}
		p.takeBack()
		p.redo(g)
		if p.leading {
			p.reset()
		}
	case res.err == nil:
		p.fail(g, fmt.Errorf("apply entry: %w", refusal))
	default:
		p.lose()
		if !g.entry || !NotWritten(res.err) {
			g = p.settleUnknown(g, res.err)
		}
		p.redo(g)
		p.tryAgain()
	}
}

var (
	errTerm = errors.New("the term has changed")
	errFew  = errors.New("the cluster has too few voters")
)

// certain reports whether what was committed is on as many nodes as an answer
// promises: there were enough voters all the while. If there were when it was proposed and are
// now, one may have been removed and another one added between, which may not have it.
func (g *group) certain(now Quorum) bool {
	return now.Enough && now.Configuration == g.quorum.Configuration
}

// settleUnknown answers the requests whose bytes may or may not have been
// written. The others of the group wrote nothing whatever became of the entry,
// and are returned to be decided again.
func (p *proposer) settleUnknown(g *group, why error) (again *group) {
	var lost []*request
	again = &group{since: g.since}
	for _, r := range g.requests {
		if r.wrote {
			lost = append(lost, r)
		} else {
			again.requests = append(again.requests, r)
		}
	}
	if len(lost) > 0 {
		p.logger.Warn("outcome of an entry is unknown", logkey.Error, why, keyRequests, len(lost))
		p.metrics.unknown.Add(1)
	}
	p.answer(lost, func(*request) (event.Written, error) { return event.Written{}, event.ErrOutcomeUnknown })
	return again
}

// NotWritten reports whether a raft error means that the entry is in no log and never will be.
func NotWritten(err error) bool {
	return errors.Is(err, raft.ErrNotLeader) || errors.Is(err, raft.ErrLeadershipTransferInProgress) ||
		errors.Is(err, raft.ErrEnqueueTimeout)
}

func (p *proposer) resolveGain(g *group, err error) {
	switch {
	case !errors.Is(err, raft.ErrLeadershipTransferInProgress) || !p.deps.Leader():
		p.refused = time.Time{}
	case p.refused.IsZero():
		p.refused = time.Now()
	case time.Since(p.refused) > endlessTransfer:
		p.fail(g, errEndlessTransfer)
		return
	}
	if err != nil || p.deps.Term() != g.term || !p.deps.Leader() {
		p.tryAgain() // Without delay this would spin while leadership is being handed over.
	} else if p.reset() {
		p.leading = true
		p.leadership.Publish(Leadership{Leading: true, Term: p.term})
		p.logger.Info("leading", logkey.Term, p.term)
	}
}

// endlessTransfer is longer than any transfer of leadership takes: raft waits for the follower to
// catch up, an election timeout at most, and for its answer.
const endlessTransfer = time.Minute

// errEndlessTransfer: raft may wait without end for its question to a follower that it does not
// replicate to any more, and refuses all entries meanwhile, in later terms too.
var errEndlessTransfer = errors.New("raft is giving leadership to another node without end: only a restart ends that")

// fail ends the write path because the node cannot be trusted any more.
func (p *proposer) fail(g *group, cause error) {
	p.failed = true
	p.queue.close(fmt.Errorf("%w: %w", event.ErrNotReady, cause))
	p.deps.Fatal(cause) // before any caller is answered
	p.lose()
	p.redo(p.settleUnknown(g, cause))
	p.refuseWaiting(event.ErrNotReady)
}

// drain ends the goroutine: nothing more is proposed, and it waits with patience for what is in
// flight.
func (p *proposer) drain() {
	p.lose()
	close(p.proposals)
	p.refuseWaiting(event.ErrNotReady)
	g := p.inFlight
	if g == nil {
		return
	}
	var outcome error
	select {
	case res := <-p.results:
		refusal, isError := res.response.(error)
		done := res.err == nil && !isError && g.certain(p.deps.Quorum())
		p.ended(g, done)
		switch {
		case done:
			if g.entry {
				p.decider.Applied()
			}
			p.answerGroup(g, decidedAnswer)
			return
		case g.entry && (errors.Is(refusal, event.ErrEntryRefused) || NotWritten(res.err)):
			p.answer(g.requests, func(*request) (event.Written, error) { return event.Written{}, event.ErrNotReady })
			return
		case res.err != nil:
			outcome = res.err
		case isError:
			outcome = refusal
			p.deps.Fatal(fmt.Errorf("apply entry: %w", refusal))
		default:
			outcome = errors.New("the cluster's configuration has changed")
		}
	case <-time.After(p.patience):
		p.ended(g, false)
		outcome = errors.New("it did not resolve in time")
	}
	p.redo(p.settleUnknown(g, outcome))
	p.refuseWaiting(event.ErrNotReady)
}
