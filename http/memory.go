package httpapi

import (
	"context"
	"io"
	"net/http"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
)

// Bodies and pages of an exchange are claimed from the memory that all requests share. A body is
// claimed as it comes, and waits for its turn. A page never waits while it can do with little:
// where there is no room for it as a whole, it is read without payloads and goes out in pieces.
const (
	firstBody    = api.SmallRequest // is allocated before a byte of a body has come
	bodyGrowth   = 4
	slowGrowth   = 2 // of a body whose length is not known
	eventPayload = 64 << 10
	sparePayload = 16 << 10 // bytes of data and metadata of a page that there is no room for
	// of a parsed body, in addition to its text, which is mostly markup at worst
	xmlWeight = 20
	mostXML   = 40 << 20 // is what it can come to: xmljson bounds the elements
)

// pageClaim is the part of its exchange's claim that a page holds.
type pageClaim struct {
	payload, text, bare int64
}

// readingPage claims room for a page of so many events and returns how many bytes of
// payloads may be read with it.
func readingPage(ctx context.Context, x *exchange, count int) (maxPayload int, err error) {
	p := &x.page
	x.claim.Shrink(p.payload) // Of the page before, of a poll that looks again.
	p.payload = min(maxPagePayload, int64(count)*eventPayload)
	if x.claim.Try(p.payload) {
		return int(p.payload), nil
	}
	p.payload = 0
	if err := x.claim.Grow(ctx, sparePayload); err != nil {
		return 0, err
	}
	p.payload = sparePayload
	x.room = event.Room{} // The one that was there may be large.
	return sparePayload, nil
}

// pageRead claims the memory that a page took, and no more.
func pageRead(x *exchange) {
	rest := x.page.payload - api.RoomBytes(&x.room)
	x.claim.Shrink(rest)
	x.claim.Add(-rest)
	x.page.payload -= rest
}

// Part takes what there is of the page if it is much, or if there is no room for more.
func (p *pageSource) Part(b []byte) ([]byte, error) {
	claimed := &p.page.text
	if len(b) < atom.MaxText {
		more := 2*int64(len(b)) - *claimed
		if more <= 0 {
			return b, nil
		}
		if p.claim.Try(more) {
			*claimed += more
			return b, nil
		}
	}
	return p.send(b)
}

// ReadPayload reads the payload that a page left out.
func (p *pageSource) ReadPayload(r *event.Record) error {
	p.claim.Shrink(p.page.bare)
	p.page.bare = 0
	if err := check((*exchange)(p)); err != nil {
		return err
	}
	// The time for a request is one for reading a page of usual size. Whether the
	// client is still there, and may see it, is what counts here.
	ctx := p.r.Context()
	bytes := 2 * int64(r.PayloadBytes()) // It is written as well.
	if err := p.claim.Grow(ctx, bytes); err != nil {
		return err
	}
	p.page.bare = bytes
	return p.node.store.ReadPayload(ctx, r)
}

// readEvent reads one event. The memory of a large one is claimed before it is read.
func (s *streamHandlers) readEvent(ctx context.Context, x *exchange, stream string, number int64, links event.LinkReader) (*event.Resolved, error) {
	e, err := s.store.ReadEventUpTo(ctx, stream, number, eventPayload, links)
	if err != nil {
		return nil, err
	}
	if e.IsBare() {
		// It is written as well.
		if err := x.claim.Grow(ctx, 2*int64(e.PayloadBytes())); err != nil {
			return nil, err
		}
	}
	return e.Complete(func(r *event.Record) error { return s.store.ReadPayload(ctx, r) })
}

// claimAnswer claims an answer that nothing was claimed for as it was made.
func claimAnswer(x *exchange, body []byte) error {
	return x.claim.Grow(x.r.Context(), int64(len(body))-max(x.claim.Held(), api.SmallRequest))
}

// growBody returns the body so far with room for more.
func growBody(x *exchange, b []byte, limit int64) ([]byte, error) {
	size, n := int64(cap(b)), x.r.ContentLength
	switch {
	case size == 0:
		size = firstBody
	case n >= 0:
		size *= bodyGrowth
	default:
		size *= slowGrowth
	}
	if n >= 0 {
		limit = n
	}
	size = min(size, limit)
	if err := x.claim.Grow(x.r.Context(), size-int64(cap(b))); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, size), b...), nil
}

// takeBody reads the body of the request, which the write keeps. No more than
// the limit is ever read or allocated, and no more than has come by much. A body
// beyond the limit and one that is not whole are two of the errors; event.ErrNoRoom is another.
func takeBody(x *exchange, limit int64, tooLarge, notWhole error) ([]byte, error) {
	if x.r.ContentLength > limit {
		return nil, tooLarge
	}
	if x.r.ContentLength == 0 {
		return nil, nil
	}
	x.bodyState = bodyBegun
	b, err := growBody(x, nil, limit+1)
	if err != nil {
		return nil, err
	}
	for {
		got, err := x.r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+got]
		switch {
		case int64(len(b)) > limit:
			return nil, tooLarge
		case err == io.EOF && x.r.ContentLength < 0, int64(len(b)) == x.r.ContentLength:
			x.bodyState = bodyDone
			return b, nil
		case err != nil:
			return nil, notWhole
		}
		if len(b) == cap(b) {
			if b, err = growBody(x, b, limit+1); err != nil {
				return nil, err
			}
		}
	}
}

// flushLarge sends a large answer before its exchange gives back what it claimed.
func flushLarge(x *exchange, body []byte) error {
	if len(body) < api.SmallRequest {
		return nil
	}
	switch w := x.w.(type) {
	case interface{ FlushError() error }: // As connections have it.
		return w.FlushError()
	case interface{ Unwrap() http.ResponseWriter }:
		return http.NewResponseController(x.w).Flush()
	}
	return nil
}
