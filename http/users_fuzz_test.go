package httpapi

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/annalsdb/annals/access"
)

func FuzzUserPath(f *testing.F) {
	users := newRouter(userRows(nil))
	for _, s := range []string{"/users", "/users/", "/users/$current", "/users/a%2Fb/command/enable", "/users/a/command/reset-password/", "/users/a/command/", "//users/", "/users/%00", "/users/\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if u, err := url.ParseRequestURI(s); err == nil {
			r, rt := users.match(u)
			if named := r != nil && strings.Contains(r.path, "{login}"); named == (rt.argument == "") {
				t.Fatalf("%q gave login %q", s, rt.argument)
			}
		}
		if s == "" || s == "$current" {
			return
		}
		// The addresses of a user of any name lead back to it.
		home := userPath(s)
		for _, command := range []string{"", "/command/enable", "/command/disable", "/command/reset-password", "/command/change-password"} {
			if path, rt := find(t, userRows(nil), home+command); path != "/users/{login}"+command || rt.argument != s {
				t.Fatalf("%q gave %q, login %q", home+command, path, rt.argument)
			}
		}
	})
}

func FuzzUserBody(f *testing.F) {
	for _, s := range []string{
		`{"loginName":"jane","fullName":"Jane Doe","groups":["a","b"],"password":"p"}`, `{"LOGINNAME":"\u0041","password":"\n","groups":null}`,
		`{"groups":[1]}`, `{"loginName":1,"loginName":"x","password":"p"}`, `[]`, `{`, ``, "\xef\xbb\xbf{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fields := userMembers(body)
		if fields.err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(strings.TrimPrefix(string(body), string(byteOrderMark))), &want); err != nil {
			t.Fatalf("%q was taken: %v", body, err)
		}
		a := fields.newAccount()
		if err := fields.err; err != nil {
			if p, known := problemOf(err, reading); !known || p.status != 400 || p.text == "" {
				t.Fatalf("%v became %+v", err, p)
			}
			return
		}
		if a.Login == "" || a.Password == "" || a.Groups == nil || len(a.Login) > access.MaxLoginBytes || !utf8.ValidString(a.Login) || a.Login == "$current" {
			t.Fatalf("%q became %+v", body, a)
		}
		for _, r := range a.Login {
			if r < ' ' || r == 0x7f {
				t.Fatalf("%q is a login", a.Login)
			}
		}
	})
}
