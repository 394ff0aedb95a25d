package httpapi

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// maxRanges bounds how many ranges of an Accept header are sorted. Ranges after these are ignored.
const maxRanges = 64

// negotiate chooses the type of the answer. The query parameter format beats the
// Accept header; nil means that nothing fits.
func negotiate(o *offer, format string, accept []string) *mediaType {
	if format != "" {
		return o.formatted(format)
	}
	return o.accepted(strings.Join(accept, ","))
}

var formats = []struct {
	name string
	t    *mediaType
}{{"json", typeJSON}, {"xml", typeTextXML}, {"atom", typeAtomXML}, {"atomxj", typeAtomJSON}, {"text", typeText}}

// formatted reads the query parameter format.
func (o *offer) formatted(format string) *mediaType {
	for _, f := range formats {
		if strings.EqualFold(format, f.name) && o.has(f.t) {
			return f.t
		}
	}
	return nil
}

// accepted reads an Accept header: the ranges by quality, equal ones in the order
// written; the first range that fits any offered type wins.
func (o *offer) accepted(accept string) *mediaType {
	var t *mediaType
	switch accept { // What nearly all clients send.
	case "", "*/*":
		return o.fallback
	case "application/json":
		t = typeJSON
	case "application/vnd.eventstore.atom+json":
		t = typeAtomJSON
	case "application/atom+xml":
		t = typeAtomXML
	}
	if t != nil && o.has(t) {
		return t
	}
	return o.best(accept)
}

func (o *offer) best(accept string) *mediaType {
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
func (o *offer) fitting(r acceptRange) *mediaType {
	if r.sub == "*" {
		if r.typ == "*" {
			return o.fallback
		}
		return o.withType(r.typ)
	}
	if t := typeNamed(r.typ, r.sub); t != nil && o.has(t) {
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
