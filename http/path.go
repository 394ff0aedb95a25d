package httpapi

import (
	"net/url"
	"strings"

	"github.com/annalsdb/annals/event"
)

// kind is a form of path under /streams/.
type kind uint8

const (
	kindStream           kind = iota // {s}
	kindStreamSlash                  // {s}/
	kindEvent                        // {s}/{n}
	kindBackward                     // {s}/{n}/{c}, {s}/{n}/backward/{c}, $scavenges/{id}/{n}/{c}
	kindForward                      // {s}/{n}/forward/{c}
	kindIncoming                     // {s}/incoming/{guid}
	kindMetadata                     // {s}/metadata
	kindMetadataSlash                // {s}/metadata/
	kindMetadataEvent                // {s}/metadata/{n}
	kindMetaBackward                 // {s}/metadata/{n}/{c}, {s}/metadata/{n}/backward/{c}
	kindMetaForward                  // {s}/metadata/{n}/forward/{c}
	kindAll                          // $all
	kindAllBackward                  // $all/{p}/{c}, $all/{p}/backward/{c}
	kindAllForward                   // $all/{p}/forward/{c}
	kindFiltered                     // $all/filtered
	kindFilteredBackward             // $all/filtered/{p}/{c}, $all/filtered/{p}/backward/{c}
	kindFilteredForward              // $all/filtered/{p}/forward/{c}
	kinds                            // how many there are
)

// route is what the path of a request says. Placeholders are decoded, and not
// yet checked.
type route struct {
	kind   kind
	stream string // {s}
	group  string // the group of subscribers of the stream
	from   string // {n}, {p} or {guid}; empty: the head
	count  string // {c}; empty: the default

	argument string // the placeholder of a path outside /streams/, a login for one
	file     string // of the backup session that argument names
}

const (
	segMetadata = "metadata"
	segIncoming = "incoming"
	segFiltered = "filtered"
	segBackward = "backward"
	segForward  = "forward"
	segHead     = "head"

	// scavengesStream holds links to the beginning and the end of each scavenge. The
	// stream of one of them has its id and a dash more.
	scavengesStream = "$scavenges"

	// maxSegments is that of the longest path: $all/filtered/{p}/forward/{c}.
	maxSegments = 5
)

// resolve reads the path of a URL under /streams/. Segments are cut at the
// slashes of the escaped path and decoded once, so that a name may hold any
// character, %2F included. Literal segments win over placeholders.
func resolve(u *url.URL) (route, bool) {
	var seg [maxSegments]string
	n := segments(u, streamsPrefix, seg[:])
	if n <= 0 {
		return route{}, false
	}
	return resolveSegments(seg[:n])
}

// segments puts the decoded segments of the path below a prefix, which stands
// between slashes, into seg and returns how many there are: 0 for the prefix
// without its last slash, -1 for another path and for one that is too long.
func segments(u *url.URL, prefix string, seg []string) int {
	// Without RawPath the escaped form of Path is what the client sent, in which
	// every slash is a separator and nothing but bytes that need escaping is escaped.
	path, escaped := u.Path, false
	if u.RawPath != "" {
		path, escaped = u.RawPath, true
	}
	first, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if unescape(first, escaped) != prefix[1:len(prefix)-1] {
		return -1
	}
	n := 0
	for ok {
		if n == len(seg) {
			return -1
		}
		seg[n], rest, ok = strings.Cut(rest, "/")
		seg[n] = unescape(seg[n], escaped)
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

func resolveSegments(seg []string) (route, bool) {
	for i, s := range seg {
		// An empty segment is a slash too much; only some at the end have a meaning.
		if s == "" && (i == 0 || i != len(seg)-1) {
			return route{}, false
		}
	}
	rt := route{stream: seg[0]}
	rest := seg[1:]
	if len(rest) > 0 && rest[0] == segMetadata {
		return rt.metadata(rest[1:])
	}
	if rt.stream == event.AllStream {
		if r, ok := rt.all(rest); ok {
			return r, true
		}
	}
	switch {
	case len(rest) == 0:
		rt.kind = kindStream
		return rt, true
	case len(rest) == 1 && rest[0] == "":
		rt.kind = kindStreamSlash
		return rt, true
	case rest[len(rest)-1] == "":
		return route{}, false
	case len(rest) == 1:
		rt.kind, rt.from = kindEvent, rest[0]
		return rt, true
	case len(rest) == 2 && rest[0] == segIncoming:
		rt.kind, rt.from = kindIncoming, rest[1]
		return rt, true
	}
	if len(rest) == 3 && rt.stream == scavengesStream && rest[1] != segBackward && rest[1] != segForward {
		// The web interface asks so for the history of one scavenge.
		rt.stream += "-" + rest[0]
		return rt.page(rest[1:], kindBackward, kindForward)
	}
	return rt.page(rest, kindBackward, kindForward)
}

// metadata reads what follows {s}/metadata.
func (rt route) metadata(rest []string) (route, bool) {
	switch {
	case len(rest) == 0:
		rt.kind = kindMetadata
		return rt, true
	case len(rest) == 1 && rest[0] == "":
		rt.kind = kindMetadataSlash
		return rt, true
	case len(rest) == 1:
		rt.kind, rt.from = kindMetadataEvent, rest[0]
		return rt, true
	}
	return rt.page(rest, kindMetaBackward, kindMetaForward)
}

// all reads what follows $all, as far as $all differs from other names.
func (rt route) all(rest []string) (route, bool) {
	switch {
	case len(rest) == 0:
		rt.kind = kindAll
		return rt, true
	case rest[0] == segFiltered:
		if len(rest) == 1 {
			rt.kind = kindFiltered
			return rt, true
		}
		if r, ok := rt.page(rest[1:], kindFilteredBackward, kindFilteredForward); ok {
			return r, true
		}
	case rest[0] == segIncoming && len(rest) == 2:
		return rt, false
	}
	return rt.page(rest, kindAllBackward, kindAllForward)
}

// page reads {n}/{c}, {n}/backward/{c} and {n}/forward/{c}.
func (rt route) page(rest []string, backward, forward kind) (route, bool) {
	n := len(rest)
	if n < 2 || n > 3 || rest[n-1] == "" {
		return rt, false
	}
	rt.from, rt.count, rt.kind = rest[0], rest[n-1], backward
	if n == 3 {
		switch rest[1] {
		case segBackward:
		case segForward:
			rt.kind = forward
		default:
			return rt, false
		}
	}
	return rt, true
}
