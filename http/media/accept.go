package media

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxRanges bounds how many ranges of an Accept header are sorted. Ranges after these are ignored.
const maxRanges = 64

// Negotiate chooses the type of the answer. The query parameter format beats the
// Accept header; nil means that nothing fits.
func Negotiate(o *Offer, format string, accept []string) *Type {
	if format != "" {
		return o.formatted(format)
	}
	return o.accepted(strings.Join(accept, ","))
}

var formats = []struct {
	name string
	t    *Type
}{{"json", JSON}, {"xml", TextXML}, {"atom", AtomXML}, {"atomxj", AtomJSON}, {"text", Text}}

// formatted reads the query parameter format.
func (o *Offer) formatted(format string) *Type {
	for _, f := range formats {
		if strings.EqualFold(format, f.name) && o.Has(f.t) {
			return f.t
		}
	}
	return nil
}

// accepted reads an Accept header: the ranges by quality, equal ones in the order
// written; the first range that fits any offered type wins.
func (o *Offer) accepted(accept string) *Type {
	var t *Type
	switch accept { // What nearly all clients send.
	case "", "*/*":
		return o.fallback
	case "application/json":
		t = JSON
	case "application/vnd.eventstore.atom+json":
		t = AtomJSON
	case "application/atom+xml":
		t = AtomXML
	}
	if t != nil && o.Has(t) {
		return t
	}
	return o.best(accept)
}

func (o *Offer) best(accept string) *Type {
	ranges := make([]acceptRange, 0, 16)
	for part := range strings.SplitSeq(accept, ",") {
		if len(ranges) == maxRanges {
			break
		}
		if r, ok := parseRange(part); ok {
			ranges = append(ranges, r)
		}
	}
	if len(ranges) == 0 && strings.Trim(accept, " \t,") == "" { // As none.
		return o.fallback
	}
	slices.SortStableFunc(ranges, func(a, b acceptRange) int { return cmp.Compare(b.q, a.q) })
	for _, r := range ranges {
		if t := o.fitting(r); t != nil {
			return t
		}
	}
	return nil
}

// acceptRange is one media range.
type acceptRange struct {
	typ, sub string
	q        float64
}

// fitting returns the first offered type that fits the range.
func (o *Offer) fitting(r acceptRange) *Type {
	if r.sub == "*" {
		if r.typ == "*" {
			return o.fallback
		}
		return o.withType(r.typ)
	}
	if t := typeNamed(r.typ, r.sub); t != nil && o.Has(t) {
		return t
	}
	return nil
}

// parseRange reads type/subtype;q=0.5. Other parameters are ignored. A quality that is not a number
// counts as 1.
func parseRange(s string) (acceptRange, bool) {
	name, params, _ := strings.Cut(s, ";")
	typ, sub, ok := strings.Cut(strings.TrimSpace(name), "/")
	if !ok || typ == "" || sub == "" {
		if strings.TrimSpace(name) == "*" { // Some clients mean */* by it.
			typ, sub = "*", "*"
		} else {
			return acceptRange{}, false
		}
	}
	r := acceptRange{typ: typ, sub: sub, q: 1}
	for param := range strings.SplitSeq(params, ";") {
		key, val, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(key), "q") {
			continue
		}
		if q, err := strconv.ParseFloat(strings.TrimSpace(val), 64); err == nil && q >= 0 && q <= 1 {
			r.q = q
		}
	}
	return r, true
}

// Live is the media type of live tails.
const Live = "text/event-stream"

// WantsLive reports whether the request accepts a live tail by name.
func WantsLive(h http.Header) bool {
	for _, accept := range h["Accept"] {
		if !strings.Contains(accept, Live) {
			continue
		}
		for r := range strings.SplitSeq(accept, ",") {
			name, _, _ := strings.Cut(r, ";")
			if strings.TrimSpace(name) == Live {
				return true
			}
		}
	}
	return false
}
