package address

import (
	"net/url"
	"strings"
)

// Split puts the segments of a path into seg and returns how many there are; the
// last element takes all that is left. Segments are cut at the slashes of the escaped
// path and decoded once, so that a name may hold any character, %2F included.
func Split(u *url.URL, seg []string) int {
	// Without RawPath the escaped form of Path is what the client sent, in which
	// every slash is a separator and nothing but bytes that need escaping is escaped.
	path, escaped := u.Path, false
	if u.RawPath != "" {
		path, escaped = u.RawPath, true
	}
	rest, more := strings.CutPrefix(path, "/")
	n := 0
	for ; more && n < len(seg)-1; n++ {
		seg[n], rest, more = strings.Cut(rest, "/")
		seg[n] = unescape(seg[n], escaped)
	}
	if more {
		seg[n] = unescape(rest, escaped)
		n++
	}
	return n
}

// unescape decodes a segment. url.Parse let no broken escape through.
func unescape(segment string, escaped bool) string {
	if !escaped || strings.IndexByte(segment, '%') < 0 {
		return segment
	}
	if s, err := url.PathUnescape(segment); err == nil {
		return s
	}
	return segment
}
