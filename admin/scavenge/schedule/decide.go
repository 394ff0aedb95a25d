package schedule

import (
	"fmt"
	"time"

	"github.com/annalsdb/annals/admin/cron"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
)

// action is what a node does next.
type action uint8

const (
	wait    action = iota // for the stream to grow, a node to come or go, time to pass
	propose               // events, with the version of the state as the expected one
	start                 // the scavenge of this node's turn
	stop                  // that scavenge: the turn is not this node's any more
	resign                // leadership
)

// step is a decision, and why it was taken if that is not plain.
type step struct {
	do    action
	event proposal
	why   string // worth a warning
}

// work is what the scavenge of a turn is doing in this process.
type work struct {
	number  int64 // of the event that took the turn; 0 when there is none
	running bool
	outcome scavenge.Status // when it does not run any more: id, result and error
}

// view is what a node knows beyond the stream.
type view struct {
	now      time.Time
	self     event.ID
	endpoint string
	session  event.ID // of this process
	schedule cron.Schedule

	leading   bool
	successor bool // there is another living node that could lead
	// how long nodes have been seen dead while there was a leader
	away      map[event.ID]time.Duration
	quiet     time.Duration // how long this node has known the state as it is
	work      work
	handOvers int  // that this round has seen, of this node
	pausing   bool // between two of them
}

// How long nodes wait. After one grace the leader continues without living nodes that do not take
// their turn. It may then need a few attempts to hand over, so the others give up on it later: a
// node that is done ends the round without the missing ones.
const (
	// how long a node must have been dead before others continue without it
	grace = 5 * time.Minute
	// how long after a due time that was missed a round still begins
	catchUp       = 24 * time.Hour
	maxHandOvers  = 3
	handOverPace  = grace / 10     // between two attempts
	patienceToEnd = 3              // graces
	patienceStale = 2              // graces, before a round that stood still is ended
	futureTime    = 24 * time.Hour // what is further ahead was written with a wrong clock
)

// absent reports whether a node has been dead for so long that no node waits for it.
func (v *view) absent(node event.ID) bool { return node != v.self && v.away[node] >= grace }

// decide returns this node's next step.
func decide(s *state, v *view) step {
	turn := (*turn)(nil)
	if s.round != nil {
		turn = s.round.turn
	}
	mine := turn != nil && turn.node == v.self
	if v.work.number != 0 && !(mine && turn.session == v.session && turn.number == v.work.number) {
		return step{do: stop}
	}
	if first := v.membership(s); first != nil {
		return proposing(*first)
	}
	switch {
	case s.round == nil:
		return v.begin(s)
	case mine:
		return v.ownTurn(s)
	case turn != nil:
		if v.absent(turn.node) {
			return proposing(proposal{TypeTurnEnded, note{
				Round: s.round.due, Node: turn.node, Endpoint: turn.endpoint, Result: TurnLost, By: v.self,
				Error: fmt.Sprintf("the node was away for %v", v.away[turn.node].Round(time.Second)),
			}})
		}
		return step{}
	}
	return v.nextTurn(s)
}

func proposing(p proposal) step { return step{do: propose, event: p} }

// membership says that this node takes turns, or does not any more, unless that is known.
func (v *view) membership(s *state) *proposal {
	known, joined := s.joined[v.self]
	switch {
	case v.schedule.IsZero() && joined:
		return &proposal{TypeLeft, note{Node: v.self, Endpoint: v.endpoint}}
	case v.schedule.IsZero():
		return nil
	}
	same := joined && known.schedule == v.schedule.String() && known.since.Before(v.now.Add(futureTime))
	if same && known.endpoint == v.endpoint && s.version-known.number < repeatAfter {
		return nil
	}
	since := v.now
	if same {
		since = known.since
	}
	return &proposal{TypeJoined, note{Node: v.self, Endpoint: v.endpoint, Schedule: v.schedule.String(), Since: since.Round(0).UTC()}}
}

// due returns the due time for which a round should begin now; zero if none should.
func (v *view) due(s *state) time.Time {
	after := v.now.Add(-catchUp)
	if own, ok := s.joined[v.self]; ok && own.since.After(after) {
		after = own.since
	}
	if s.through.After(after) && s.through.Before(v.now.Add(futureTime)) {
		after = s.through
	}
	if !after.Before(v.now) {
		return time.Time{}
	}
	due := v.schedule.Latest(after, v.now)
	if s.last != nil && s.last.due.Equal(due) {
		return time.Time{}
	}
	return due
}

// begin decides when no round is running.
func (v *view) begin(s *state) step {
	due := v.due(s)
	if due.IsZero() {
		return step{}
	}
	st := proposing(proposal{TypeStarted, note{Round: due, Schedule: v.schedule.String(), Node: v.self, Endpoint: v.endpoint}})
	if s.through.After(v.now.Add(futureTime)) {
		st.why = "the last round was of a time that has not come: the clock of a node is wrong, or was"
	}
	return st
}

// ownTurn is for when it is this node's turn.
func (v *view) ownTurn(s *state) step {
	turn := s.round.turn
	end := note{Round: s.round.due, Node: v.self, Endpoint: v.endpoint}
	switch {
	case turn.session != v.session && turn.attempt >= maxAttempts:
		end.Result = string(scavenge.ResultErrored)
		end.Error = fmt.Sprintf("the turn was taken %d times, and the node did not live to end it", turn.attempt)
		return proposing(proposal{TypeTurnEnded, end})
	case turn.session != v.session: // Of the process before this one.
		return proposing(v.take(s))
	case v.work.number == 0:
		return step{do: start}
	case v.work.running:
		return step{}
	}
	o := v.work.outcome
	end.Result, end.Scavenge, end.Error = string(o.Result), o.ID, o.Error
	return proposing(proposal{TypeTurnEnded, end})
}

func (v *view) take(s *state) proposal {
	return proposal{TypeTaken, note{
		Round: s.round.due, Node: v.self, Endpoint: v.endpoint, Session: v.session, Attempt: s.round.attempts[v.self] + 1,
	}}
}

// nextTurn decides when a round is running and no node has the turn.
func (v *view) nextTurn(s *state) step {
	others, away := 0, true // that have not had their turn and may come; whether all are absent
	for node := range s.joined {
		if node != v.self && !v.absent(node) && !s.round.done(node) {
			others++
		}
		away = away && v.absent(node)
	}
	_, takesPart := s.joined[v.self]
	// After so long no one expects scavenges any more. Nodes with right clocks then leave the turn
	// alone, so a turn that is taken shows this node that its own clock is wrong.
	stale := v.now.Sub(s.round.touched) > catchUp
	switch {
	case stale && v.quiet >= patienceStale*grace, away && !takesPart:
		return proposing(v.end(s, RoundAbandon))
	case stale:
		return step{}
	case !takesPart:
		return step{} // Those that take part continue.
	case s.round.done(v.self):
		if others > 0 && v.quiet < patienceToEnd*grace {
			return step{}
		}
		return proposing(v.end(s, RoundComplete))
	case !v.leading:
		return proposing(v.take(s))
	case others > 0 && v.quiet < grace:
		return step{}
	case v.successor && v.handOvers < maxHandOvers:
		if v.pausing {
			return step{}
		}
		return step{do: resign}
	}
	st := proposing(v.take(s))
	if v.successor {
		st.why = "no other node took leadership over: this node is scavenged while it leads"
	}
	return st
}

func (v *view) end(s *state, result string) proposal {
	through := v.now.Round(0).UTC()
	if through.Before(s.round.due) {
		through = s.round.due
	}
	return proposal{TypeRoundEnded, note{
		Round: s.round.due, Node: v.self, Endpoint: v.endpoint, Result: result, Through: through, Turns: s.round.succeeded(),
	}}
}
