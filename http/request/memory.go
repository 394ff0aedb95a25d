package request

import (
	"context"
	"io"
	"net/http"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
)

// Bodies and pages of a request are claimed from the memory that all requests share. A body is
// claimed as it comes, and waits for its turn. A page never waits while it can do with little:
// where there is no room for it as a whole, it is read without payloads and goes out in pieces.
const (
	firstBody    = api.SmallRequest // is allocated before a byte of a body has come
	bodyGrowth   = 4
	slowGrowth   = 2 // of a body whose length is not known
	EventPayload = 64 << 10
	sparePayload = 16 << 10 // bytes of data and metadata of a page that there is no room for
	// of a parsed body, in addition to its text, which is mostly markup at worst
	XmlWeight = 20
	MostXML   = 40 << 20 // is what it can come to: xmljson bounds the elements
)

// pageClaim is the part of its request's claim that a page holds.
type pageClaim struct {
	payload, text, bare int64
}

// ReadingPage claims room for a page of so many events and returns how many bytes of
// payloads may be read with it.
func (x *Request) ReadingPage(ctx context.Context, count int) (maxPayload int, err error) {
	p := &x.page
	x.Claim.Shrink(p.payload) // Of the page before, of a poll that looks again.
	p.payload = min(maxPagePayload, int64(count)*EventPayload)
	if x.Claim.Try(p.payload) {
		return int(p.payload), nil
	}
	p.payload = 0
	if err := x.Claim.Grow(ctx, sparePayload); err != nil {
		return 0, err
	}
	p.payload = sparePayload
	x.Room = event.Room{} // The one that was there may be large.
	return sparePayload, nil
}

// PageRead claims the memory that a page took, and no more.
func (x *Request) PageRead() {
	rest := x.page.payload - api.RoomBytes(&x.Room)
	x.Claim.Shrink(rest)
	x.Claim.Add(-rest)
	x.page.payload -= rest
}

// Part takes what there is of the page if it is much, or if there is no room for more.
func (p *Parts) Part(b []byte) ([]byte, error) {
	claimed := &p.page.text
	if len(b) < atom.MaxText {
		more := 2*int64(len(b)) - *claimed
		if more <= 0 {
			return b, nil
		}
		if p.Claim.Try(more) {
			*claimed += more
			return b, nil
		}
	}
	return p.send(b)
}

// ReadPayload reads the payload that a page left out.
func (p *Parts) ReadPayload(r *event.Record) error {
	p.Claim.Shrink(p.page.bare)
	p.page.bare = 0
	if err := (*Request)(p).Check(); err != nil {
		return err
	}
	// The time for a request is one for reading a page of usual size. Whether the
	// client is still there, and may see it, is what counts here.
	ctx := p.R.Context()
	bytes := 2 * int64(r.PayloadBytes()) // It is written as well.
	if err := p.Claim.Grow(ctx, bytes); err != nil {
		return err
	}
	p.page.bare = bytes
	return p.Node.Store.ReadPayload(ctx, r)
}

// growBody returns the body so far with room for more.
func (x *Request) growBody(b []byte, limit int64) ([]byte, error) {
	size, n := int64(cap(b)), x.R.ContentLength
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
	if err := x.Claim.Grow(x.R.Context(), size-int64(cap(b))); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, size), b...), nil
}

// takeBody reads the body of the request, which the write keeps. No more than
// the limit is ever read or allocated, and no more than has come by much. A body
// beyond the limit and one that is not whole are two of the errors; event.ErrNoRoom is another.
func (x *Request) takeBody(limit int64, tooLarge, notWhole error) ([]byte, error) {
	if x.R.ContentLength > limit {
		return nil, tooLarge
	}
	if x.R.ContentLength == 0 {
		return nil, nil
	}
	x.BodyState = BodyBegun
	b, err := x.growBody(nil, limit+1)
	if err != nil {
		return nil, err
	}
	for {
		got, err := x.R.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+got]
		switch {
		case int64(len(b)) > limit:
			return nil, tooLarge
		case err == io.EOF && x.R.ContentLength < 0, int64(len(b)) == x.R.ContentLength:
			x.BodyState = BodyDone
			return b, nil
		case err != nil:
			return nil, notWhole
		}
		if len(b) == cap(b) {
			if b, err = x.growBody(b, limit+1); err != nil {
				return nil, err
			}
		}
	}
}

// flush sends what was written.
func flush(to http.ResponseWriter) error {
	switch w := to.(type) {
	case interface{ FlushError() error }: // As connections have it.
		return w.FlushError()
	case interface{ Unwrap() http.ResponseWriter }:
		return http.NewResponseController(to).Flush()
	}
	return nil
}

// Wrapped finds the writer of a type among those that a response goes through.
func Wrapped[W any](w http.ResponseWriter) (found W, ok bool) {
	for {
		if found, ok = w.(W); ok {
			return found, true
		}
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return found, false
		}
		w = outer.Unwrap()
	}
}

// NoteWrite tells the log of requests how much a write to several streams writes.
func (x *Request) NoteWrite(streams, events int) {
	if line, ok := Wrapped[interface{ NoteWrite(streams, events int) }](x.W); ok {
		line.NoteWrite(streams, events)
	}
}
