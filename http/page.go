package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/annalsdb/annals/event"
)

// A page of 4,096 events may hold many gigabytes, but it is never held whole:
// reads leave out the data of events beyond the first maxPagePayload bytes, which
// are then read one event at a time as they are written, and text beyond
// maxPageText is sent before the rest is written. Pages below both, as nearly all
// are, go out in one Write with their length.
const (
	maxPagePayload = 8 << 20
	maxPageText    = 8 << 20
)

// errPageSent ends the writing of a page whose rest nobody wants.
var errPageSent = errors.New("the page was sent")

// write answers with a feed.
func (x *exchange) write(doc *feedDocument) error {
	var err error
	switch form := x.media.form; {
	case form == formHTML:
		x.out = doc.appendHTML(x.out[:0])
	case form.isJSON():
		x.out, err = doc.appendJSON(x.out[:0])
	default:
		x.out, err = doc.appendXML(x.out[:0])
	}
	switch {
	case errors.Is(err, errPageSent):
		return nil
	case err != nil && doc.isPartSent:
		// The status was sent already: only a broken connection tells the client that
		// the page is not whole.
		x.s.log.Warn("a page could not be sent whole", "path", x.r.URL.Path, "error", err)
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case doc.isPartSent:
		_, err = x.w.Write(x.out)
		x.notTaken(err)
		return nil
	}
	x.ok()
	return nil
}

// sendPart sends what there is of the page when that is much, and returns a buffer
// for the rest.
func (d *feedDocument) sendPart(b []byte) ([]byte, error) {
	if len(b) < maxPageText {
		return b, nil
	}
	x := d.x
	if !d.isPartSent {
		d.isPartSent = true
		x.typed()
		x.w.WriteHeader(http.StatusOK)
		if x.r.Method == http.MethodHead {
			return b, errPageSent
		}
	}
	if _, err := x.w.Write(b); err != nil {
		x.notTaken(err)
		return b, errPageSent
	}
	return b[:0], nil
}

// whole returns an event of the page with its payload, where it was left out and
// the entry shows it. The page keeps the bare one, so that the payload goes when
// the entry was written.
func (d *feedDocument) whole(e *event.Resolved) (*event.Resolved, error) {
	isBare := e.Bare || e.Target != nil && e.Target.Bare
	if !isBare || d.level < embedBody && d.level != embedContent && e.Type != event.TypeLink {
		return e, nil
	}
	full := *e
	err := d.payload(&full.Record)
	if e.Target != nil && err == nil {
		target := *e.Target
		full.Target = &target
		err = d.payload(full.Target)
	}
	switch {
	case err == nil:
		return &full, nil
	case d.isGroup && errors.Is(err, event.ErrEventNotFound):
		// The messages are handed out already, and it may have been read long ago: it is
		// what a link to it would be now.
		of := e.Event()
		return &event.Resolved{Record: e.Record, Link: event.LinkDead, TargetStream: of.Stream, TargetNumber: of.Number}, nil
	case errors.Is(err, event.ErrEventNotFound):
		return nil, fmt.Errorf("%w: event %d of stream %q was removed while its page was read", event.ErrNotReady, e.Number, e.Stream)
	}
	return nil, err
}

func (d *feedDocument) payload(r *event.Record) error {
	if !r.Bare {
		return nil
	}
	// The time for a request is one for reading a page of usual size. Whether the
	// client is still there is what counts here.
	return d.x.s.store.ReadPayload(d.x.r.Context(), r)
}
