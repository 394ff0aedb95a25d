package schedule

import (
	"encoding/json"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
)

// maxAttempts is how often a node takes its turn in a round: one that does not
// survive its scavenge, or is lost again and again, does not keep the others waiting for ever.
const maxAttempts = 5

// state is what the events of the stream up to a number say. It is the same on
// every node that has read so far: apply asks nothing but the event.
type state struct {
	version int64 // number of the last event, -1 for none
	joined  map[event.ID]participant
	round   *round    // that is running, or nil
	last    *round    // that ended last, or nil
	through time.Time // due times up to it are done
}

// participant is a node that takes turns.
type participant struct {
	endpoint string
	schedule string
	since    time.Time
	number   int64 // of the event that said so
}

type round struct {
	due      time.Time
	schedule string
	started  time.Time // these three as the leader's clock said
	touched  time.Time // last event about it
	ended    time.Time
	result   string // once it ended
	turn     *turn  // that is held, or nil
	turns    []turn // that ended, in order
	attempts map[event.ID]int
}

type turn struct {
	node     event.ID
	endpoint string
	session  event.ID
	number   int64 // of the event that took it, last time
	taken    time.Time
	attempt  int
	ended    time.Time
	result   string // once it ended, and what follows
	err      string
}

func newState() *state {
	return &state{version: -1, joined: make(map[event.ID]participant)}
}

// apply adds the next event. It returns false if the event means nothing in this state, which
// happens only with events that someone wrote by hand.
func (s *state) apply(r *event.Record) bool {
	s.version = r.Number
	var n note
	if json.Unmarshal(r.Data, &n) != nil || n.Node.IsZero() {
		return false
	}
	switch r.Type {
	case TypeJoined:
		s.joined[n.Node] = participant{endpoint: n.Endpoint, schedule: n.Schedule, since: n.Since, number: r.Number}
		return true
	case TypeLeft:
		delete(s.joined, n.Node)
		if s.holds(n.Node) {
			s.endTurn(&note{Node: n.Node, Result: TurnWithdrawn}, r.When())
		}
		return true
	case TypeStarted:
		if s.round != nil || n.Round.IsZero() || s.last != nil && s.last.due.Equal(n.Round) {
			return false
		}
		s.round = &round{
			due: n.Round.UTC(), schedule: n.Schedule, started: r.When(), touched: r.When(), attempts: make(map[event.ID]int),
		}
		s.through = s.round.due
		return true
	}
	if s.round == nil || !s.round.due.Equal(n.Round) {
		return false
	}
	switch r.Type {
	case TypeTaken:
		if s.round.turn != nil && s.round.turn.node != n.Node || s.round.done(n.Node) {
			return false
		}
		s.round.touched = r.When()
		s.round.attempts[n.Node]++
		s.round.turn = &turn{
			node: n.Node, endpoint: n.Endpoint, session: n.Session, number: r.Number, taken: r.When(), attempt: s.round.attempts[n.Node],
		}
		return true
	case TypeTurnEnded:
		if !s.holds(n.Node) {
			return false
		}
		s.endTurn(&n, r.When())
		return true
	case TypeRoundEnded:
		if s.round.turn != nil {
			return false
		}
		s.round.ended, s.round.touched, s.round.result = r.When(), r.When(), n.Result
		if n.Through.After(s.through) {
			s.through = n.Through.UTC()
		}
		s.round, s.last = nil, s.round
		return true
	}
	return false
}

// holds reports whether it is a node's turn.
func (s *state) holds(node event.ID) bool {
	return s.round != nil && s.round.turn != nil && s.round.turn.node == node
}

func (s *state) endTurn(n *note, at time.Time) {
	t := *s.round.turn
	t.ended, t.result, t.err = at, n.Result, n.Error
	s.round.turns = append(s.round.turns, t)
	s.round.turn, s.round.touched = nil, at
}

// done reports whether a node has had its turn. A turn that was lost does not
// count, if the node was not lost too often.
func (r *round) done(node event.ID) bool {
	for i := range r.turns {
		if r.turns[i].node == node && r.turns[i].result != TurnLost {
			return true
		}
	}
	return r.attempts[node] >= maxAttempts && (r.turn == nil || r.turn.node != node)
}

// succeeded is the number of turns that ended well.
func (r *round) succeeded() (n int) {
	for i := range r.turns {
		if r.turns[i].result == string(scavenge.ResultSuccess) {
			n++
		}
	}
	return n
}
