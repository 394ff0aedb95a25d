package fsm

import (
	"errors"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
)

// many is an AppendMany while it is decided. Its memory is used again.
type many struct {
	w       *event.Write
	facts   map[string]*facts // of each stream looked at, once
	places  map[string]int    // of written streams in written
	written []writtenStream   // as Many.Streams
	parts   []part            // runs of events of one stream, then the metadata that revive streams
}

// writtenStream is one of the streams that an AppendMany writes to.
type writtenStream struct {
	*facts
	check    int // its place among the checks, or after them where it has none
	expected int64
	events   []event.Proposed // what it gets
	span     event.Span
	repeat   repetition
}

// repetition says whether events were written before.
type repetition uint8

const (
	isNew repetition = iota
	isDone
	isBroken // a part of them was
)

// appendMany decides a write to several streams: first whether it is there already, then whether
// all checks hold. It is written whole or not at all.
func (d *Decider) appendMany(w *event.Write) event.Decision {
	if err := wellFormed(w); err != nil {
		return event.Decision{Err: err}
	}
	m := &d.many
	defer m.forget()
	if err := d.gather(w); err != nil {
		return event.Decision{Err: err}
	}
	done, broken := 0, false
	for i := range m.written {
		s := &m.written[i]
		if err := d.look(s); err != nil {
			return event.Decision{Err: err}
		}
		switch s.repeat {
		case isDone:
			done++
		case isBroken:
			broken = true
		}
	}
	if done == len(m.written) {
		d.metrics.repeat(w)
		return d.repeated()
	}
	v := &event.Violations{Position: d.end() - 1}
	if broken || done > 0 {
		// A part of what was asked for is there: the rest would be another write.
		for i := range m.written {
			if s := &m.written[i]; s.HardDeleted {
				v.Checks = append(v.Checks, s.violation(event.Tombstoned))
			} else if s.repeat != isNew {
				v.Checks = append(v.Checks, s.violation(s.Last))
			}
		}
	} else if written, err := d.conditions(v); err != nil || written != nil {
		if written == nil {
			return event.Decision{Err: err}
		}
		return event.Decision{Written: *written}
	} else if err := d.judge(v); err != nil {
		return event.Decision{Err: err}
	}
	if len(v.Checks)+len(v.Conditions) > 0 {
		slices.SortFunc(v.Checks, func(a, b event.Violation) int { return a.Index - b.Index })
		return event.Decision{Err: v}
	}
	position, full, err := d.write()
	if full || err != nil {
		return event.Decision{Full: full, Err: err}
	}
	return event.Decision{Written: event.Written{Position: position, Streams: m.spans()}}
}

// wellFormed refuses what no state of any stream could make right.
func wellFormed(w *event.Write) error {
	if w.Many == nil || len(w.Events) == 0 || len(w.Many.Of) != len(w.Events) {
		return errors.New("an append to several streams without events, or without a stream for each")
	}
	for _, i := range w.Many.Of {
		if i < 0 || int(i) >= len(w.Many.Streams) {
			return errors.New("an append to several streams names one that it does not have")
		}
	}
	for _, s := range w.Many.Streams {
		if err := allowed(event.Append, s); err != nil {
			return err
		}
	}
	return nil
}

// gather takes the facts of all streams of a write, and the runs of its events.
func (d *Decider) gather(w *event.Write) (err error) {
	m := &d.many
	m.w = w
	unchecked := len(w.Many.Checks)
	checks := make(map[string]int, unchecked)
	for i := range w.Many.Checks {
		checks[w.Many.Checks[i].Stream] = i
	}
	m.written = slices.Grow(m.written, len(w.Many.Streams))
	for _, name := range w.Many.Streams {
		s := writtenStream{expected: event.AnyVersion}
		if s.facts, err = d.manyFacts(name); err != nil {
			return err
		}
		i, ok := checks[name]
		if s.check = i; ok {
			s.expected = w.Many.Checks[i].Expected
		} else {
			s.check = unchecked
			unchecked++
		}
		m.places[name] = len(m.written)
		m.written = append(m.written, s)
	}
	for i, of := range w.Many.Of {
		s := &m.written[of]
		if i > 0 && w.Many.Of[i-1] == of {
			last := &m.parts[len(m.parts)-1]
			last.events = w.Events[i-len(last.events) : i+1]
		} else {
			m.parts = append(m.parts, part{s.name, w.Events[i : i+1], s.facts})
		}
		// Those of one run are not copied.
		if run := m.parts[len(m.parts)-1].events; len(s.events) == len(run)-1 {
			s.events = run[:len(run):len(run)]
		} else {
			s.events = append(s.events, w.Events[i])
		}
	}
	return nil
}

func (m *many) forget() {
	clear(m.facts)
	clear(m.places)
	clear(m.written)
	clear(m.parts)
	m.w, m.written, m.parts = nil, m.written[:0], m.parts[:0]
}

func (d *Decider) manyFacts(stream string) (f *facts, err error) {
	if f = d.many.facts[stream]; f == nil {
		if f, err = d.facts(stream); err == nil {
			d.many.facts[stream] = f
		}
	}
	return f, err
}

// look finds out whether the events for a stream were written before. Of a stream with a tombstone
// nothing is known: what it had may be gone here and not elsewhere.
func (d *Decider) look(s *writtenStream) error {
	if s.HardDeleted || s.Last < 0 || s.expected >= 0 && s.expected >= s.Last {
		return nil
	}
	w := &event.Write{Stream: s.name, ExpectedVersion: s.expected, Events: s.events}
	if s.expected >= event.NoStream {
		same, err := d.following(w, s.facts)
		switch {
		case err != nil:
			return err
		case same == len(s.events):
			s.span, s.repeat = event.Span{First: s.expected + 1, Last: s.expected + int64(same)}, isDone
			return nil
		case same > 0:
			s.repeat = isBroken
			return nil
		case s.expected >= 0:
			return nil
		}
		// The stream may have been one whose earlier events were hidden.
	}
	done, fresh, err := d.checkIDs(w, s.facts)
	if _, conflict := errors.AsType[*event.WrongExpectedVersion](err); conflict {
		s.repeat, err = isBroken, nil
	} else if err == nil && !fresh {
		s.span, s.repeat = event.Span{First: done.First, Last: done.Last}, isDone
	}
	return err
}

// repeated answers a write that was done before.
func (d *Decider) repeated() event.Decision {
	m := &d.many
	last := &m.written[m.w.Many.Of[len(m.w.Many.Of)-1]]
	position, err := d.positionOf(last.name, last.facts, last.span.Last)
	if err != nil {
		return event.Decision{Err: err}
	}
	return event.Decision{Written: event.Written{Idempotent: true, Position: position, Streams: m.spans()}}
}

func (m *many) spans() []event.Span {
	spans := make([]event.Span, len(m.written))
	for i := range m.written {
		spans[i] = m.written[i].span
	}
	return spans
}

// violation says what a written stream is like, which keeps the write from being done.
func (s *writtenStream) violation(actual int64) event.Violation {
	return event.Violation{Index: s.check, Stream: s.name, Expected: s.expected, Actual: actual}
}

// judge adds all checks that do not hold, and all written streams that have a tombstone.
func (d *Decider) judge(v *event.Violations) error {
	m := &d.many
	for i := range m.w.Many.Checks {
		c := &m.w.Many.Checks[i]
		f, err := d.manyFacts(c.Stream)
		if err != nil {
			return err
		}
		_, written := m.places[c.Stream]
		if actual, holds := f.meets(c.Expected, written); !holds {
			violation := event.Violation{Index: i, Stream: c.Stream, Expected: c.Expected, Actual: actual}
			if actual == event.SoftDeleted {
				violation.Last = f.Last
			}
			v.Checks = append(v.Checks, violation)
		}
	}
	for i := range m.written {
		if s := &m.written[i]; s.check >= len(m.w.Many.Checks) && s.HardDeleted {
			v.Checks = append(v.Checks, s.violation(event.Tombstoned))
		}
	}
	return nil
}

// meets holds the facts of a stream against what a check expects, and says what they are.
func (f *facts) meets(expected int64, written bool) (actual int64, holds bool) {
	soft := f.Metadata.SoftDeleted()
	switch {
	case f.HardDeleted:
		return event.Tombstoned, !written && (expected == event.NoStream || expected == event.Tombstoned)
	case expected == event.NoStream:
		return f.Last, f.Last < 0 || soft
	case expected == event.StreamExists && soft:
		return event.SoftDeleted, false
	case expected == event.StreamExists:
		return f.Last, f.Last >= 0 || f.MetaLast >= 0
	case expected == event.SoftDeleted:
		return f.Last, soft
	default:
		return f.Last, expected == event.AnyVersion || expected >= 0 && expected == f.Last
	}
}

// write adds the events to the entry, and after them the metadata that show streams again. It
// returns the position of the last event.
func (d *Decider) write() (position int64, full bool, err error) {
	m := &d.many
	runs := len(m.parts)
	points := false
	for i := range m.parts {
		if p := &m.parts[i]; p.stream == event.ScavengePointsStream && slices.ContainsFunc(p.events, isScavengePoint) {
			p.events, points = d.withClock(p.events), true
		}
	}
	if err := d.addRevivals(); err != nil {
		return 0, false, err
	}
	if full, err := d.begin(m.parts...); full || err != nil {
		return 0, full, err
	}
	for _, p := range m.parts[:runs] {
		position = d.add(p.stream, p.of.Last+1, 0, p.events, p.of)
		p.of.Last += int64(len(p.events))
		d.over.touch(d.number, p.of)
		if original, ok := described(p.stream); ok {
			f := m.facts[original]
			f.setMetadata(p.events, position)
			d.over.touch(d.number, f)
		}
	}
	for i := range m.written {
		s := &m.written[i]
		s.span.Last = s.Last
		s.span.First = s.Last - int64(len(s.events)) + 1
	}
	for _, p := range m.parts[runs:] {
		d.addMetadata(p)
	}
	d.completes = points
	return position, false, nil
}

// described returns the stream that events of a metadata stream have an effect on. Nothing that is
// said about a metadata stream has any.
func described(meta string) (stream string, ok bool) {
	stream, ok = strings.CutPrefix(meta, event.MetaStreamOf(""))
	return stream, ok && !event.IsMetaStream(stream)
}

// addRevivals adds the metadata that show the new events, and only them, of soft-deleted streams
// that are written to or that get other metadata.
func (d *Decider) addRevivals() error {
	m := &d.many
	for i := range m.written {
		f := m.written[i].facts
		original, posted := described(f.name)
		if posted {
			if _, both := m.places[original]; both {
				continue // Its own turn does it.
			}
			var err error
			if f, err = d.manyFacts(original); err != nil {
				return err
			}
		} else if event.IsMetaStream(f.name) {
			continue
		}
		if !f.Metadata.SoftDeleted() {
			continue
		}
		meta := event.MetaStreamOf(f.name)
		if !posted {
			i, posted = m.places[meta]
		}
		var document []byte
		if posted {
			events := m.written[i].events
			document = events[len(events)-1].Data
			if parsed := event.ParseMetadata(document); parsed.SoftDeleted() {
				continue
			}
		} else if data, err := d.metadata(f.name, f); err != nil {
			return err
		} else {
			document = data
		}
		m.parts = append(m.parts, part{meta, revivalOf(document, f.Last+1), f})
	}
	return nil
}
