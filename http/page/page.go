// Package page answers with pages of a stream, and waits for those that are to have events.
package page

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// pageFreshness sets the caching headers of a page: closed pages are full, and lie
// below the last event.
func pageFreshness(x *request.Request, page *event.StreamPage, p *Request) {
	isClosed := p.From != fromHead && p.From <= page.Last
	if !p.Backward {
		isClosed = p.From <= page.Last+1-int64(p.Count)
	}
	if isClosed && !p.Changes {
		x.Copies().Last(caching.Forever)
		return
	}
	x.Copies().Open(page.Last, &page.Metadata)
}

const (
	DefaultCount = 20
	MaxCount     = 4096
)

// SegHead is the number of the newest event as paths have it.
const SegHead = "head"

// fromHead is the number of a page that begins at the newest event.
const fromHead = event.Head

// Number reads an event number.
func Number(s string) (int64, error) {
	n, ok := args.Number(s, math.MaxInt64)
	if !ok {
		return 0, problem.Bad("'" + s + "' is not valid event number")
	}
	return n, nil
}

// pageCount reads the size of a page.
func pageCount(s string) (int, error) {
	if s == "" {
		return DefaultCount, nil
	}
	n, ok := args.Number(s, math.MaxInt32)
	if !ok || n == 0 {
		return 0, problem.Bad("'" + s + "' is not valid count. Should be positive integer")
	}
	if n > MaxCount {
		return 0, ErrPageTooBig
	}
	return int(n), nil
}

// ErrPageTooBig is the answer to a request for more than MaxCount events.
var ErrPageTooBig = problem.Bad("Read size too big, should be less than 4096 items")

// Request is what a page of a stream was asked for with.
type Request struct {
	event.StreamRead
	Leader  bool
	Poll    time.Duration
	Changes bool // also when it is full and lies below the last event
}

// Arguments reads the arguments of a page, in the order of the contract.
func Arguments(x *request.Request, stream string, backward bool) (p Request, err error) {
	p.Stream, p.Backward, p.Room = stream, backward, &x.Page.Room
	switch {
	case backward && (x.Route.From == "" || x.Route.From == SegHead):
		p.From = fromHead
	default:
		if p.From, err = Number(x.Route.From); err != nil {
			return p, err
		}
	}
	if p.Count, err = pageCount(x.Route.Count); err != nil {
		return p, err
	}
	if p.Links, err = x.Caller.LinksOf(true); err != nil {
		return p, err
	}
	p.Leader, p.Poll, err = args.Reading(x.R.Header, backward)
	return p, err
}

// Serve has a page sent, after the wait that the request may ask for. The description of a stream
// stands at its head alone.
func Serve(x *request.Request, stream string, backward bool, send Send) error {
	p, err := Arguments(x, stream, backward)
	if err != nil {
		return err
	}
	ctx, err := leader.Reads(x, p.Leader)
	if err != nil {
		return err
	}
	if !backward && x.Media.Form == media.FormDescription {
		x.Media = x.Media.FeedInstead()
	}
	if p.Poll > 0 {
		if err := awaitStream(x, &p); err != nil {
			return err
		}
		ctx = x.Reads() // The wait was not the request's fault.
	}
	return send(ctx, x, &p)
}

// awaitStream waits until an event arrives in a stream whose page begins above
// its last event, at most for the time the client gave.
func awaitStream(x *request.Request, p *Request) error {
	info, err := x.Node.Store.StreamInfo(x.R.Context(), p.Stream)
	if err != nil {
		return err
	}
	if info.HardDeleted || info.Exists() && p.From <= info.Last {
		return nil
	}
	return Await(x, p.Poll, func(ctx context.Context) error {
		return x.Node.Store.WaitStream(ctx, p.Stream, info.Last)
	})
}

// Send answers with one page of a stream.
type Send func(ctx context.Context, x *request.Request, p *Request) error

// Feed answers with one page. Whether the client's copy is still good is known
// without reading an event.
func Feed(ctx context.Context, x *request.Request, p *Request) error {
	if match := x.R.Header[caching.KeyIfNoneMatch]; match != nil {
		info, err := x.Node.Store.StreamInfo(ctx, p.Stream)
		if err != nil {
			return err
		}
		if info.Exists() && x.Copies().Holds(match, info.Last, &info.Metadata) {
			x.Send(http.StatusNotModified, nil)
			return nil
		}
	}
	page, err := Read(ctx, x, p)
	if err != nil {
		return err
	}
	pageFreshness(x, &page, p)
	x.Copies().OfCaller(page.Events...)
	doc := x.Atom().Stream(&page, &p.StreamRead)
	return x.Write(&doc)
}

// Read reads a page of a stream.
func Read(ctx context.Context, x *request.Request, p *Request) (page event.StreamPage, err error) {
	if p.MaxPayload, err = x.Page.Reading(ctx, p.Count); err != nil {
		return page, err
	}
	defer x.Page.Read()
	return x.Node.Store.ReadStream(ctx, p.StreamRead)
}

// Await runs a long poll. A poll that ends by time, or because the server stops, is not an
// error: the answer then has what there is, if the caller may still see it. The context of the
// request frees the waiter when the client goes away.
func Await(x *request.Request, d time.Duration, until func(context.Context) error) error {
	release, err := x.Caller.Share(api.Poll)
	if err != nil {
		return err
	}
	defer release()
	lease := x.Caller.Hold()
	ctx, cancel := context.WithTimeout(lease.Context(), d)
	defer cancel()
	stop := context.AfterFunc(x.Node.Draining, cancel)
	defer stop()
	err = until(ctx)
	if refused := x.Caller.Judge(); refused != nil {
		return refused
	}
	switch {
	case err == nil:
		return nil
	case x.R.Context().Err() != nil:
		return x.R.Context().Err()
	case ctx.Err() != nil || errors.Is(err, event.ErrClosed):
		return nil
	}
	return err
}
