package output

import (
	"errors"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/position"
)

// recovery has the events of a stream that have yet to be emitted again. The events are read as
// they are needed.
type recovery struct {
	ahead []stored
	next  int64 // where the next read begins
	end   int64 // number of the last event
	// isHidden says that events before the first may be hidden, as long as none was met.
	isHidden bool
}

// stored is an event that has yet to be emitted again.
type stored struct {
	number int64
	id     event.ID
	name   string // its type
	at     position.Position
}

// findRecovery looks for the first event of a stream after the position where comparing begins;
// last is after it.
func (o *Output) findRecovery(s *stream, last *event.Record) (*recovery, error) {
	r := &recovery{next: last.Number, end: last.Number, isHidden: true}
	for from := last.Number - 1; from >= 0; from -= pageEvents {
		page, err := o.page(event.StreamRead{Stream: s.name, From: from, Count: pageEvents, Backward: true, MaxPayload: pageBytes})
		if err != nil {
			return nil, err
		}
		for i := range page.Events {
			e := &page.Events[i].Record
			at, ok, err := o.ours(e)
			if err != nil {
				return nil, err
			}
			if !ok || !isBehind(at, *s.from) {
				r.isHidden = false
				return r, nil
			}
			r.next = e.Number
		}
		if page.End {
			break
		}
	}
	r.isHidden = r.next > 0
	return r, nil
}

// ours returns the position of an event that is ours.
func (o *Output) ours(e *event.Record) (at position.Position, ok bool, err error) {
	if isThere, err := o.complete(o.ctx, e); !isThere || err != nil {
		return at, false, err
	}
	at, v, err := position.ParseStored(e.Metadata)
	return at, err == nil && o.opts.Version.IsOurs(v), nil
}

func (o *Output) page(r event.StreamRead) (page event.StreamPage, err error) {
	err = o.tries(o.ctx, func() (err error) {
		page, err = o.store.ReadStream(o.ctx, r)
		return err
	})
	switch {
	case errors.Is(err, event.ErrStreamNotFound): // Deleted this moment.
		return event.StreamPage{End: true}, nil
	case errors.Is(err, event.ErrStreamDeleted):
		return page, deletedFault(r.Stream)
	case err != nil:
		return page, storageError("read", r.Stream, err)
	}
	return page, nil
}

// peek returns the next event that has yet to be emitted again, nil after the last.
func (o *Output) peek(s *stream) (*stored, error) {
	r := s.recovery
	for len(r.ahead) == 0 && r.next <= r.end {
		page, err := o.page(event.StreamRead{Stream: s.name, From: r.next, Count: pageEvents, MaxPayload: pageBytes})
		if err != nil {
			return nil, err
		}
		for i := range page.Events {
			e := &page.Events[i].Record
			if e.Number > r.end {
				break
			}
			at, ok, err := o.ours(e)
			if err != nil {
				return nil, err
			}
			if ok {
				r.ahead = append(r.ahead, stored{number: e.Number, id: e.ID, name: e.Type, at: at})
			}
		}
		if r.next += pageEvents; page.End {
			r.next = r.end + 1
		}
	}
	if len(r.ahead) == 0 {
		return nil, nil
	}
	return &r.ahead[0], nil
}

// recover compares an emission with the stored event. It reports the number under which it is
// stored, or that it is to be written.
func (o *Output) recover(s *stream, it *item) (number int64, isStored bool, err error) {
	for {
		old, err := o.peek(s)
		if err != nil {
			return 0, false, err
		}
		if old == nil {
			s.recovery = nil
			return 0, false, nil
		}
		c, ok := compare(old.at, *it.at)
		if s.recovery.isHidden && ok && (c > 0 || c == 0 && old.id != it.event.ID) {
			return gone, true, nil
		}
		if ok && c == 0 && old.name == it.event.Type {
			number = old.number
			if s.recovery.drop(); s.recovery.isOver() {
				s.recovery = nil
			}
			return number, true, nil
		}
		if old.name == event.TypeLink && ok && c < 0 {
			// Its target may have been removed since: its source is not read any more.
			isGone, err := o.isLinkGone(s.name, old.number)
			if err != nil {
				return 0, false, err
			}
			if isGone {
				s.recovery.drop()
				continue
			}
		}
		if to := it.to; to != nil {
			isGone, err := o.isGone(to.Stream, to.Number)
			if err != nil || isGone {
				return gone, isGone, err
			}
		}
		return 0, false, differsFault(s.name, old.name, old.at.String(), it.event.Type, it.at.String())
	}
}

// drop takes out the first.
func (r *recovery) drop() {
	r.isHidden = false
	if r.ahead = r.ahead[1:]; len(r.ahead) == 0 {
		r.ahead = nil
	}
}

// isOver reports whether everything was emitted again.
func (r *recovery) isOver() bool { return len(r.ahead) == 0 && r.next > r.end }

// isLinkGone reports whether the target of a stored link is gone.
func (o *Output) isLinkGone(stream string, number int64) (bool, error) {
	link, err := o.read(o.ctx, stream, number)
	if err != nil || link == nil {
		return link == nil, err
	}
	n, target, ok := event.ParseLink(link.Data)
	if !ok {
		return true, nil
	}
	return o.isGone(target, n)
}

func (o *Output) isGone(stream string, number int64) (bool, error) {
	e, err := o.read(o.ctx, stream, number)
	return e == nil, err
}
