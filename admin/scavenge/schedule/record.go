package schedule

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/cron"
	journal "github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Stream is where the leader keeps how far rounds are, whole in each event. It, the type of these
// events and the names in them are stored: do not change. Events of other types are of earlier
// versions, and are passed over.
const (
	Stream     = "$scavengeSchedule"
	TypeRecord = "$scavengeScheduleState"
)

const (
	keptEvents = 1000 // $maxCount, for operators to read; the last event alone counts
	readPage   = 50
	writeTime  = 10 * time.Second // for one append; its outcome shows in the stream
)

// Results of turns beyond those of a scavenge, and of rounds.
const (
	TurnLost      = "Lost"      // the node was away for too long: others continued
	TurnWithdrawn = "Withdrawn" // the node has no schedule any more
	RoundComplete = "Completed" // every node that could has had its turn
	RoundAbandon  = "Abandoned" // no node was left to continue it, or none for long
)

// maxAttempts is how often a node takes its turn in a round: one that does not
// survive its scavenge, or is lost again and again, does not keep the others waiting for ever.
const maxAttempts = 5

// record is what a leader must know of the time before it led.
type record struct {
	Schedules map[string]time.Time `json:"schedules,omitempty"` // no due time before counts
	Through   time.Time            `json:"through,omitzero"`    // due times up to it are done
	Round     *round               `json:"round,omitempty"`     // that is running
	Last      *round               `json:"last,omitempty"`      // that ended last
}

type round struct {
	Due      time.Time        `json:"due"`
	Schedule string           `json:"schedule"`
	Started  time.Time        `json:"started"` // as the leader's clock said, like all times
	Touched  time.Time        `json:"touched"` // when it changed last
	Ended    time.Time        `json:"ended,omitzero"`
	Result   string           `json:"result,omitzero"`
	Turn     *turn            `json:"turn,omitempty"` // that is held
	Turns    []turn           `json:"turns,omitempty"`
	Attempts map[event.ID]int `json:"attempts,omitempty"`
}

type turn struct {
	Node     event.ID  `json:"node"`
	Endpoint string    `json:"endpoint"`
	Session  event.ID  `json:"session"`
	Taken    time.Time `json:"taken"`
	Attempt  int       `json:"attempt"`
	Ended    time.Time `json:"ended,omitzero"`
	Result   string    `json:"result,omitzero"` // once it ended, and what follows
	Scavenge event.ID  `json:"scavengeId,omitzero"`
	Error    string    `json:"error,omitzero"`
}

// clone returns a copy that may be changed.
func (r *record) clone() *record {
	c := *r
	if c.Schedules = maps.Clone(r.Schedules); c.Schedules == nil {
		c.Schedules = make(map[string]time.Time)
	}
	if r.Round != nil {
		now := *r.Round
		now.Turns = slices.Clone(now.Turns)
		if now.Attempts = maps.Clone(now.Attempts); now.Attempts == nil {
			now.Attempts = make(map[event.ID]int)
		}
		c.Round = &now
	}
	return &c
}

// done reports whether a node has had its turn. A turn that was lost does not
// count, if the node was not lost too often.
func (r *round) done(node event.ID) bool {
	return r.Attempts[node] >= maxAttempts && (r.Turn == nil || r.Turn.Node != node) ||
		slices.ContainsFunc(r.Turns, func(t turn) bool { return t.Node == node && t.Result != TurnLost })
}

// succeeded is the number of turns that ended well.
func (r *round) succeeded() (n int) {
	for i := range r.Turns {
		if r.Turns[i].Result == string(scavenge.ResultSuccess) {
			n++
		}
	}
	return n
}

// errStreamGone says that there can be no rounds any more.
var errStreamGone = fmt.Errorf("the stream %s was deleted for good: %w", Stream, event.ErrStreamDeleted)

// load reads the record, if the stream has changed. An operator who deletes the stream has all that
// is in it forgotten.
func (s *Scheduler) load(ctx context.Context) error {
	info, err := s.opts.Store.StreamInfo(ctx, Stream)
	switch {
	case err != nil:
		return fmt.Errorf("look at %s: %w", Stream, err)
	case info.HardDeleted:
		return errStreamGone
	case info.Last == s.version && s.info.Metadata.TruncateBefore == info.Metadata.TruncateBefore:
		s.info = info
		return nil
	}
	r := &record{}
	page, err := s.opts.Store.ReadStream(ctx, event.StreamRead{Stream: Stream, From: event.Head, Count: readPage, Backward: true})
	if err != nil && !errors.Is(err, event.ErrStreamNotFound) && !errors.Is(err, event.ErrStreamDeleted) {
		return fmt.Errorf("read %s: %w", Stream, err)
	}
	for i := range page.Events {
		e := &page.Events[i].Record
		if e.Type != TypeRecord {
			continue
		}
		var found record
		if json.Unmarshal(e.Data, &found) == nil {
			r = &found
			break
		}
		s.logger.Warn("an event of the schedule of scavenges is invalid and ignored", logkey.Number, e.Number, logkey.Type, e.Type)
	}
	s.info, s.version, s.record = info, info.Last, r
	return nil
}

// save appends a record after all that the stream has. Nil means that it is written, or that the
// leader after this one was faster: both show in the stream, which is then awaited.
func (s *Scheduler) save(ctx context.Context, st *step) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	m := &s.info.Metadata
	var conflict *event.WrongExpectedVersion
	if s.info.MetaLast < 0 || !m.SoftDeleted() && (m.MaxCount < keptEvents || m.MaxAge != 0) {
		document := []byte(fmt.Sprintf(`{"$maxCount":%d,%s}`, keptEvents, journal.ACL))
		if m.TruncateBefore > 0 {
			document = event.WithTruncateBefore(document, m.TruncateBefore)
		}
		_, err := s.opts.Store.WriteOwn(ctx, journal.Append(event.MetaStreamOf(Stream), s.info.MetaLast, journal.Proposed(event.TypeMetadata, document)))
		if err != nil && !errors.As(err, &conflict) {
			return fmt.Errorf("set the metadata of %s: %w", Stream, err)
		}
	}
	written, err := s.opts.Store.WriteOwn(ctx, journal.Append(Stream, s.version, journal.Proposed(TypeRecord, journal.Encode(st.next))))
	switch {
	case errors.As(err, &conflict):
		s.metrics.lost.Inc()
	case err != nil:
		return fmt.Errorf("append to %s: %w", Stream, err)
	default:
		s.written = written.Last
		if st.say != "" {
			s.logger.Log(st.level, st.say, st.about...)
		}
	}
	// Not to see it in time is not an error: this node lags, and looks again.
	_ = s.opts.Store.WaitStream(ctx, Stream, s.version)
	return nil
}

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
