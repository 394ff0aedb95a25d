package fsm

import (
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
)

// appendLate adds events to the metadata stream of a stream that has its tombstone. They are stored
// and say nothing. What the stream had before may be gone here and not elsewhere, so neither its
// last number nor its last event count: each event gets its position as number, and of the expected
// version only the ids are left, by which a write that is tried again is known.
func (d *Decider) appendLate(w *event.Write, m *facts) event.Decision {
	if v := w.ExpectedVersion; v < event.NoStream && v != event.AnyVersion && v != event.StreamExists {
		return event.Decision{Err: wrongLate(w)}
	}
	if len(w.Events) == 0 {
		return event.Decision{Written: event.Written{Last: event.NoStream, Idempotent: true, Position: -1}}
	}
	if done, err := d.writtenLate(w, m); done.Idempotent || err != nil {
		return event.Decision{Written: done, Err: err}
	}
	if full, err := d.begin(part{w.Stream, w.Events, m}); full || err != nil {
		return event.Decision{Full: full, Err: err}
	}
	if m.late == nil {
		m.late = make(map[event.ID]int64, len(w.Events))
	}
	first := d.first + int64(len(d.buf)-entryHead)
	for i := range w.Events {
		e := &w.Events[i]
		m.Last = d.first + int64(len(d.buf)-entryHead)
		m.late[e.ID] = m.Last
		d.buf = chunkfile.AppendRecord(d.buf, m.Last, w.Stream, m.Last, d.time, e.Flags&event.FlagJSON, e)
	}
	d.over.touch(d.number, m)
	return event.Decision{Written: event.Written{First: first, Last: m.Last, Position: m.Last}}
}

// writtenLate looks for the ids of a write. It was done before if the stream has all of them.
func (d *Decider) writtenLate(w *event.Write, m *facts) (done event.Written, err error) {
	for i := range w.Events {
		number, found := m.late[w.Events[i].ID]
		if done.Position = number; !found {
			if number, found, err = d.findID(w.Stream, m, w.Events[i].ID); err != nil {
				return event.Written{}, err
			}
			done.Position = -1
		}
		switch {
		case !found && i == 0:
			return event.Written{}, nil
		case !found:
			return event.Written{}, wrongLate(w)
		case i == 0:
			done.First = number
		}
		done.Last = number
	}
	done.Idempotent = true
	if done.Position < 0 {
		done.Position, err = d.positionOf(w.Stream, m, done.Last)
	}
	return done, err
}

// wrongLate is wrongVersion without a number that only some nodes know.
func wrongLate(w *event.Write) error {
	return &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: event.NoStream}
}
