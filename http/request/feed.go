package request

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/xmljson"
)

// errPageSent ends the writing of a page whose rest is not needed.
var errPageSent = errors.New("the page was sent")

// Write answers with a feed.
func (x *Request) Write(doc *atom.Feed) error {
	level := x.EmbedOf()
	most, err := args.MaxData(x.R.URL.RawQuery)
	if err != nil {
		return err
	}
	x.writer.MaxData = most
	switch form := x.Media.Form; {
	case form == media.FormHTML:
		x.Out = AppendPage(x, x.Out[:0], doc.Stream(), -1)
	case form.IsJSON(): // The tag is that of one type, also if another is answered.
		x.Out, err = doc.AppendJSON(x.Out[:0], level, media.AtomJSON.ETag)
	default:
		x.Out, err = doc.AppendXML(x.Out[:0], level)
	}
	if err == nil && !x.isPartSent {
		x.SendBody()
		return nil
	}
	return (*Parts)(x).End(err)
}

// Parts is a request whose answer may go out in parts.
type Parts Request

// Send sends what there is of the answer, if the caller may still see it. Its error ends the
// answer: End takes it.
func (p *Parts) Send() error {
	x := (*Request)(p)
	if err := x.Caller.Check(); err != nil {
		return err
	}
	if !x.isPartSent {
		x.isPartSent = true
		x.Typed()
		x.Origin.Vary(x.W.Header())
		x.W.WriteHeader(http.StatusOK)
		if x.R.Method == http.MethodHead {
			return errPageSent
		}
	}
	if _, err := x.W.Write(x.Out); err != nil {
		x.NotTaken(err)
		return errPageSent
	}
	x.Out = x.Out[:0]
	return nil
}

// End sends the rest, unless there was an error.
func (p *Parts) End(err error) error {
	x := (*Request)(p)
	if err == nil {
		err = p.Send()
	}
	switch {
	case errors.Is(err, errPageSent):
		return nil
	case err != nil && x.isPartSent:
		// The status was sent already: only a broken connection tells the client that
		// the page is not whole.
		x.Node.Logger.Warn("only part of a page could be sent", "path", x.R.URL.Path, logkey.Error, err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// Atom returns the writer of feeds and entries.
func (x *Request) Atom() *atom.Writer {
	x.writer.Source, x.writer.Origin, x.writer.MaxData = (*Parts)(x), x.Origin.URI(), -1
	return &x.writer
}

// send is Send for the writer of a page.
func (p *Parts) send(b []byte) ([]byte, error) {
	p.Out = b
	err := p.Send()
	return p.Out, err
}

// EmbedOf reads how much of an event an entry shows.
func (x *Request) EmbedOf() atom.Level {
	if x.R.URL.RawQuery == "" {
		return atom.None
	}
	return atom.ParseLevel(args.Value(x.R.URL.RawQuery, "embed"))
}

// AppendPage appends a page that leads a browser on to the web interface: to an
// event of a stream, or to the stream itself when number is below 0. It has no
// script, and its policy would run none.
func AppendPage(x *Request, b []byte, stream string, number int64) []byte {
	page := everyPage
	if x.Node.Insecure {
		page = insecurePage
	}
	http1.SetFields(x.R.Context(), x.W.Header(), page)
	b = append(b, `<!DOCTYPE html><html><head><meta charset="utf-8"><title>`...)
	b = xmljson.AppendText(b, stream)
	b = append(b, `</title><meta http-equiv="refresh" content="0; url=`...)
	b = append(b, x.Origin.Prefix()...)
	b = append(b, `/web/index.html#/streams/`...)
	b = atom.AppendEscaped(b, stream)
	if number >= 0 {
		b = append(b, '/')
		b = strconv.AppendInt(b, number, 10)
	}
	return append(b, `"></head><body></body></html>`...)
}
