// Package caching is what answers say of how long copies of them are good.
package caching

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/media"
)

// Keys of headers as the header map holds them.
const (
	KeyControl     = "Cache-Control"
	KeyETag        = "Etag"
	KeyIfNoneMatch = "If-None-Match"
	KeyVary        = "Vary"
)

// Values of Cache-Control and Vary, assigned as they are and never changed.
var (
	// open: may change at any moment
	Never = []string{"max-age=0, no-cache, must-revalidate"}
	// closed: cannot change any more
	Forever = []string{"max-age=31536000, private"}
	// nothing said, but for this user alone
	Private = []string{"private"}
	// open, and for its caller alone
	own     = []string{"max-age=0, no-cache, must-revalidate, private"}
	Nothing = []string{"no-store"} // no cache may store it
	Probe   = []string{"no-cache"} // must be asked for again each time

	VaryAccept = []string{"Accept"}
	varyCaller = []string{"Accept, Authorization"}
)

// Copies are the copies that are kept of an answer. What is said of them stands in its header.
type Copies struct {
	Header   http.Header
	Type     *media.Type // of the answer
	Disabled bool        // none may be kept
	Parked   bool        // of parked messages, which are never taken from a cache without asking
}

// tag is the tag of version n of the type.
func (c Copies) tag(b []byte, n int64) []byte {
	b = append(b, '"')
	b = strconv.AppendInt(b, n, 10)
	b = append(b, ';')
	b = append(b, c.Type.ETag...)
	return append(b, '"')
}

// matched returns the tag of version n if one of the values of If-None-Match means it; else nil.
// Tags are compared weakly, as RFC 9110 demands: a proxy that compresses makes them weak. * matches
// all that exists.
func (c Copies) matched(match []string, n int64) []string {
	var buf [64]byte
	tag := c.tag(buf[:0], n)
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

// Open says that a copy is of version n only. The stream's metadata may allow some age.
func (c Copies) Open(n int64, m *event.Metadata) {
	c.open(m)
	var buf [64]byte
	c.Header[KeyETag] = []string{string(c.tag(buf[:0], n))}
}

func (c Copies) open(m *event.Metadata) {
	control := Never
	if m != nil && m.CacheControl > 0 && !c.Disabled {
		control = []string{"max-age=" + strconv.FormatInt(int64(m.CacheControl/time.Second), 10) + ", private"}
	}
	c.Header[KeyControl] = control
}

// Last says how long copies may be kept, where they may be kept.
func (c Copies) Last(control []string) {
	if c.Disabled {
		control = Never
	}
	c.Header[KeyControl] = control
}

// OfCaller marks an answer that shows link targets as private to its caller, because other callers
// may see less of it, or more. With must-revalidate alone a shared cache could keep the answer. It
// would then serve it to every caller whose copy has the same tag, and the tag depends on the links
// only. A dead link may resolve once its caller may see the target.
func (c Copies) OfCaller(events ...event.Resolved) {
	follows, isDead := false, false
	for i := range events {
		follows = follows || events[i].Link != event.NotLink
		isDead = isDead || events[i].Link == event.LinkDead
	}
	if !follows {
		return
	}
	h := c.Header
	h[KeyVary] = varyCaller
	if c.Parked {
		return
	}
	if control := h[KeyControl]; isDead || len(control) == 1 && control[0] == Never[0] {
		h[KeyControl] = own
	}
}

// Own says that caches may serve the answer to its caller alone, and must ask each time.
func (c Copies) Own() { c.Header[KeyVary], c.Header[KeyControl] = varyCaller, own }

// OpenOwn is Open for an answer that may be another one for other callers.
func (c Copies) OpenOwn(n int64) {
	c.Open(n, nil)
	c.Own()
}

// Holds reports whether the client's copy, of which match is what If-None-Match has, is of version
// n, and says so.
func (c Copies) Holds(match []string, n int64, m *event.Metadata) bool {
	tag := c.matched(match, n)
	if tag == nil {
		return false
	}
	c.open(m)
	c.Header[KeyETag], c.Header[KeyVary] = tag[:1:1], VaryAccept
	return true
}

// HoldsOwn is Holds for what OpenOwn was said of.
func (c Copies) HoldsOwn(match []string, n int64) bool {
	holds := c.Holds(match, n, nil)
	if holds {
		c.Own()
	}
	return holds
}
