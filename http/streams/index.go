package streams

import (
	"context"
	"math"
	"net/http"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/page"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// An index stream is read like any other stream, but nothing lies in it: it shows what a query
// finds in the log. The number of an event in it is the event's position.

// indexQuery returns the query of an index stream.
func indexQuery(stream string) (*event.Query, error) {
	query, ok := label.IndexQuery(stream)
	if !ok {
		return nil, problem.NoIndex
	}
	return query, nil
}

// FinderStore is the database as queries look into it. See api.Store.
type FinderStore interface {
	catchup.Waiter
	ReadAll(ctx context.Context, r event.AllRead) (event.AllPage, error)
	ReadPayload(ctx context.Context, r *event.Record) error
	LogEnd() int64
	PositionAt(ctx context.Context, time int64) (int64, error)
}

// Finder answers with what queries find: those that requests have, and those of index streams.
type Finder struct{ Store FinderStore }

// indexPage answers with a page of an index.
func (f *Finder) indexPage(x *request.Request, backward bool, describe page.Send) error {
	p, err := page.Arguments(x, x.Route.Stream, backward)
	if err != nil {
		return err
	}
	ctx, err := leader.Reads(x, p.Leader)
	if err != nil {
		return err
	}
	r := event.AllRead{From: p.From, Count: p.Count, Backward: backward, Room: p.Room}
	if r.Query, err = indexQuery(p.Stream); err != nil {
		return err
	}
	if x.Media.Form == media.FormDescription {
		if backward {
			return describe(ctx, x, &p)
		}
		x.Media = x.Media.FeedInstead()
	}
	if backward {
		r.From = below(p.From)
	}
	match := x.R.Header[caching.KeyIfNoneMatch]
	if end := f.Store.LogEnd(); match != nil && (p.Poll == 0 || p.From < end) && x.Copies().HoldsOwn(match, end) {
		x.Send(http.StatusNotModified, nil)
		return nil
	}
	found, err := f.readIndex(ctx, x, &r)
	if err != nil {
		return err
	}
	if len(found.Events) == 0 && p.Poll > 0 {
		if found, err = f.awaitIndex(x, &p, r, found); err != nil {
			return err
		}
		if match != nil && len(found.Events) == 0 && x.Copies().HoldsOwn(match, found.LogEnd) {
			x.Send(http.StatusNotModified, nil)
			return nil
		}
	}
	x.Copies().OpenOwn(found.LogEnd)
	doc := x.Atom().OfIndex(&found, &p.StreamRead)
	return x.Write(&doc)
}

// below returns where reading backward begins at a position, its event included. The head is the
// end of the log.
func below(position int64) int64 {
	if position == event.Head || position == math.MaxInt64 {
		return event.End
	}
	return position + 1
}

// readFound reads a page of what a query finds and the caller may see.
func (f *Finder) readFound(ctx context.Context, x *request.Request, r event.AllRead) (found event.AllPage, err error) {
	if end := f.Store.LogEnd(); r.From >= end && !r.Backward {
		return event.AllPage{From: r.From, Next: r.From, LogEnd: end}, nil
	}
	if r.Links, err = x.Caller.IndexRights(ctx); err != nil {
		return found, err
	}
	if r.MaxPayload, err = x.Page.Reading(ctx, r.Count); err != nil {
		return found, err
	}
	defer x.Page.Read()
	r.MaxScan = maxFilteredScan
	return f.Store.ReadAll(ctx, r)
}

// readIndex is readFound for a page that is at its end unless More says that there is another
// event, or may be.
func (f *Finder) readIndex(ctx context.Context, x *request.Request, r *event.AllRead) (found event.AllPage, err error) {
	more := *r
	more.Count++
	found, err = f.readFound(ctx, x, more)
	if err != nil || len(found.Events) < more.Count {
		return found, err
	}
	found.Events = found.Events[:r.Count]
	if found.Next = found.Events[r.Count-1].Position; !r.Backward {
		found.Next++
	}
	return found, nil
}

// awaitIndex waits for the first event of a page, at most for the time the client gave.
func (f *Finder) awaitIndex(x *request.Request, p *page.Request, r event.AllRead, found event.AllPage) (event.AllPage, error) {
	err := page.Await(x, p.Poll, func(ctx context.Context) (err error) {
		for len(found.Events) == 0 && err == nil {
			r.From = found.Next
			if err = f.Store.WaitQuery(ctx, r.Query, r.From); err != nil {
				return err
			}
			if err = x.Caller.Judge(); err != nil {
				return err
			}
			found, err = f.readIndex(ctx, x, &r)
		}
		return err
	})
	return found, err
}

// indexEvent answers with the event of an index at a position, or with the newest.
func (f *Finder) indexEvent(ctx context.Context, x *request.Request, position int64) error {
	query, err := indexQuery(x.Route.Stream)
	if err != nil {
		return err
	}
	r := event.AllRead{Query: query, From: event.End, Backward: true, MaxScan: maxFilteredScan, MaxPayload: request.EventPayload}
	if position != event.Head {
		r.From, r.Backward, r.MaxScan = position, false, 1
	}
	e, end, err := f.first(ctx, x, r)
	switch {
	case err != nil:
		return err
	case e == nil || position != event.Head && e.Position != position:
		return event.ErrEventNotFound
	}
	if e, err = complete(ctx, x, e); err != nil {
		return err
	}
	x.Copies().OpenOwn(end)
	x.Atom().Index = x.Route.Stream
	writeEvent(x, e)
	return nil
}

// first returns the first event that a query finds, nil when there is none, and the end of the log
// then. With a MaxScan of 1 only the first record is looked at that it could be.
func (f *Finder) first(ctx context.Context, x *request.Request, r event.AllRead) (*event.Resolved, int64, error) {
	var err error
	if r.Links, err = x.Caller.IndexRights(ctx); err != nil {
		return nil, 0, err
	}
	r.Count = 1
	for {
		page, err := f.Store.ReadAll(ctx, r)
		switch {
		case err != nil:
			return nil, 0, err
		case len(page.Events) > 0:
			return &page.Events[0], page.LogEnd, nil
		case !page.More || r.MaxScan == 1:
			return nil, page.LogEnd, nil
		}
		r.From = page.Next
	}
}

// indexSince returns the first event of an index that is not before a time, nil when there is none,
// with the number that it has there.
func (f *Finder) indexSince(ctx context.Context, x *request.Request, when int64) (*event.Record, error) {
	query, err := indexQuery(x.Route.Stream)
	if err != nil {
		return nil, err
	}
	from, err := f.Store.PositionAt(ctx, when)
	if err != nil {
		return nil, err
	}
	e, _, err := f.first(ctx, x, event.AllRead{Query: query, From: from, MaxScan: maxFilteredScan, MaxPayload: 1})
	if e == nil || err != nil {
		return nil, err
	}
	r := e.Record
	r.Number = r.Position
	return &r, nil
}
