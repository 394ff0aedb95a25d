package httpapi

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/access"
)

// allRows are the routes that differ by what their placeholders hold.
func allRows() []row {
	return slices.Concat(streamRows(nil), userRows(nil), subscriptionRows(nil), projectionRows(nil))
}

// find returns the form of a path, nothing when there is none, and what the path says.
func find(t testing.TB, rows []row, path string) (string, route) {
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
		route      route
	}{
		{"/", "/", route{}},
		{"//", "", route{}},
		{"/streams", "", route{}},
		{"/streams/", "", route{}},
		{"/%73treams/s", "/streams/{stream}", route{stream: "s"}},
		{"/streams%2Fs", "", route{}},
		{"/streams/a%2Fb%25", "/streams/{stream}", route{stream: "a/b%"}},
		{"/streams/s/", "/streams/{stream}/", route{stream: "s"}},
		{"/streams/s//", "", route{}},
		{"/streams/s/0/", "", route{}},
		{"/streams/s/metadata/metadata", "/streams/{stream}/metadata/{number}", route{stream: "s", from: "metadata"}},
		{"/streams/s/5/sideways/5", "", route{}},
		{"/streams/s/incoming/forward/5", "/streams/{stream}/{number}/forward/{count}", route{stream: "s", from: "incoming", count: "5"}},
		{"/streams/$all/", "/streams/{stream}/", route{stream: "$all"}},
		{"/streams/$all/5", "/streams/{stream}/{number}", route{stream: "$all", from: "5"}},
		{"/streams/%24all/metadata/5", "/streams/{stream}/metadata/{number}", route{stream: "$all", from: "5"}},
		{"/streams/$all/incoming/x", "/streams/{stream}/incoming/{id}", route{stream: "$all", id: "x"}},
		{"/streams/$all/filtered/x", "/streams/$all/{position}/{count}", route{stream: "$all", from: "filtered", count: "x"}},
		{"/streams/$all/filtered/forward/5", "/streams/$all/filtered/{position}/{count}", route{stream: "$all", from: "forward", count: "5"}},
		{"/streams/$all/filtered/", "", route{}},
		{"/streams/$scavenges/x/head/20", "/streams/$scavenges/{id}/{number}/{count}", route{stream: "$scavenges-x", id: "x", from: "head", count: "20"}},
		{"/streams/$scavenges/0/backward/20", "/streams/{stream}/{number}/backward/{count}", route{stream: "$scavenges", from: "0", count: "20"}},
		{"/subscriptions/", "", route{}},
		{"/subscriptions/restart", "/subscriptions/restart", route{stream: "restart"}},
		{"/subscriptions/s/g/ack/", "", route{}},
		{"/projections/", "", route{}},
		{"/files/x/all/", "/files/{id}/all/{name...}", route{id: "x"}},
		{"/files/x/all/a/b%2Fc/", "/files/{id}/all/{name...}", route{id: "x", argument: "a/b/c/"}},
		{"/files/x/all/1/2/3/4/5/6/7%2F/8/9", "/files/{id}/all/{name...}", route{id: "x", argument: "1/2/3/4/5/6/7//8/9"}},
		{"/files//all/a", "", route{}},
		{"/files/x/all", "", route{}},
	} {
		if got, rt := find(t, rows, c.path); got != c.want || rt != c.route {
			t.Errorf("%s: %q, %+v, want %q, %+v", c.path, got, rt, c.want, c.route)
		}
	}
}

// TestForgottenRequirement: an operation without a requirement is refused. TestPermissions holds
// all others.
func TestForgottenRequirement(t *testing.T) {
	if err := new(exchange).permit(new(requirement), &access.System); err == nil {
		t.Error("what nobody thought of is allowed")
	}
}
