package fsm_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// model is what the contract says of streams, as simply as it can be said. It
// keeps everything, and knows nothing of entries.
type model struct {
	streams map[string]modelStream
	records []modelRecord // of all streams, in the order written
	places  map[place]int64
}

// place names an event, to tell where writes are said to have put it.
type place struct {
	stream string
	number int64
}

type modelStream struct {
	events []modelRecord
	late   []modelRecord // of a metadata stream, after the tombstone
	hard   bool
}

type modelRecord struct {
	stream string
	number int64
	id     event.ID // zero: given by the database
	data   string
}

func newModel() *model { return &model{streams: map[string]modelStream{}, places: map[place]int64{}} }

// clone returns a copy; slices are shared, but none is ever changed in place.
func (m *model) clone() *model {
	return &model{streams: maps.Clone(m.streams), records: slices.Clip(m.records), places: maps.Clone(m.places)}
}

func (m *model) last(stream string) int64 { return int64(len(m.streams[stream].events)) - 1 }

func (m *model) hard(stream string) bool {
	for strings.HasPrefix(stream, "$$") {
		stream = stream[2:]
	}
	return m.streams[stream].hard
}

func (m *model) document(stream string) string {
	events := m.streams["$$"+stream].events
	if len(events) == 0 {
		return ""
	}
	return events[len(events)-1].data
}

func (m *model) soft(stream string) bool {
	if strings.HasPrefix(stream, "$$") {
		return false
	}
	metadata := event.ParseMetadata([]byte(m.document(stream)))
	return metadata.SoftDeleted()
}

func (m *model) add(stream string, id event.ID, data string) {
	s := m.streams[stream]
	r := modelRecord{stream: stream, number: int64(len(s.events)), id: id, data: data}
	s.events = append(slices.Clip(s.events), r)
	m.streams[stream] = s
	m.records = append(slices.Clip(m.records), r)
}

// placed notes where a write that was done says that its last event is. All must say the same of
// one event.
func (m *model) placed(w *event.Write, done event.Written) error {
	if w.Kind == event.Append && len(w.Events) == 0 {
		if done.Position != -1 {
			return fmt.Errorf("nothing was to be written, and is said to be at %d", done.Position)
		}
		return nil
	}
	at := place{w.Stream, done.Last}
	if w.Kind == event.SoftDelete {
		at = place{"$$" + w.Stream, m.last("$$" + w.Stream)}
	}
	if said, ok := m.places[at]; ok && said != done.Position {
		return fmt.Errorf("event %d of %s is at %d, before it was at %d", at.number, at.stream, done.Position, said)
	}
	m.places[at] = done.Position
	return nil
}

// write does a write, or refuses it. Where late metadata were written is taken from the answer.
func (m *model) write(w *event.Write, got event.Written) outcome {
	last, meta, soft := m.last(w.Stream), m.last("$$"+w.Stream), m.soft(w.Stream)
	if strings.HasPrefix(w.Stream, "$$") {
		meta = -1
	}
	if m.hard(w.Stream) {
		if w.Late && strings.HasPrefix(w.Stream, "$$") {
			return m.appendLate(w, got.First)
		}
		return gone()
	}
	if w.Kind == event.Append {
		return m.appendTo(w, last, meta, soft)
	}
	holds := w.ExpectedVersion == last
	switch w.ExpectedVersion {
	case event.AnyVersion:
		holds = true
	case event.NoStream:
		holds = last == -1 || soft
	case event.StreamExists:
		if soft {
			return gone()
		}
		holds = last >= 0 || meta >= 0
	}
	if !holds || w.Kind == event.SoftDelete && last < 0 && meta < 0 {
		return conflict(last)
	}
	if w.Kind == event.HardDelete {
		s := m.streams[w.Stream]
		s.hard = true
		m.streams[w.Stream] = s
		m.records = append(slices.Clip(m.records), modelRecord{stream: w.Stream, number: event.TombstoneNumber})
		return wrote(event.TombstoneNumber, event.TombstoneNumber)
	}
	if soft {
		return before(last, last)
	}
	m.add("$$"+w.Stream, event.ID{}, softDeleted)
	return wrote(last, last)
}

// appendLate writes to the metadata stream of a stream that is gone: an event has its position as
// number.
func (m *model) appendLate(w *event.Write, position int64) outcome {
	if w.ExpectedVersion == -3 || w.ExpectedVersion < -4 {
		return conflict(-1)
	}
	if len(w.Events) == 0 {
		return before(0, -1)
	}
	s := m.streams[w.Stream]
	numbers := map[event.ID]int64{}
	for _, r := range slices.Concat(s.events, s.late) {
		numbers[r.id] = r.number
	}
	var found []int64
	for _, e := range w.Events {
		n, ok := numbers[e.ID]
		if !ok {
			break
		}
		found = append(found, n)
	}
	switch len(found) {
	case 0:
	case len(w.Events):
		return before(found[0], found[len(found)-1])
	default:
		return conflict(-1)
	}
	first, last := position, int64(0)
	for i := range w.Events {
		e := &w.Events[i]
		r := modelRecord{stream: w.Stream, number: position, id: e.ID, data: string(e.Data)}
		s.late = append(slices.Clip(s.late), r)
		m.records = append(slices.Clip(m.records), r)
		last, position = position, position+int64(chunkfile.RecordSize(w.Stream, e))
	}
	m.streams[w.Stream] = s
	return wrote(first, last)
}

func (m *model) appendTo(w *event.Write, last, meta int64, soft bool) outcome {
	events := m.streams[w.Stream].events
	switch v := w.ExpectedVersion; {
	case v == event.StreamExists && soft:
		return gone()
	case v == event.StreamExists && last < 0 && meta < 0:
		return conflict(last)
	case v == event.AnyVersion || v == event.StreamExists:
		var found []int64
		for _, e := range w.Events {
			n := int64(-1)
			for _, r := range events {
				if r.id == e.ID {
					n = r.number
				}
			}
			if n < 0 {
				break
			}
			found = append(found, n)
		}
		if len(found) == len(w.Events) && len(found) > 0 {
			return before(found[0], found[len(found)-1])
		}
		if len(found) > 0 {
			return conflict(last)
		}
	case v < -1 || v > last:
		return conflict(last)
	case v < last:
		same := 0
		for same < len(w.Events) && v+1+int64(same) <= last && events[v+1+int64(same)].id == w.Events[same].ID {
			same++
		}
		if same == len(w.Events) && same > 0 {
			return before(v+1, v+int64(same))
		}
		if same > 0 || v >= 0 || !soft {
			return conflict(last)
		}
	}
	if len(w.Events) == 0 {
		return before(last+1, last)
	}
	wasSoft := false
	original, isMeta := strings.CutPrefix(w.Stream, "$$")
	if isMeta {
		wasSoft = m.soft(original)
	}
	old := m.document(w.Stream)
	for _, e := range w.Events {
		m.add(w.Stream, e.ID, string(e.Data))
	}
	switch {
	case soft:
		m.add("$$"+w.Stream, event.ID{}, string(event.WithTruncateBefore([]byte(old), last+1)))
	case wasSoft && !m.soft(original):
		posted := w.Events[len(w.Events)-1].Data
		m.add(w.Stream, event.ID{}, string(event.WithTruncateBefore(posted, m.last(original)+1)))
	}
	return wrote(last+1, last+int64(len(w.Events)))
}

// writeMany does a write to several streams, or returns the checks that do not hold.
func (m *model) writeMany(w *event.Write) (done []event.Span, repeated bool, violations []event.Violation) {
	expected, index, unchecked := map[string]int64{}, map[string]int{}, len(w.Many.Checks)
	for i, c := range w.Many.Checks {
		expected[c.Stream], index[c.Stream] = c.Expected, i
	}
	var before []event.Violation
	for i, s := range w.Many.Streams {
		if _, ok := index[s]; !ok {
			expected[s], index[s] = event.AnyVersion, unchecked
			unchecked++
		}
		span, state := event.Span{}, ""
		if !m.hard(s) {
			span, state = m.before(s, expected[s], m.eventsOf(w, i))
		}
		done = append(done, span)
		if repeated = state == "all" && (i == 0 || repeated); state != "" {
			before = append(before, event.Violation{Index: index[s], Stream: s, Expected: expected[s], Actual: m.last(s)})
		}
	}
	if repeated {
		return done, true, nil
	}
	gone := func(s string, before bool) {
		if _, checked := expected[s]; m.hard(s) && checked && (before || index[s] >= len(w.Many.Checks)) {
			violations = append(violations, event.Violation{Index: index[s], Stream: s, Expected: expected[s], Actual: event.Tombstoned})
		}
	}
	if violations = before; before == nil {
		for i, c := range w.Many.Checks {
			if actual, holds := m.meets(c, slices.Contains(w.Many.Streams, c.Stream)); !holds {
				violation := event.Violation{Index: i, Stream: c.Stream, Expected: c.Expected, Actual: actual}
				if actual == event.SoftDeleted {
					violation.Last = m.last(c.Stream)
				}
				violations = append(violations, violation)
			}
		}
	}
	for _, s := range w.Many.Streams {
		gone(s, before != nil)
	}
	if violations != nil {
		slices.SortFunc(violations, func(a, b event.Violation) int { return a.Index - b.Index })
		return nil, false, violations
	}
	soft, document, first := map[string]bool{}, map[string]string{}, map[string]int64{}
	for i, s := range w.Many.Streams {
		original := strings.TrimPrefix(s, "$$")
		soft[original], document[original], first[original] = m.soft(original), m.document(original), m.last(original)+1
		done[i] = event.Span{First: m.last(s) + 1, Last: m.last(s) + int64(len(m.eventsOf(w, i)))}
	}
	for i, e := range w.Events {
		m.add(w.Many.Streams[w.Many.Of[i]], e.ID, string(e.Data))
	}
	for _, s := range w.Many.Streams {
		original := strings.TrimPrefix(s, "$$")
		if slices.Contains(w.Many.Streams, "$$"+original) {
			document[original] = m.document(original)
			soft[original] = soft[original] && !m.soft(original)
		}
		if soft[original] {
			m.add("$$"+original, event.ID{}, string(event.WithTruncateBefore([]byte(document[original]), first[original])))
		}
		delete(soft, original)
	}
	return done, false, nil
}

func (m *model) eventsOf(w *event.Write, stream int) (list []event.Proposed) {
	for i, of := range w.Many.Of {
		if int(of) == stream {
			list = append(list, w.Events[i])
		}
	}
	return list
}

// before says whether "all" events or a "part" of them were written before.
func (m *model) before(stream string, expected int64, events []event.Proposed) (event.Span, string) {
	has := m.streams[stream].events
	at := func(id event.ID) int64 {
		for i := len(has) - 1; i >= 0; i-- {
			if has[i].id == id {
				return int64(i)
			}
		}
		return -1
	}
	if last := m.last(stream); expected >= -1 && expected < last {
		same := 0
		for same < len(events) && expected+1+int64(same) <= last && has[expected+1+int64(same)].id == events[same].ID {
			same++
		}
		if same == len(events) {
			return event.Span{First: expected + 1, Last: expected + int64(same)}, "all"
		}
		if same > 0 {
			return event.Span{}, "part"
		}
	}
	if expected >= 0 || at(events[0].ID) < 0 {
		return event.Span{}, ""
	}
	for _, e := range events {
		if at(e.ID) < 0 {
			return event.Span{}, "part"
		}
	}
	return event.Span{First: at(events[0].ID), Last: at(events[len(events)-1].ID)}, "all"
}

// meets is the table of what a check finds.
func (m *model) meets(c event.Check, written bool) (actual int64, holds bool) {
	last, meta := m.last(c.Stream), m.last("$$"+c.Stream)
	if strings.HasPrefix(c.Stream, "$$") {
		meta = -1
	}
	state := "never"
	switch {
	case m.hard(c.Stream):
		state, last = "gone", event.Tombstoned
	case m.soft(c.Stream):
		state = "soft"
	case last >= 0:
		state = "events"
	case meta >= 0:
		state = "metadata"
	}
	holding := map[int64]string{-1: "never metadata soft gone", -4: "metadata events", -5: "soft", -6: "gone"}[c.Expected]
	switch {
	case state == "gone" && written:
		return last, false
	case c.Expected >= 0:
		return last, c.Expected == last
	case c.Expected == event.StreamExists && state == "soft":
		last = event.SoftDeleted
	}
	return last, slices.Contains(strings.Fields(holding), state)
}

// verify compares a log with the model: every record once and in order, no gap
// in any stream, and times that never fall.
func (m *model) verify(n *node) error {
	records := n.all()
	if len(records) != len(m.records) {
		return fmt.Errorf("%d records, want %d", len(records), len(m.records))
	}
	time := int64(0)
	next := map[string]int64{}
	for i, r := range records {
		want := m.records[i]
		got := modelRecord{stream: r.Stream, number: r.Number, id: r.ID, data: string(r.Data)}
		if want.id.IsZero() {
			if r.ID.IsZero() {
				return fmt.Errorf("record %d: no id", i)
			}
			got.id = event.ID{}
		}
		if got != want {
			return fmt.Errorf("record %d: %+v, want %+v", i, got, want)
		}
		if r.Time < time {
			return fmt.Errorf("record %d: time fell from %d to %d", i, time, r.Time)
		}
		time = r.Time
		if said, ok := m.places[place{r.Stream, r.Number}]; ok && said != r.Position {
			return fmt.Errorf("record %d: at %d, and was said to be at %d", i, r.Position, said)
		}
		if late := len(m.streams[r.Stream].late) > 0 && next[r.Stream] == int64(len(m.streams[r.Stream].events)); late {
			if r.Number != r.Position {
				return fmt.Errorf("record %d: number %d of %s at %d, after the tombstone", i, r.Number, r.Stream, r.Position)
			}
		} else if r.Number != event.TombstoneNumber {
			if r.Number != next[r.Stream] {
				return fmt.Errorf("record %d: number %d of %s, want %d", i, r.Number, r.Stream, next[r.Stream])
			}
			next[r.Stream]++
		}
	}
	for stream := range m.streams {
		info, err := n.log.Reads.StreamInfo(stream)
		if err != nil {
			return err
		}
		last, meta := m.last(stream), m.last("$$"+stream)
		if late := m.streams[stream].late; len(late) > 0 {
			last = late[len(late)-1].number
		}
		if strings.HasPrefix(stream, "$$") {
			meta = -1
		}
		if info.Last != last || info.MetaLast != meta || info.HardDeleted != m.hard(stream) || info.Metadata.SoftDeleted() != m.soft(stream) {
			return fmt.Errorf("%s: %+v, want last %d, of metadata %d, hard %t, soft %t", stream, info, last, meta, m.hard(stream), m.soft(stream))
		}
	}
	return nil
}
