package httpapi

import (
	"net/url"
	"strings"

	"github.com/annalsdb/annals/http/atom"
)

// route has the parts of a request's path. Placeholders are decoded, and not yet checked.
type route struct {
	stream   string // {stream}
	group    string // {subscription}
	from     string // {number}, {position} or {time}; empty: the head
	count    string // {count}; empty: the default
	id       string // {id}
	argument string // any other placeholder
}

const streamsPrefix = atom.StreamsPath

// slot is where the value of a placeholder goes.
func (r *route) slot(placeholder string) *string {
	switch placeholder {
	case "stream":
		return &r.stream
	case "subscription":
		return &r.group
	case "number", "position", "time":
		return &r.from
	case "count":
		return &r.count
	case "id":
		return &r.id
	}
	return &r.argument
}

const (
	// maxSegments is more than any form of path has, but for those that end in a
	// placeholder with dots.
	maxSegments = 9

	restMark = "..."
)

// router holds the table of routes by the first segment of their paths.
type router map[string][]pattern

// pattern is a form of path, without its first segment.
type pattern struct {
	row    *row
	parts  []part
	isOpen bool // the last placeholder takes all that is left
}

// part is one segment: a literal one or a placeholder.
type part struct {
	text          string
	isPlaceholder bool
}

func newRouter(rows []row) router {
	t := router{}
	for i := range rows {
		segments := strings.Split(rows[i].path[1:], "/")
		p := pattern{row: &rows[i]}
		for _, s := range segments[1:] {
			name, isPlaceholder := strings.CutPrefix(s, "{")
			if isPlaceholder {
				name = strings.TrimSuffix(name, "}")
				name, p.isOpen = strings.CutSuffix(name, restMark)
			}
			p.parts = append(p.parts, part{name, isPlaceholder})
		}
		t[segments[0]] = append(t[segments[0]], p)
	}
	return t
}

// match returns the first row of the table that the path of a URL fits, nil when there is none, and
// the parts of the path. A placeholder stands for one segment that is not empty, and holds any
// character, slashes included where the row lets it.
func (t router) match(u *url.URL) (*row, route) {
	var seg [maxSegments]string
	n := split(u, seg[:])
	if n == 0 {
		return nil, route{}
	}
	patterns := t[seg[0]]
	for i := range patterns {
		if p := &patterns[i]; p.fits(seg[1:n]) {
			return p.row, p.read(seg[1:n])
		}
	}
	return nil, route{}
}

func (p *pattern) fits(seg []string) bool {
	if len(seg) != len(p.parts) && (!p.isOpen || len(seg) < len(p.parts)) {
		return false
	}
	for i := range p.parts {
		switch part := &p.parts[i]; {
		case !part.isPlaceholder:
			if seg[i] != part.text {
				return false
			}
		case p.isOpen && i == len(p.parts)-1:
		case seg[i] == "", p.row.isPlain && strings.Contains(seg[i], "/"):
			return false
		}
	}
	return true
}

// read returns what segments say that fit.
func (p *pattern) read(seg []string) route {
	rt := route{stream: p.row.stream}
	for i := range p.parts {
		if !p.parts[i].isPlaceholder {
			continue
		}
		value := seg[i]
		if p.isOpen && i == len(p.parts)-1 {
			value = strings.Join(seg[i:], "/")
		}
		*rt.slot(p.parts[i].text) = value
	}
	if p.row.isRun {
		rt.stream += "-" + rt.id
	}
	return rt
}

// split puts the segments of a path into seg and returns how many there are; the
// last element takes all that is left. Segments are cut at the slashes of the escaped
// path and decoded once, so that a name may hold any character, %2F included.
func split(u *url.URL, seg []string) int {
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
