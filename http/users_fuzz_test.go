package httpapi

import (
	"net/url"
	"strings"
	"testing"

	"github.com/annalsdb/annals/http/atom"
)

func FuzzUserPath(f *testing.F) {
	users := newRouter(userRows(nil))
	for _, s := range []string{"/users", "/users/", "/users/$current", "/users/a%2Fb/command/enable", "/users/a/command/reset-password/", "/users/a/command/", "//users/", "/users/%00", "/users/\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := url.ParseRequestURI(s); err == nil {
			r, rt := users.match(u)
			if named := r != nil && strings.Contains(r.path, "{login}"); named == (rt.Argument == "") {
				t.Fatalf("%q gave login %q", s, rt.Argument)
			}
		}
		if s == "" || s == "$current" {
			return
		}
		// The addresses of a user of any name lead back to it.
		home := "/users/" + string(atom.AppendEscaped(nil, s))
		for _, command := range []string{"", "/command/enable", "/command/disable", "/command/reset-password", "/command/change-password"} {
			if path, rt := find(t, userRows(nil), home+command); path != "/users/{login}"+command || rt.Argument != s {
				t.Fatalf("%q gave %q, login %q", home+command, path, rt.Argument)
			}
		}
	})
}
