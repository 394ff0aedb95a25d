package schedule

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/cron"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// step is what the leader does next: it stores another record, or resigns, or waits for a node to
// answer and time to pass.
type step struct {
	next    *record // nil: the record stays
	resigns bool
	level   hclog.Level // of the log's line about it
	say     string      // empty: there is none
	about   []any
}

// peer is a node as the leader sees it, itself among them.
type peer struct {
	Answer
	isHeard bool          // it has just answered
	silent  time.Duration // how long it has not
}

// takesPart reports whether the round waits for a node. Of one that does not answer it is not known
// whether it takes turns.
func (p *peer) takesPart() bool { return p.silent < grace && (!p.isHeard || p.Schedule != "") }

// view is what the leader knows beyond the record.
type view struct {
	now       time.Time
	self      event.ID
	nodes     map[event.ID]*peer // all members, and the one whose turn it is
	successor bool               // there is another living node that could lead
	handOvers int                // that this round has seen, of this node
	pausing   bool               // between two of them
}

// How long the leader waits.
const (
	// how long a node must have been silent before the round continues without it
	grace = 5 * time.Minute
	// how long after a due time that was missed a round still begins
	catchUp      = 24 * time.Hour
	maxHandOvers = 3
	handOverPace = grace / 10     // between two attempts
	futureTime   = 24 * time.Hour // what is further ahead was written with a wrong clock
)

// decide returns the leader's next step.
func decide(r *record, v *view) step {
	next := r.clone()
	switch {
	case v.learn(next):
		return step{next: next}
	case r.Round == nil:
		return v.begin(next)
	case r.Round.Turn != nil:
		return v.turn(next)
	}
	return v.nextTurn(next)
}

// learn keeps since when there are which schedules, and reports whether that changed.
func (v *view) learn(r *record) (changed bool) {
	heard, isComplete := map[string]bool{}, true
	for _, p := range v.nodes {
		isComplete = isComplete && p.isHeard
		heard[p.Schedule] = p.isHeard || heard[p.Schedule]
		if since, known := r.Schedules[p.Schedule]; p.isHeard && p.Schedule != "" && (!known || since.After(v.now.Add(futureTime))) {
			r.Schedules[p.Schedule], changed = v.now.Round(0).UTC(), true
		}
	}
	before := len(r.Schedules)
	if isComplete {
		maps.DeleteFunc(r.Schedules, func(schedule string, _ time.Time) bool { return !heard[schedule] })
	}
	return changed || len(r.Schedules) < before
}

// due returns the due time for which a round should begin now by a schedule; zero if none should.
func (v *view) due(r *record, expression string, since time.Time) time.Time {
	schedule, err := cron.Parse(expression)
	if err != nil {
		return time.Time{} // Of another version.
	}
	after := v.now.Add(-catchUp)
	if since.After(after) {
		after = since
	}
	if r.Through.After(after) && r.Through.Before(v.now.Add(futureTime)) {
		after = r.Through
	}
	if !after.Before(v.now) {
		return time.Time{}
	}
	due := schedule.Latest(after, v.now)
	if r.Last != nil && r.Last.Due.Equal(due) {
		return time.Time{}
	}
	return due
}

// begin decides when no round is running.
func (v *view) begin(r *record) step {
	now := round{Started: v.now.Round(0).UTC(), Touched: v.now.Round(0).UTC()}
	for expression, since := range r.Schedules {
		isHeld := func(node event.ID) bool { return v.nodes[node].Schedule == expression }
		if due := v.due(r, expression, since); due.After(now.Due) && slices.ContainsFunc(slices.Collect(maps.Keys(v.nodes)), isHeld) {
			now.Due, now.Schedule = due, expression
		}
	}
	if now.Due.IsZero() {
		return step{}
	}
	st := step{next: r, level: hclog.Info, say: "round of scavenges begins", about: []any{"due", now.Due, "schedule", now.Schedule}}
	if r.Through.After(v.now.Add(futureTime)) {
		st.level, st.say = hclog.Warn, "the last round was of a time that has not come: the clock of a node is wrong, or was"
	}
	r.Round, r.Through = &now, now.Due
	return st
}

// turn decides while it is a node's turn. That node learns it when it is asked.
func (v *view) turn(r *record) step {
	t := *r.Round.Turn
	p := v.nodes[t.Node]
	switch {
	case p.silent >= grace:
		t.Result, t.Error = TurnLost, fmt.Sprintf("the node was away for %v", p.silent.Round(time.Second))
	case !p.isHeard:
		return step{}
	case p.Schedule == "":
		t.Result = TurnWithdrawn
	case p.Session != t.Session && t.Attempt >= maxAttempts:
		t.Result = string(scavenge.ResultErrored)
		t.Error = fmt.Sprintf("the turn was taken %d times, and the node did not live to end it", t.Attempt)
	case p.Session != t.Session: // It was restarted.
		return v.take(r, t.Node)
	case p.Running || !p.Round.Equal(r.Round.Due):
		return step{}
	default:
		t.Result, t.Scavenge, t.Error = p.Result, p.Scavenge, p.Error
	}
	t.Ended = v.now.Round(0).UTC()
	r.Round.Turn, r.Round.Turns, r.Round.Touched = nil, append(r.Round.Turns, t), t.Ended
	st := step{next: r, level: hclog.Info, say: "turn to be scavenged ends", about: []any{"due", r.Round.Due, "endpoint", t.Endpoint,
		"result", t.Result, logkey.Took, t.Ended.Sub(t.Taken).Round(time.Second), logkey.Error, t.Error}}
	if t.Result == string(scavenge.ResultErrored) || t.Result == TurnLost {
		st.level = hclog.Warn
	}
	return st
}

func (v *view) take(r *record, node event.ID) step {
	p, now := v.nodes[node], v.now.Round(0).UTC()
	r.Round.Attempts[node]++
	t := &turn{Node: node, Endpoint: p.Endpoint, Session: p.Session, Taken: now, Attempt: r.Round.Attempts[node]}
	r.Round.Turn, r.Round.Touched = t, now
	return step{next: r, level: hclog.Info, say: "turn to be scavenged begins",
		about: []any{"due", r.Round.Due, "endpoint", t.Endpoint, logkey.Attempt, t.Attempt}}
}

// nextTurn decides when a round is running and no node has the turn. The leader is the last.
func (v *view) nextTurn(r *record) step {
	isLeft, isWaiting := false, false
	isStale := v.now.Sub(r.Round.Touched) > catchUp // After so long no one expects scavenges.
	nodes := slices.SortedFunc(maps.Keys(v.nodes), func(a, b event.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, node := range nodes {
		p := v.nodes[node]
		isLeft = isLeft || p.takesPart()
		switch {
		case !p.takesPart() || node == v.self || r.Round.done(node):
		case p.isHeard && !isStale:
			return v.take(r, node)
		default:
			isWaiting = true // It may be restarting.
		}
	}
	switch {
	case isStale, !isLeft:
		return v.end(r, RoundAbandon)
	case isWaiting:
		return step{}
	case !v.nodes[v.self].takesPart(), r.Round.done(v.self):
		return v.end(r, RoundComplete)
	case v.successor && v.handOvers < maxHandOvers:
		return step{resigns: !v.pausing}
	}
	st := v.take(r, v.self)
	if v.successor {
		st.level, st.say = hclog.Warn, "no other node took leadership over: this node is scavenged while it leads"
	}
	return st
}

func (v *view) end(r *record, result string) step {
	last, now := r.Round, v.now.Round(0).UTC()
	last.Ended, last.Touched, last.Result = now, now, result
	r.Round, r.Last = nil, last
	if now.After(r.Through) {
		r.Through = now
	}
	return step{next: r, level: hclog.Info, say: "round of scavenges ends", about: []any{"due", last.Due, "result", result,
		"turns", len(last.Turns), "succeeded", last.succeeded(), logkey.Took, now.Sub(last.Started).Round(time.Second)}}
}
