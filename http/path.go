package httpapi

import (
	"net/url"
	"strings"

	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/http/request"
)

// slot is where the value of a placeholder goes.
func slot(r *request.Route, placeholder string) *string {
	switch placeholder {
	case "stream":
		return &r.Stream
	case "subscription":
		return &r.Group
	case "number", "position", "time":
		return &r.From
	case "count":
		return &r.Count
	case "id":
		return &r.ID
	}
	return &r.Argument
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
func (t router) match(u *url.URL) (*row, request.Route) {
	var seg [maxSegments]string
	n := address.Split(u, seg[:])
	if n == 0 {
		return nil, request.Route{}
	}
	patterns := t[seg[0]]
	for i := range patterns {
		if p := &patterns[i]; p.fits(seg[1:n]) {
			return p.row, p.read(seg[1:n])
		}
	}
	return nil, request.Route{}
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
func (p *pattern) read(seg []string) request.Route {
	rt := request.Route{Stream: p.row.stream}
	for i := range p.parts {
		if !p.parts[i].isPlaceholder {
			continue
		}
		value := seg[i]
		if p.isOpen && i == len(p.parts)-1 {
			value = strings.Join(seg[i:], "/")
		}
		*slot(&rt, p.parts[i].text) = value
	}
	if p.row.isRun {
		rt.Stream += "-" + rt.ID
	}
	return rt
}
