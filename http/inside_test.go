package httpapi

import (
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/http/atom"
)

func FuzzAccept(f *testing.F) {
	for _, s := range []string{"", "*/*", "application/json", "text/xml;q=0.3,application/*;q=.9", "a/b;q=x,,;;=", "text/*;q=1;q=0"} {
		f.Add(s, "json")
	}
	f.Fuzz(func(t *testing.T, accept, format string) {
		for _, o := range []*offer{feedOffer, singleOffer, changeOffer, nodeOffer, gossipOffer, adminOffer, statsOffer, jsonOffer, subscriptionsOffer, competingOffer} {
			for _, got := range []*mediaType{negotiate(o, "", []string{accept}), negotiate(o, format, nil), negotiate(o, "", []string{accept, format})} {
				if got != nil && !o.has(got) {
					t.Fatalf("%q gave %s/%s, which is not offered", accept, got.typ, got.sub)
				}
			}
		}
		if got := requestType(accept, appendForms); got != nil && appendForms&(1<<got.form) == 0 {
			t.Fatalf("%q is a body of form %d", accept, got.form)
		}
	})
}

func FuzzPath(f *testing.F) {
	streams := newRouter(streamRows(nil))
	for _, s := range []string{"/streams/s", "/streams/%24all/filtered/0/forward/1", "/streams/a%2Fb/metadata/0", "/streams//", "/streams/s/0/", "/", "/streams/%00/x/y/z/w/v",
		"/streams/%24scavenges/x/head/20", "/streams/$scavenges/0/backward/20", "/streams/$scavenges/incoming/0/1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := url.ParseRequestURI(s); err == nil {
			if r, rt := streams.match(u); (r == nil) != (rt.stream == "") {
				t.Fatalf("%q gave %+v", s, rt)
			}
		}
		if s == "" || s == "$all" {
			return
		}
		// The address of a stream of any name leads back to it.
		if path, rt := find(t, streamRows(nil), streamsPrefix+string(atom.AppendEscaped(nil, s))); path != "/streams/{stream}" || rt != (route{stream: s}) {
			t.Fatalf("%q gave %q, %+v", s, path, rt)
		}
	})
}

func FuzzQuery(f *testing.F) {
	f.Add("embed=body&format=json", "format")
	f.Add("a=%41+%zz&=&&b", "a")
	f.Fuzz(func(t *testing.T, raw, name string) {
		got := queryValue(raw, name)
		if want, err := url.ParseQuery(raw); err == nil && want.Has(name) && !strings.ContainsAny(raw, ";%") && name != "" {
			if values := want[name]; len(values) == 1 && values[0] != got && len(want) == 1 {
				t.Fatalf("%q of %q: %q, want %q", name, raw, got, values[0])
			}
		}
	})
}

func TestParseNumber(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "007": 7, "9223372036854775807": math.MaxInt64, "": -1, "-1": -1, "1x": -1, "9223372036854775808": -1, "99999999999999999999": -1} {
		n, ok := parseNumber(s, math.MaxInt64)
		if !ok {
			n = -1
		}
		if n != want {
			t.Errorf("%q: %d, want %d", s, n, want)
		}
	}
}

// TestETagsTellTypesApart guards the constants: two types must not share one.
func TestETagsTellTypesApart(t *testing.T) {
	var seen []string
	for _, m := range allTypes {
		if m.kurrent {
			continue
		}
		if slices.Contains(seen, m.etag) {
			t.Errorf("%s/%s shares its tag", m.typ, m.sub)
		}
		seen = append(seen, m.etag)
	}
}

// TestKurrentNames: every JSON type has the name that later clients use for it.
func TestKurrentNames(t *testing.T) {
	for _, m := range allTypes {
		later, ours := strings.CutPrefix(m.sub, "vnd.eventstore.")
		if !ours || !m.form.isJSON() {
			continue
		}
		alias := typeNamed("application", "vnd.kurrent."+later)
		if alias == nil || !alias.kurrent || alias.form != m.form || alias.etag != m.etag {
			t.Errorf("%s is not known by its later name", m.sub)
		}
	}
}
