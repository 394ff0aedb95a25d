package httpapi

import (
	"net/url"
	"strings"
	"testing"

	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/request"
)

func FuzzAccept(f *testing.F) {
	for _, s := range []string{"", "*/*", "application/json", "text/xml;q=0.3,application/*;q=.9", "a/b;q=x,,;;=", "text/*;q=1;q=0"} {
		f.Add(s, "json")
	}
	f.Fuzz(func(t *testing.T, accept, format string) {
		for _, o := range []*media.Offer{feedOffer, singleOffer, changeOffer, nodeOffer, gossipOffer, adminOffer, statsOffer, jsonOffer, subscriptionsOffer, competingOffer} {
			for _, got := range []*media.Type{media.Negotiate(o, "", []string{accept}), media.Negotiate(o, format, nil), media.Negotiate(o, "", []string{accept, format})} {
				if got != nil && !o.Has(got) {
					t.Fatalf("%q gave %s/%s, which is not offered", accept, got.Typ, got.Sub)
				}
			}
		}
		if got := media.OfBody(accept, appendForms); got != nil && appendForms&(1<<got.Form) == 0 {
			t.Fatalf("%q is a body of form %d", accept, got.Form)
		}
	})
}

func FuzzPath(f *testing.F) {
	streams := newRouter(streamRows(nil, nil))
	for _, s := range []string{"/streams/s", "/streams/%24all/filtered/0/forward/1", "/streams/a%2Fb/metadata/0", "/streams//", "/streams/s/0/", "/", "/streams", "/streams/%00/x/y/z/w/v",
		"/streams/%24scavenges/x/head/20", "/streams/$scavenges/0/backward/20", "/streams/$scavenges/incoming/0/1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := url.ParseRequestURI(s); err == nil {
			r, rt := streams.match(u)
			if named := r != nil && (r.stream != "" || strings.Contains(r.path, "{stream}")); named != (rt.Stream != "") {
				t.Fatalf("%q gave %+v", s, rt)
			}
		}
		if s == "" || s == "$all" {
			return
		}
		// The address of a stream of any name leads back to it.
		if path, rt := find(t, streamRows(nil, nil), atom.StreamsPath+string(atom.AppendEscaped(nil, s))); path != "/streams/{stream}" || rt != (request.Route{Stream: s}) {
			t.Fatalf("%q gave %q, %+v", s, path, rt)
		}
	})
}
