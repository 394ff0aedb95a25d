package httpapi

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/request"
)

// allRows are the routes that differ by what their placeholders hold.
func allRows() []row {
	return slices.Concat(streamRows(nil, nil), userRows(nil), subscriptionRows(nil), projectionRows(nil))
}

// find returns the form of a path, nothing when there is none, and what the path says.
func find(t testing.TB, rows []row, path string) (string, request.Route) {
	t.Helper()
	u, err := url.ParseRequestURI(path)
	if err != nil {
		t.Fatal(err)
	}
	r, rt := newRouter(rows).match(u)
	if r == nil {
		return "", rt
	}
	return r.path, rt
}

// TestRows: no row of the table hides another.
func TestRows(t *testing.T) {
	sample := strings.NewReplacer("{", "", "}", "")
	for _, r := range allRows() {
		if got, _ := find(t, allRows(), sample.Replace(r.path)); got != r.path {
			t.Errorf("%s is served as %q", r.path, got)
		}
	}
}

func TestMatch(t *testing.T) {
	rows := append(allRows(), at("/"), at("/files/{id}/all/{name...}"))
	for _, c := range []struct {
		path, want string
		route      request.Route
	}{
		{"/", "/", request.Route{}},
		{"//", "", request.Route{}},
		{"/streams", "/streams", request.Route{}},
		{"/streams/", "", request.Route{}},
		{"/%73treams/s", "/streams/{stream}", request.Route{Stream: "s"}},
		{"/streams%2Fs", "", request.Route{}},
		{"/streams/a%2Fb%25", "/streams/{stream}", request.Route{Stream: "a/b%"}},
		{"/streams/s/", "/streams/{stream}/", request.Route{Stream: "s"}},
		{"/streams/s//", "", request.Route{}},
		{"/streams/s/0/", "", request.Route{}},
		{"/streams/s/metadata/metadata", "/streams/{stream}/metadata/{number}", request.Route{Stream: "s", From: "metadata"}},
		{"/streams/s/5/sideways/5", "", request.Route{}},
		{"/streams/s/incoming/forward/5", "/streams/{stream}/{number}/forward/{count}", request.Route{Stream: "s", From: "incoming", Count: "5"}},
		{"/streams/$all/", "/streams/{stream}/", request.Route{Stream: "$all"}},
		{"/streams/$all/5", "/streams/{stream}/{number}", request.Route{Stream: "$all", From: "5"}},
		{"/streams/%24all/metadata/5", "/streams/{stream}/metadata/{number}", request.Route{Stream: "$all", From: "5"}},
		{"/streams/$all/incoming/x", "/streams/{stream}/incoming/{id}", request.Route{Stream: "$all", ID: "x"}},
		{"/streams/$all/filtered/x", "/streams/$all/{position}/{count}", request.Route{Stream: "$all", From: "filtered", Count: "x"}},
		{"/streams/$all/filtered/forward/5", "/streams/$all/filtered/{position}/{count}", request.Route{Stream: "$all", From: "forward", Count: "5"}},
		{"/streams/$all/filtered/", "", request.Route{}},
		{"/streams/$scavenges/x/head/20", "/streams/$scavenges/{id}/{number}/{count}", request.Route{Stream: "$scavenges-x", ID: "x", From: "head", Count: "20"}},
		{"/streams/$scavenges/0/backward/20", "/streams/{stream}/{number}/backward/{count}", request.Route{Stream: "$scavenges", From: "0", Count: "20"}},
		{"/subscriptions/", "", request.Route{}},
		{"/subscriptions/restart", "/subscriptions/restart", request.Route{Stream: "restart"}},
		{"/subscriptions/s/g/ack/", "", request.Route{}},
		{"/projections/", "", request.Route{}},
		{"/files/x/all/", "/files/{id}/all/{name...}", request.Route{ID: "x"}},
		{"/files/x/all/a/b%2Fc/", "/files/{id}/all/{name...}", request.Route{ID: "x", Argument: "a/b/c/"}},
		{"/files/x/all/1/2/3/4/5/6/7%2F/8/9", "/files/{id}/all/{name...}", request.Route{ID: "x", Argument: "1/2/3/4/5/6/7//8/9"}},
		{"/files//all/a", "", request.Route{}},
		{"/files/x/all", "", request.Route{}},
	} {
		if got, rt := find(t, rows, c.path); got != c.want || rt != c.route {
			t.Errorf("%s: %q, %+v, want %q, %+v", c.path, got, rt, c.want, c.route)
		}
	}
}

// TestForgottenRequirement: an operation without a requirement is refused. TestPermissions holds
// all others.
func TestForgottenRequirement(t *testing.T) {
	if err := new(api.Node).Permit(t.Context(), new(api.Requirement), &access.System, "", ""); err == nil {
		t.Error("what nobody thought of is allowed")
	}
}
