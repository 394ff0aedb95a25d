package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

const (
	defaultCount = 20
	maxCount     = 4096
)

// segHead is the number of the newest event as paths have it.
const segHead = "head"

// fromHead is the number of a page that begins at the newest event.
const fromHead = event.Head

// eventNumber reads an event number.
func eventNumber(s string) (int64, error) {
	n, ok := parseNumber(s, math.MaxInt64)
	if !ok {
		return 0, badRequest("'" + s + "' is not valid event number")
	}
	return n, nil
}

// pageCount reads the size of a page.
func pageCount(s string) (int, error) {
	if s == "" {
		return defaultCount, nil
	}
	n, ok := parseNumber(s, math.MaxInt32)
	if !ok || n == 0 {
		return 0, badRequest("'" + s + "' is not valid count. Should be positive integer")
	}
	if n > maxCount {
		return 0, errPageTooBig
	}
	return int(n), nil
}

var errPageTooBig = badRequest("Read size too big, should be less than 4096 items")

// pageRequest is what a page of a stream was asked for with.
type pageRequest struct {
	event.StreamRead
	leader  bool
	poll    time.Duration
	changes bool // also when it is full and lies below the last event
}

// pageArguments reads the arguments of a page, in the order of the contract.
func pageArguments(x *exchange, stream string, backward bool) (p pageRequest, err error) {
	p.Stream, p.Backward, p.Room = stream, backward, &x.room
	switch {
	case backward && (x.route.from == "" || x.route.from == segHead):
		p.From = fromHead
	default:
		if p.From, err = eventNumber(x.route.from); err != nil {
			return p, err
		}
	}
	if p.Count, err = pageCount(x.route.count); err != nil {
		return p, err
	}
	if p.Links, err = linksOf(x, true); err != nil {
		return p, err
	}
	if p.leader, err = requireLeader(x.r.Header); err != nil {
		return p, err
	}
	if !backward {
		p.poll, err = longPoll(x.r.Header)
	}
	return p, err
}

func (s *streamHandlers) streamBackward(_ context.Context, x *exchange) error {
	return s.pages.serveBackward(x, x.route.stream, s.sendPage)
}

func (s *streamHandlers) streamForward(_ context.Context, x *exchange) error {
	return s.pages.serveForward(x, x.route.stream, s.sendPage)
}

func (s *streamHandlers) metaBackward(_ context.Context, x *exchange) error {
	if event.IsMetaStream(x.route.stream) {
		return errMetaOfMeta
	}
	return s.pages.serveBackward(x, event.MetaStreamOf(x.route.stream), s.sendPage)
}

func (s *streamHandlers) metaForward(_ context.Context, x *exchange) error {
	if event.IsMetaStream(x.route.stream) {
		return errMetaOfMeta
	}
	return s.pages.serveForward(x, event.MetaStreamOf(x.route.stream), s.sendPage)
}

// sendPage answers with a page, or with what can be done with the stream.
func (s *streamHandlers) sendPage(ctx context.Context, x *exchange, p *pageRequest) error {
	if x.media.form == formDescription {
		return s.describeStream(ctx, x, p.Stream)
	}
	return s.pages.sendFeed(ctx, x, p)
}

// pages answers with pages of streams.
type pages struct {
	store  pageStore
	waiter streamWaiter
}

// pageStore is what pages are read from.
type pageStore interface {
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
}

type streamWaiter interface {
	WaitStream(ctx context.Context, stream string, after int64) error
}

func (g *pages) serveBackward(x *exchange, stream string, send sendPage) error {
	p, err := pageArguments(x, stream, true)
	if err != nil {
		return err
	}
	ctx, err := x.readsFrom(p.leader)
	if err != nil {
		return err
	}
	return send(ctx, x, &p)
}

func (g *pages) serveForward(x *exchange, stream string, send sendPage) error {
	p, err := pageArguments(x, stream, false)
	if err != nil {
		return err
	}
	ctx, err := x.readsFrom(p.leader)
	if err != nil {
		return err
	}
	if x.media.form == formDescription {
		x.media = x.media.feedInstead()
	}
	if p.poll > 0 {
		if err := g.awaitStream(x, &p); err != nil {
			return err
		}
		ctx = x.reads() // The wait was not the request's fault.
	}
	return send(ctx, x, &p)
}

// feedInstead is the type of a feed where the description document does not exist.
func (t *mediaType) feedInstead() *mediaType {
	if t.kurrent {
		return kurrentAtomJSON
	}
	return typeAtomJSON
}

// awaitStream waits until an event arrives in a stream whose page begins above
// its last event, at most for the time the client gave.
func (g *pages) awaitStream(x *exchange, p *pageRequest) error {
	info, err := g.store.StreamInfo(x.r.Context(), p.Stream)
	if err != nil {
		return err
	}
	if info.HardDeleted || info.Exists() && p.From <= info.Last {
		return nil
	}
	return longWait(x, p.poll, func(ctx context.Context) error {
		return g.waiter.WaitStream(ctx, p.Stream, info.Last)
	})
}

// longWait runs a long poll. A poll that ends by time, or because the server stops, is not an
// error: the answer then has what there is, if the caller may still see it. The context of the
// request frees the waiter when the client goes away.
func longWait(x *exchange, d time.Duration, until func(context.Context) error) error {
	release, err := share(x, api.Poll)
	if err != nil {
		return err
	}
	defer release()
	lease := hold(x)
	ctx, cancel := context.WithTimeout(lease.Context(), d)
	defer cancel()
	stop := context.AfterFunc(x.node.draining, cancel)
	defer stop()
	err = until(ctx)
	if refused := judge(x); refused != nil {
		return refused
	}
	switch {
	case err == nil:
		return nil
	case x.r.Context().Err() != nil:
		return x.r.Context().Err()
	case ctx.Err() != nil || errors.Is(err, event.ErrClosed):
		return nil
	}
	return err
}

// sendPage answers with one page of a stream.
type sendPage func(ctx context.Context, x *exchange, p *pageRequest) error

// sendFeed answers with one page. Whether the client's copy is still good is known
// without reading an event.
func (g *pages) sendFeed(ctx context.Context, x *exchange, p *pageRequest) error {
	if match := x.r.Header[keyIfNoneMatch]; match != nil {
		info, err := g.store.StreamInfo(ctx, p.Stream)
		if err != nil {
			return err
		}
		if tag := x.matched(match, info.Last); tag != nil && info.Exists() {
			x.notModified(tag, &info.Metadata)
			return nil
		}
	}
	page, err := g.readStream(ctx, x, p)
	if err != nil {
		return err
	}
	pageFreshness(x, &page, p)
	ofCaller(x, page.Events...)
	doc := x.atom().Stream(&page, &p.StreamRead)
	return x.write(&doc)
}

// readStream reads a page of a stream.
func (g *pages) readStream(ctx context.Context, x *exchange, p *pageRequest) (page event.StreamPage, err error) {
	if p.MaxPayload, err = readingPage(ctx, x, p.Count); err != nil {
		return page, err
	}
	defer pageRead(x)
	return g.store.ReadStream(ctx, p.StreamRead)
}

// ok sends x.out as the negotiated type.
func (x *exchange) ok() {
	x.typed()
	x.send(http.StatusOK, x.out)
}

// typed sets the headers of a document of the negotiated type.
func (x *exchange) typed() {
	h := x.w.Header()
	h[keyContentType] = x.media.contentType
	if h[keyVary] == nil {
		h[keyVary] = varyAccept
	}
}
