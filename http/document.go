package httpapi

import (
	"strconv"

	"github.com/annalsdb/annals/event"
)

// appendPage appends a page that sends a browser to the web interface: to an
// event of a stream, or to the stream itself when number is below 0.
func (x *exchange) appendPage(b []byte, stream string, number int64) []byte {
	b = append(b, `<!DOCTYPE html><html><head><meta charset="utf-8"><title>`...)
	x.name(stream, true)
	b = append(b, x.names.text...)
	b = append(b, `</title><script>window.location.replace("`...)
	b = append(b, x.pathPrefix()...)
	b = append(b, `/web/index.html#/streams/`...)
	b = append(b, x.names.uri...)
	if number >= 0 {
		b = append(b, '/')
		b = strconv.AppendInt(b, number, 10)
	}
	return append(b, `");</script></head><body></body></html>`...)
}

// appendHTML appends the page for a feed.
func (d *feedDocument) appendHTML(b []byte) []byte {
	stream := d.stream
	if d.isAll {
		stream = event.AllStream
	}
	return d.x.appendPage(b, stream, -1)
}

// describe answers with the description document: what can be done with a
// stream, which need not exist.
func (x *exchange) describe(stream string) error {
	x.name(stream, false)
	b := append(x.out[:0], `{"title":"Description document for '`...)
	b = append(b, x.names.text...)
	b = append(b, `'","description":"The description document will be presented when no accept header is present or it was requested",`...)
	b = append(b, `"_links":{"self":{"href":"`...)
	from := len(b)
	b = appendStreamURI(b, x.pathPrefix(), x.names.uri)
	to := len(b)
	b = append(b, `","supportedContentTypes":["application/vnd.eventstore.streamdesc+json"]},"stream":{"href":"`...)
	b = append(b, b[from:to]...)
	b = append(b, `","supportedContentTypes":["application/atom+xml","application/vnd.eventstore.atom+json"]}`...)
	var groups []string
	if x.s.opts.Groups != nil {
		groups = x.s.opts.Groups(stream)
	}
	for i, group := range groups {
		if i == 0 {
			b = append(b, `,"streamSubscription":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(b, `{"href":"`...)
		b = append(b, x.pathPrefix()...)
		b = append(b, `/subscriptions/`...)
		b = append(b, x.names.uri...)
		b = append(b, '/')
		b = appendEscaped(b, group)
		b = append(b, `","supportedContentTypes":["application/vnd.eventstore.competingatom+xml","application/vnd.eventstore.competingatom+json"]}`...)
	}
	if len(groups) > 0 {
		b = append(b, ']')
	}
	x.out = append(b, `}}`...)
	x.w.Header()[keyCacheControl] = cacheNever
	x.ok()
	return nil
}
