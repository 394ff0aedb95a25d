package request

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/media"
)

// Values of Cache-Control, assigned as they are and never changed.
var (
	// open: may change at any moment
	CacheNever = []string{"max-age=0, no-cache, must-revalidate"}
	// closed: cannot change any more
	CacheForever = []string{"max-age=31536000, private"}
	// nothing said, but for this user alone
	CachePrivate = []string{"private"}
	// open, and for its caller alone
	cacheOwn     = []string{"max-age=0, no-cache, must-revalidate, private"}
	CacheNothing = []string{"no-store"} // no cache may store it
)

// appendETag appends the version of a resource at number n as the given type.
func appendETag(b []byte, n int64, t *media.Type) []byte {
	b = strconv.AppendInt(b, n, 10)
	b = append(b, ';')
	return append(b, t.ETag...)
}

// Matched returns the version n of the type being answered as ETag has it, if one
// of the values of If-None-Match means it; else nil. Tags are compared weakly, as
// RFC 9110 demands: a proxy that compresses makes them weak. * matches all that exists.
func (x *Request) Matched(match []string, n int64) []string {
	var buf [64]byte
	tag := appendETag(append(buf[:0], '"'), n, x.Media)
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

// Open says of an answer that it holds for version n only.
func (x *Request) Open(n int64, m *event.Metadata) {
	h := x.W.Header()
	h[KeyCacheControl] = x.openControl(m)
	var buf [64]byte
	tag := appendETag(append(buf[:0], '"'), n, x.Media)
	h[KeyETag] = []string{string(append(tag, '"'))}
}

// openControl is the Cache-Control of answers that may change: the stream's metadata may allow some
// age.
func (x *Request) openControl(m *event.Metadata) []string {
	if m == nil || m.CacheControl <= 0 || x.Node.DisableCaching {
		return CacheNever
	}
	return []string{"max-age=" + strconv.FormatInt(int64(m.CacheControl/time.Second), 10) + ", private"}
}

// Cache says of an answer how long it may be kept, where answers may be kept.
func (x *Request) Cache(control []string) {
	if x.Node.DisableCaching {
		control = CacheNever
	}
	x.W.Header()[KeyCacheControl] = control
}

// OfCaller marks an answer that shows link targets as private to its caller, because other callers
// may see less of it, or more. With must-revalidate alone a shared cache could keep the answer. It
// would then serve it to every caller whose copy has the same tag, and the tag depends on the links
// only. A dead link may resolve once its caller may see the target.
func (x *Request) OfCaller(events ...event.Resolved) {
	follows, isDead := false, false
	for i := range events {
		follows = follows || events[i].Link != event.NotLink
		isDead = isDead || events[i].Link == event.LinkDead
	}
	if !follows {
		return
	}
	h := x.W.Header()
	h[KeyVary] = varyCaller
	if x.Route.Group != "" {
		return // Parked messages are never taken from a cache without asking.
	}
	if control := h[KeyCacheControl]; isDead || len(control) == 1 && control[0] == CacheNever[0] {
		h[KeyCacheControl] = cacheOwn
	}
}

// OpenOwn is Open for an answer that may be another one for other callers.
func (x *Request) OpenOwn(n int64) {
	x.Open(n, nil)
	x.Own()
}

// Own says of an answer that caches may serve it to its caller alone, and must ask each time.
func (x *Request) Own() {
	h := x.W.Header()
	h[KeyVary], h[KeyCacheControl] = varyCaller, cacheOwn
}

// NotModified tells the client that its copy, which has the tag, is good.
func (x *Request) NotModified(tag []string, m *event.Metadata) {
	h := x.W.Header()
	h[KeyETag] = tag[:1:1]
	h[KeyCacheControl] = x.openControl(m)
	h[KeyVary] = VaryAccept
	x.Send(http.StatusNotModified, nil)
}

// OwnNotModified is NotModified for what OpenOwn was said of.
func (x *Request) OwnNotModified(tag []string) {
	x.W.Header()[KeyETag] = tag[:1:1]
	x.Own()
	x.Send(http.StatusNotModified, nil)
}
