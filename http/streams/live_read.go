package streams

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/request"
)

// read reads one page and writes its events. There may be more at once when it says so.
func (t *tail) read(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.x.Node.ReadTimeout)
	defer cancel()
	if t.q.all {
		more, err = t.readLog(ctx)
	} else {
		more, err = t.readStream(ctx)
	}
	if t.begun && errors.Is(err, event.ErrNotReady) {
		return false, nil // The node may be again.
	}
	return more && !t.isOver, err
}

// payload bounds what is read with a page.
func (t *tail) payload() int {
	if t.q.level < atom.Body && t.q.contains == nil {
		return 1
	}
	return livePayload
}

// links resolves links, if that is asked for.
func (t *tail) links() event.LinkReader {
	if t.q.resolve {
		return (*request.CallerLinks)(t.x)
	}
	return nil
}

func (t *tail) readStream(ctx context.Context) (more bool, err error) {
	page, err := t.room.Store.ReadStream(ctx, event.StreamRead{
		Stream: t.x.Route.Stream, From: t.next, Count: livePage, Backward: t.q.backward, Links: t.links(), MaxPayload: t.payload(),
	})
	switch {
	case errors.Is(err, event.ErrStreamNotFound):
		return false, t.missing(ctx)
	case errors.Is(err, event.ErrStreamDeleted) && t.begun:
		t.over("gone", "")
		return false, nil
	case err != nil:
		return false, err
	}
	t.deleted, t.last = false, page.Last
	for i := range page.Events {
		e := &page.Events[i]
		t.scanBytes += int64(len(e.Event().Data))
		if err := t.take(ctx, e, e.Number); err != nil || t.isOver {
			return false, err
		}
	}
	if t.next = page.Next; t.next < 0 {
		t.over("end", "start")
	}
	return t.q.backward || !page.End && t.next <= page.Last, nil
}

// missing is for a stream that is not there, or not any more.
func (t *tail) missing(ctx context.Context) error {
	info, err := t.room.Store.StreamInfo(ctx, t.x.Route.Stream)
	if err != nil {
		return err
	}
	if t.last = info.Last; t.q.backward {
		t.over("end", "start")
	} else if info.Metadata.SoftDeleted() && !t.deleted {
		t.deleted = true
		t.say("deleted", "{}")
	}
	return nil
}

func (t *tail) readLog(ctx context.Context) (more bool, err error) {
	q := &t.q
	r := event.AllRead{From: t.next, Count: livePage, Backward: q.backward, Links: t.links(), MaxScan: liveLook, MaxPayload: t.payload()}
	if q.isSlow() {
		r.MaxScan = liveSlowLook
	}
	r.Filter = func(stream, eventType string) (bool, error) {
		if q.resolve {
			return true, nil
		}
		isWanted, err := q.wantsNames(stream, eventType)
		if err == nil && !isWanted {
			t.scanned++
		}
		return isWanted, err
	}
	if t.next >= t.room.Store.LogEnd() && !q.backward {
		return false, nil
	}
	page, err := t.room.Store.ReadAll(ctx, r)
	switch {
	case errors.Is(err, event.ErrBadPosition):
		return false, invalidPosition(string(atom.AppendPosition(nil, t.next)))
	case err != nil:
		return false, err
	case page.Failed != nil:
		return false, page.Failed
	}
	for i := range page.Events {
		e := &page.Events[i]
		if e.Position > t.skip {
			if err := t.take(ctx, e, e.Position); err != nil || t.isOver {
				return false, err
			}
		}
	}
	t.scanBytes += max(page.Next-t.next, t.next-page.Next)
	t.next = page.Next
	if page.Last >= 0 {
		t.seen = page.Last
	}
	if q.backward && !page.More {
		t.over("end", "start")
	}
	return page.More, nil
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
		whole, err := t.whole(ctx, e)
		if err != nil {
			return err
		}
		if q.wantsContent(whole.Event()) {
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
	return e.Complete(func(r *event.Record) error {
		err := t.room.Store.ReadPayload(ctx, r)
		if errors.Is(err, event.ErrEventNotFound) { // A scavenge was here: it is shown without.
			r.Bare, err = false, nil
		}
		return err
	})
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
