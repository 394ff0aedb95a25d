package streams

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
)

// read reads one page and writes its events. There may be more at once when it says so.
func (t *tail) read(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.x.Node.ReadTimeout)
	defer cancel()
	from := t.Next
	look, err := t.look(ctx)
	if err != nil {
		return false, err
	}
	page, err := t.Read(ctx, &look)
	switch {
	case t.begun && (errors.Is(err, event.ErrNotReady) || isBuilding(err)):
		return false, nil // The node may be again.
	case errors.Is(err, event.ErrStreamDeleted) && t.begun:
		t.over("gone", "")
		return false, nil
	case errors.Is(err, event.ErrBadPosition):
		return false, invalidPosition(string(atom.AppendPosition(nil, from)))
	case err != nil:
		return false, err
	}
	if t.Deleted && !t.toldDeleted && !t.q.backward {
		t.say("deleted", "{}")
	}
	t.toldDeleted = t.Deleted
	for i := range page.Events {
		e := &page.Events[i]
		at := e.Number
		if t.q.all {
			at = e.Position
		}
		if !t.q.all || t.q.query != nil {
			t.scanBytes += int64(len(e.Event().Data))
		}
		if err := t.take(ctx, e, at); err != nil || t.isOver {
			return false, err
		}
	}
	switch {
	case t.q.query != nil && !t.q.backward:
		t.Seen = max(t.Seen, t.Next-1)
	case t.q.all && t.q.query == nil:
		t.scanBytes += max(t.Next-from, from-t.Next) - page.Spared
	}
	if t.q.backward && !page.More {
		t.over("end", "start")
	}
	return page.More && !t.isOver, nil
}

func isBuilding(err error) bool {
	_, is := errors.AsType[*event.IndexBuilding](err)
	return is
}

// look is what one page takes. Of a log whose links are not resolved the filter sees each record
// before it is read.
func (t *tail) look(ctx context.Context) (l catchup.Look, err error) {
	q := &t.q
	l = catchup.Look{Count: livePage, MaxPayload: t.payload(), IsSlow: q.isSlow()}
	if q.query != nil {
		l.Links, err = t.x.Caller.IndexRights(ctx)
		return l, err
	}
	if q.resolve {
		l.Links = &t.x.Caller
		return l, nil
	}
	l.Names = q.chosen
	l.Filter = func(stream, eventType string) (bool, error) {
		isWanted, err := q.wantsNames(stream, eventType)
		if err == nil && !isWanted {
			t.scanned++
		}
		return isWanted, err
	}
	return l, nil
}

// payload bounds what is read with a page.
func (t *tail) payload() int {
	if t.q.level < atom.Body && t.q.contains == nil && t.q.labels == nil {
		return 1
	}
	return livePayload
}

// take writes an event, unless a filter leaves it out, or the tail ends before it.
func (t *tail) take(ctx context.Context, e *event.Resolved, at int64) error {
	q := &t.q
	place := at
	if q.to.kind == placeTime {
		place = e.Time
	}
	beyond := !q.backward && place > q.to.number || q.backward && place < q.to.number
	if beyond && (q.to.kind == placeNumber || q.to.kind == placeTime) {
		t.over("end", "to")
		return nil
	}
	t.scanned++
	of := e.Event()
	isWanted, err := q.wantsNames(of.Stream, of.Type)
	if err != nil {
		return err
	}
	if isWanted {
		switch whole, err := t.whole(ctx, e); {
		case errors.Is(err, event.ErrEventNotFound): // A scavenge was here.
		case err != nil:
			return err
		case q.wantsContent(whole.Event()):
			if err := t.write(whole, at); err != nil {
				return err
			}
		}
	}
	if q.to.kind == placeNumber && at == q.to.number && !t.isOver {
		t.over("end", "to")
	}
	return nil
}

// whole returns an event with its payload, where that is looked at or shown.
func (t *tail) whole(ctx context.Context, e *event.Resolved) (*event.Resolved, error) {
	if !e.IsBare() || t.payload() == 1 {
		return e, nil
	}
	if err := t.claimAlone(e); err != nil {
		return nil, err
	}
	return e.Complete(func(r *event.Record) error { return t.room.Store.ReadPayload(ctx, r) })
}

// claimAlone claims the memory of an event that is read alone, until it is sent or the next one is
// read.
func (t *tail) claimAlone(e *event.Resolved) error {
	t.sentAlone()
	bytes := 2 * int64(e.PayloadBytes()) // It is written as well.
	if t.x.Claim.Grow(t.x.R.Context(), bytes) != nil {
		return errLiveGone // The client reconnects and resumes from here.
	}
	t.alone = bytes
	return nil
}
