package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
)

// Values of Cache-Control, assigned as they are and never changed.
var (
	// open: may change at any moment
	cacheNever = []string{"max-age=0, no-cache, must-revalidate"}
	// closed: cannot change any more
	cacheForever = []string{"max-age=31536000, private"}
	// nothing said, but for this user alone
	cachePrivate = []string{"private"}
	// open, and for its caller alone
	cacheOwn     = []string{"max-age=0, no-cache, must-revalidate, private"}
	cacheNothing = []string{"no-store"} // no cache may store it
)

// appendETag appends the version of a resource at number n as the given type.
func appendETag(b []byte, n int64, t *mediaType) []byte {
	b = strconv.AppendInt(b, n, 10)
	b = append(b, ';')
	return append(b, t.etag...)
}

// matched returns the version n of the type being answered as ETag has it, if one
// of the values of If-None-Match means it; else nil. Tags are compared weakly, as
// RFC 9110 demands: a proxy that compresses makes them weak. * matches all that exists.
func (x *exchange) matched(match []string, n int64) []string {
	var buf [64]byte
	tag := appendETag(append(buf[:0], '"'), n, x.media)
	tag = append(tag, '"')
	if len(match) == 1 && match[0] == string(tag) { // What nearly all clients send.
		return match
	}
	for _, list := range match {
		if lists(list, tag) {
			return []string{string(tag)}
		}
	}
	return nil
}

// lists reports whether a list of tags is * or has the tag. The rest of the list is ignored after a
// part that is not a tag.
func lists(list string, tag []byte) bool {
	if strings.Trim(list, " \t") == "*" {
		return true
	}
	for {
		list = strings.TrimPrefix(strings.TrimLeft(list, " \t,"), "W/")
		if list == "" || list[0] != '"' {
			return false
		}
		end := strings.IndexByte(list[1:], '"') + 2
		if end < 2 {
			return false
		}
		if list[:end] == string(tag) {
			return true
		}
		list = strings.TrimLeft(list[end:], " \t")
		if list != "" && list[0] != ',' {
			return false
		}
	}
}

// open says of an answer that it holds for version n only.
func (x *exchange) open(n int64, m *event.Metadata) {
	h := x.w.Header()
	h[keyCacheControl] = openControl(x, m)
	var buf [64]byte
	tag := appendETag(append(buf[:0], '"'), n, x.media)
	h[keyETag] = []string{string(append(tag, '"'))}
}

// openControl is the Cache-Control of answers that may change: the stream's metadata may allow some
// age.
func openControl(x *exchange, m *event.Metadata) []string {
	if m == nil || m.CacheControl <= 0 || x.node.disableCaching {
		return cacheNever
	}
	return []string{"max-age=" + strconv.FormatInt(int64(m.CacheControl/time.Second), 10) + ", private"}
}

// private says of an answer that only this caller may see it.
func private(x *exchange) {
	control := cachePrivate
	if x.node.disableCaching {
		control = cacheNever
	}
	x.w.Header()[keyCacheControl] = control
}

// closed says of an answer that it holds for ever.
func (x *exchange) closed() {
	control := cacheForever
	if x.node.disableCaching {
		control = cacheNever
	}
	x.w.Header()[keyCacheControl] = control
}

// ofCaller marks an answer that shows link targets as private to its caller, because other callers
// may see less of it, or more. With must-revalidate alone a shared cache could keep the answer. It
// would then serve it to every caller whose copy has the same tag, and the tag depends on the links
// only. A dead link may resolve once its caller may see the target.
func ofCaller(x *exchange, events ...event.Resolved) {
	follows, isDead := false, false
	for i := range events {
		follows = follows || events[i].Link != event.NotLink
		isDead = isDead || events[i].Link == event.LinkDead
	}
	if !follows {
		return
	}
	h := x.w.Header()
	h[keyVary] = varyCaller
	if x.route.group != "" {
		return // Parked messages are never taken from a cache without asking.
	}
	if control := h[keyCacheControl]; isDead || len(control) == 1 && control[0] == cacheNever[0] {
		h[keyCacheControl] = cacheOwn
	}
}

// notModified tells the client that its copy, which has the tag, is good.
func (x *exchange) notModified(tag []string, m *event.Metadata) {
	h := x.w.Header()
	h[keyETag] = tag[:1:1]
	h[keyCacheControl] = openControl(x, m)
	h[keyVary] = varyAccept
	x.send(http.StatusNotModified, nil)
}

// pageFreshness sets the caching headers of a page: closed pages are full, and lie
// below the last event.
func pageFreshness(x *exchange, page *event.StreamPage, p *pageRequest) {
	isClosed := p.From != fromHead && p.From <= page.Last
	if !p.Backward {
		isClosed = p.From <= page.Last+1-int64(p.Count)
	}
	if isClosed && !p.changes {
		x.closed()
		return
	}
	x.open(page.Last, &page.Metadata)
}
