package fsm

import "github.com/annalsdb/annals/event"

func wrongVersion(w *event.Write, f *facts) error {
	return &event.WrongExpectedVersion{Stream: w.Stream, Expected: w.ExpectedVersion, Current: f.Last}
}

// check compares an append with the expected version and with earlier writes. ok says that it is to
// be written; otherwise done says where it was written before, or err why it is refused.
func (d *Decider) check(w *event.Write, f *facts) (done event.Written, ok bool, err error) {
	switch expected := w.ExpectedVersion; {
	case expected == event.StreamExists:
		if err := holds(w, f); err != nil {
			return done, false, err
		}
		return d.checkIDs(w, f)
	case expected == event.AnyVersion:
		return d.checkIDs(w, f)
	case expected < event.NoStream || expected > f.Last:
		return done, false, wrongVersion(w, f)
	case expected == f.Last:
		return done, true, nil
	default:
		return d.checkBehind(w, f)
	}
}

// checkIDs is for writes without a definite version: they were written before
// if all their ids are in the stream.
func (d *Decider) checkIDs(w *event.Write, f *facts) (done event.Written, ok bool, err error) {
	if f.Last < 0 {
		return done, true, nil // Nothing was written to the stream yet.
	}
	for i := range w.Events {
		number, found, err := d.findID(w.Stream, f, w.Events[i].ID)
		if err != nil {
			return done, false, err
		}
		if !found {
			if i == 0 {
				return done, true, nil
			}
			return done, false, wrongVersion(w, f)
		}
		if i == 0 {
			done.First = number
		}
		done.Last = number
	}
	return done, false, nil
}

// checkBehind is for writes that expect an earlier version than the stream has:
// they were written before if their ids are those of the events behind it.
func (d *Decider) checkBehind(w *event.Write, f *facts) (done event.Written, ok bool, err error) {
	revives := w.ExpectedVersion == event.NoStream && f.Metadata.SoftDeleted()
	if len(w.Events) == 0 && !revives {
		return done, false, wrongVersion(w, f)
	}
	same, err := d.following(w, f)
	switch {
	case err != nil:
		return done, false, err
	case same == len(w.Events):
		return event.Written{First: w.ExpectedVersion + 1, Last: w.ExpectedVersion + int64(same)}, false, nil
	case same == 0 && revives:
		return done, true, nil
	}
	return done, false, wrongVersion(w, f)
}

// following counts the events, from the first on, that are those after the expected version.
func (d *Decider) following(w *event.Write, f *facts) (same int, err error) {
	for same < len(w.Events) {
		number := w.ExpectedVersion + 1 + int64(same)
		if number > f.Last {
			break
		}
		if ok, err := d.hasID(w.Stream, f, number, w.Events[same].ID); !ok || err != nil {
			return same, err
		}
		same++
	}
	return same, nil
}

// findID looks for an event id among what was decided and what is applied.
func (d *Decider) findID(stream string, f *facts, id event.ID) (int64, bool, error) {
	if number, ok := f.find(id); ok {
		return number, true, nil
	}
	return d.log.FindID(stream, id)
}

// hasID reports whether an event, decided or applied, has an id.
func (d *Decider) hasID(stream string, f *facts, number int64, id event.ID) (bool, error) {
	if e := f.pending(number); e != nil {
		return e.id == id, nil
	}
	return d.log.HasID(stream, number, id)
}

// positionOf returns the position of an event, decided or applied, -1 when it was removed.
func (d *Decider) positionOf(stream string, f *facts, number int64) (int64, error) {
	if e := f.pending(number); e != nil {
		return e.position, nil
	}
	return d.log.PositionOf(stream, number)
}

// holds holds the expected version of a write against what there is.
func holds(w *event.Write, f *facts) error {
	switch actual, holds := f.meets(w.ExpectedVersion, true); {
	case w.ExpectedVersion < event.StreamExists: // Only checks of several streams have these.
	case holds:
		return nil
	case actual == event.SoftDeleted:
		return event.ErrStreamDeleted
	}
	return wrongVersion(w, f)
}
