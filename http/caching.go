package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/annalsdb/annals/event"
)

// Values of Cache-Control, assigned as they are and never changed.
var (
	cacheNever   = []string{"max-age=0, no-cache, must-revalidate"} // open: may change at any moment
	cacheForever = []string{"max-age=31536000, private"}            // closed: cannot change any more
)

// appendETag appends the version of a resource at number n as the given type.
func appendETag(b []byte, n int64, t *mediaType) []byte {
	b = strconv.AppendInt(b, n, 10)
	b = append(b, ';')
	return append(b, t.etag...)
}

// matches reports whether an If-None-Match names the version n of the type being
// answered. Anything of another shape does not.
func (x *exchange) matches(match string, n int64) bool {
	var buf [64]byte
	tag := appendETag(append(buf[:0], '"'), n, x.media)
	tag = append(tag, '"')
	return match == string(tag)
}

// open says of an answer that it holds for version n only.
func (x *exchange) open(n int64, m *event.Metadata) {
	h := x.w.Header()
	h[keyCacheControl] = x.openControl(m)
	var buf [64]byte
	tag := appendETag(append(buf[:0], '"'), n, x.media)
	h[keyETag] = []string{string(append(tag, '"'))}
}

// openControl is the Cache-Control of what may change: the stream's metadata may
// allow some age.
func (x *exchange) openControl(m *event.Metadata) []string {
	if m == nil || m.CacheControl <= 0 || x.s.opts.DisableHTTPCaching {
		return cacheNever
	}
	return []string{"max-age=" + strconv.FormatInt(int64(m.CacheControl/time.Second), 10) + ", private"}
}

// closed says of an answer that it holds for ever.
func (x *exchange) closed() {
	control := cacheForever
	if x.s.opts.DisableHTTPCaching {
		control = cacheNever
	}
	x.w.Header()[keyCacheControl] = control
}

// notModified tells the client that its copy, whose tag it sent, is good.
func (x *exchange) notModified(match []string, m *event.Metadata) {
	h := x.w.Header()
	h[keyETag] = match[:1:1]
	h[keyCacheControl] = x.openControl(m)
	h[keyVary] = varyAccept
	x.send(http.StatusNotModified, nil)
}

// freshness sets the caching headers of a page: closed pages are full, and lie
// below the last event.
func (x *exchange) freshness(page *event.StreamPage, p *pageRequest) {
	isClosed := p.From != fromHead && p.From <= page.Last
	if !p.Backward {
		isClosed = p.From <= page.Last+1-int64(p.Count)
	}
	if isClosed {
		x.closed()
		return
	}
	x.open(page.Last, &page.Metadata)
}
