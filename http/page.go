package httpapi

import (
	"errors"
	"net/http"

	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/internal/logkey"
)

// A page of 4,096 events may hold many gigabytes, but it is never held whole: reads
// leave out the data of events beyond the first maxPagePayload bytes, which are then
// read one event at a time as they are written, and text beyond atom.MaxText is sent
// before the rest is written. Pages below both, as nearly all are, go out in one Write
// with their length.
const maxPagePayload = 8 << 20

// errPageSent ends the writing of a page whose rest is not needed.
var errPageSent = errors.New("the page was sent")

// write answers with a feed.
func (x *exchange) write(doc *atom.Feed) error {
	var err error
	switch form := x.media.form; {
	case form == formHTML:
		x.out = appendPage(x, x.out[:0], doc.Stream(), -1)
	case form.isJSON(): // The tag is that of one type, also if another is answered.
		x.out, err = doc.AppendJSON(x.out[:0], embedOf(x), typeAtomJSON.etag)
	default:
		x.out, err = doc.AppendXML(x.out[:0], embedOf(x))
	}
	switch {
	case errors.Is(err, errPageSent):
		return nil
	case err != nil && x.isPartSent:
		// The status was sent already: only a broken connection tells the client that
		// the page is not whole.
		x.node.log.Warn("only part of a page could be sent", "path", x.r.URL.Path, logkey.Error, err)
		panic(http.ErrAbortHandler)
	case err != nil:
		return err
	case x.isPartSent:
		_, err = x.w.Write(x.out)
		x.notTaken(err)
		return nil
	}
	x.ok()
	return nil
}

// atom returns the writer of feeds and entries.
func (x *exchange) atom() *atom.Writer {
	x.writer.Source, x.writer.Origin = (*pageSource)(x), x.origin()
	return &x.writer
}

// pageSource is an exchange as the writer of its page sees it.
type pageSource exchange

// send sends what there is of the page.
func (p *pageSource) send(b []byte) ([]byte, error) {
	x := (*exchange)(p)
	if !x.isPartSent {
		x.isPartSent = true
		x.typed()
		x.varies()
		x.w.WriteHeader(http.StatusOK)
		if x.r.Method == http.MethodHead {
			return b, errPageSent
		}
	}
	if _, err := x.w.Write(b); err != nil {
		x.notTaken(err)
		return b, errPageSent
	}
	return b[:0], check(x)
}

// embedOf reads how much of an event an entry shows.
func embedOf(x *exchange) atom.Level {
	if x.r.URL.RawQuery == "" {
		return atom.None
	}
	return atom.ParseLevel(queryValue(x.r.URL.RawQuery, "embed"))
}
