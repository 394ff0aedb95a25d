package request

import (
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

// Part takes what there is of the page if it is much, or if there is no room for more.
func (p *Parts) Part(b []byte) ([]byte, error) {
	if len(b) < atom.MaxText && p.Page.holds(b) {
		return b, nil
	}
	return p.send(b)
}

// ReadPayload reads the payload that a page left out.
func (p *Parts) ReadPayload(r *event.Record) error {
	p.Page.dropBare()
	if err := p.Caller.Check(); err != nil {
		return err
	}
	// The time for a request is one for reading a page of usual size. Whether the
	// client is still there, and may see it, is what counts here.
	ctx := p.R.Context()
	bytes := 2 * int64(r.PayloadBytes()) // It is written as well.
	if err := p.Page.takeBare(ctx, bytes); err != nil {
		return err
	}
	return p.Node.Store.ReadPayload(ctx, r)
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
