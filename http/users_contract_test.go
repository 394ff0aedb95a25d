package httpapi_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// usersContract are the rules of user management, for any node whose callers
// are the users that it manages.
func usersContract(t *testing.T, newNode func(t *testing.T, change ...func(*httpapi.Options)) *node) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, n *node)
	}{
		{"create, names in any case, with and without the slash", func(t *testing.T, n *node) {
			for path, body := range map[string]string{
				"/users/": `{"LoginName":"u1","FULLNAME":"A B","groups":["x"],"pAsSwOrD":"p","other":{"a":[1]}}`,
				"/users":  `{"loginName":"u2","fullName":"A B","Groups":["x"],"password":"p"}`,
			} {
				login := "u1"
				if path == "/users" {
					login = "u2"
				}
				n.manage("POST", path, body).commanded(t, 201, login, "Success").has(t, "Location", base+"/users/"+login)
				d := n.account(login)
				check.Equal(t, fmt.Sprint(d.LoginName, d.FullName, d.Groups, *d.Disabled, n.signsIn(login, "p")), login+"A B[x] false true", "user")
				if d.DateLastUpdated == nil {
					t.Error("no dateLastUpdated")
				}
			}
		}},
		{"create is idempotent by password", func(t *testing.T, n *node) {
			n.create("jane", "a")
			before := n.manage("GET", "/users/jane", "").body
			n.manage("POST", "/users/", `{"loginName":"jane","fullName":"Other","groups":["b"],"password":"pw-1"}`).
				commanded(t, 201, "jane", "Success").has(t, "Location", base+"/users/jane")
			check.Equal(t, n.manage("GET", "/users/jane", "").body, before, "details")
			n.manage("POST", "/users/", `{"loginName":"jane","password":"pw-2"}`).commanded(t, 409, "jane", "Conflict").has(t, "Location", "")
			check.Equal(t, n.manage("GET", "/users/jane", "").body, before, "details")
			check.Equal(t, fmt.Sprint(n.signsIn("jane", "pw-1"), n.signsIn("jane", "pw-2")), "true false", "passwords")
			n.manage("POST", "/users/jane/command/disable", "").commanded(t, 200, "jane", "Success")
			n.manage("POST", "/users/", `{"loginName":"jane","password":"pw-1"}`).commanded(t, 201, "jane", "Success")
			n.manage("POST", "/users/", `{"loginName":"jane","password":"pw-2"}`).commanded(t, 409, "jane", "Conflict")
			check.Equal(t, *n.account("jane").Disabled, true, "disabled")
		}},
		{"missing groups and full name", func(t *testing.T, n *node) {
			for i, more := range []string{"", `,"groups":null,"fullName":null`, `,"groups":[],"fullName":""`} {
				login := fmt.Sprint("u", i)
				n.manage("POST", "/users/", `{"loginName":"`+login+`","password":"p"`+more+`}`).is(t, 201)
				d := n.account(login)
				if d.Groups == nil || len(d.Groups) != 0 || d.FullName != "" {
					t.Errorf("%q gave %+v", more, d)
				}
			}
		}},
		{"update replaces name and groups alone", func(t *testing.T, n *node) {
			n.create("jane", "a", "b")
			n.manage("PUT", "/users/jane/command/disable", "").commanded(t, 200, "jane", "Success")
			n.manage("PUT", "/users/jane", `{"fullName":"New","groups":["c"]}`).commanded(t, 200, "jane", "Success")
			d := n.account("jane")
			check.Equal(t, fmt.Sprint(d.FullName, d.Groups, *d.Disabled), "New[c] true", "user")
			n.manage("PUT", "/users/jane", `{"FullName":"Third","loginName":"other","password":"x"}`).commanded(t, 200, "jane", "Success")
			d = n.account("jane")
			check.Equal(t, fmt.Sprint(d.LoginName, d.FullName, d.Groups, *d.Disabled), "janeThird[] true", "user")
			n.manage("PUT", "/users/jane", `{}`).is(t, 200)
			check.Equal(t, n.account("jane").FullName, "", "cleared")
			n.manage("PUT", "/users/jane/command/enable", "").is(t, 200)
			check.Equal(t, fmt.Sprint(n.signsIn("jane", "pw-1"), n.signsIn("jane", "x")), "true false", "passwords")
			n.manage("PUT", "/users/none", `{"fullName":"x"}`).commanded(t, 404, "none", "NotFound")
		}},
		{"enable and disable", func(t *testing.T, n *node) {
			n.create("jane")
			for _, method := range []string{"POST", "PUT"} {
				for range 2 {
					n.manage(method, "/users/jane/command/disable", "").commanded(t, 200, "jane", "Success")
					check.Equal(t, n.signsIn("jane", "pw-1"), false, "signs in")
				}
				d := n.account("jane")
				check.Equal(t, fmt.Sprint(*d.Disabled, d.Links[4]), "true {"+base+"/users/jane/command/enable enable}", "last link")
				for _, body := range []string{"", "{}"} { // Clients send either.
					n.manage(method, "/users/jane/command/enable", body).commanded(t, 200, "jane", "Success")
					check.Equal(t, n.signsIn("jane", "pw-1"), true, "signs in")
				}
				check.Equal(t, n.account("jane").Links[4].Rel, "disable", "last link")
				n.manage(method, "/users/none/command/enable", "").commanded(t, 404, "none", "NotFound")
				n.manage(method, "/users/none/command/disable", "").commanded(t, 404, "none", "NotFound")
			}
		}},
		{"a disabled user can be read, updated and given a password", func(t *testing.T, n *node) {
			n.create("jane")
			n.manage("POST", "/users/jane/command/disable", "").is(t, 200)
			n.manage("POST", "/users/jane/command/reset-password", `{"newPassword":"pw-2"}`).commanded(t, 200, "jane", "Success")
			n.manage("PUT", "/users/jane", `{"fullName":"x"}`).is(t, 200)
			check.Equal(t, n.signsIn("jane", "pw-2"), false, "before")
			n.manage("POST", "/users/jane/command/enable", "").is(t, 200)
			check.Equal(t, fmt.Sprint(n.signsIn("jane", "pw-1"), n.signsIn("jane", "pw-2")), "false true", "passwords")
		}},
		{"delete, and create again", func(t *testing.T, n *node) {
			n.create("jane", "a")
			check.Equal(t, n.manage("DELETE", "/users/jane", "").is(t, 204).body, "", "body")
			n.manage("GET", "/users/jane", "").is(t, 404)
			check.Equal(t, n.signsIn("jane", "pw-1"), false, "signs in")
			n.manage("DELETE", "/users/jane", "").commanded(t, 404, "jane", "NotFound")
			for _, command := range []string{"enable", "disable"} {
				n.manage("POST", "/users/jane/command/"+command, "").commanded(t, 404, "jane", "NotFound")
			}
			n.manage("POST", "/users/jane/command/reset-password", `{"newPassword":"x"}`).commanded(t, 404, "jane", "NotFound")
			n.manage("POST", "/users/", `{"loginName":"jane","password":"pw-2"}`).is(t, 201)
			d := n.account("jane")
			check.Equal(t, fmt.Sprint(d.FullName, d.Groups, n.signsIn("jane", "pw-2"), n.signsIn("jane", "pw-1")), "[] true false", "user")
		}},
		{"reset password", func(t *testing.T, n *node) {
			n.create("jane")
			n.manage("POST", "/users/jane/command/reset-password", `{"NewPassword":"a:b c"}`).commanded(t, 200, "jane", "Success")
			check.Equal(t, fmt.Sprint(n.signsIn("jane", "pw-1"), n.signsIn("jane", "a:b c")), "false true", "passwords")
			n.manage("PUT", "/users/jane/command/reset-password", `{"newPassword":"x"}`).is(t, 405)
		}},
		{"change password", func(t *testing.T, n *node) {
			n.create("jane")
			n.create("joe")
			const path, right = "/users/jane/command/change-password", `{"currentPassword":"pw-1","newPassword":"pw-2"}`
			send := func(login, password, body string) answer {
				return n.do("POST", path, body, as(login, password, "Content-Type", appJSON))
			}
			for _, login := range []string{"admin", "ops"} {
				send(login, "changeit", right).is(t, 401).bare(t)
			}
			send("joe", "pw-1", right).is(t, 401)
			n.do("POST", path, right, with("Content-Type", appJSON)).is(t, 401)
			for _, wrong := range []string{"pw", "", "pw-2", "PW-1"} {
				send("jane", "pw-1", `{"currentPassword":"`+wrong+`","newPassword":"pw-2"}`).commanded(t, 401, "jane", "Unauthorized")
			}
			check.Equal(t, fmt.Sprint(n.signsIn("jane", "pw-1"), n.signsIn("jane", "pw-2")), "true false", "passwords")
			send("jane", "pw-1", right).commanded(t, 200, "jane", "Success")
			check.Equal(t, fmt.Sprint(n.signsIn("jane", "pw-1"), n.signsIn("jane", "pw-2")), "false true", "passwords")
			n.do("PUT", path, right, as("jane", "pw-2", "Content-Type", appJSON)).is(t, 405)
		}},
		{"list", func(t *testing.T, n *node) {
			n.create("jane", "x")
			n.create("Zoe")
			for _, path := range []string{"/users/", "/users", "/users?format=json"} {
				var e usersEnvelope
				n.unmarshal(n.manage("GET", path, "").is(t, 200), &e)
				var logins []string
				for _, d := range e.Data {
					logins = append(logins, d.LoginName)
					check.Equal(t, len(d.Links), 5, "links")
				}
				check.Equal(t, fmt.Sprint(logins, e.Success), "[Zoe admin jane ops] true", "list")
			}
		}},
		{"built-in users", func(t *testing.T, n *node) {
			for login, want := range map[string]string{"admin": "Event Store Administrator[$admins]", "ops": "Event Store Operations[$ops]"} {
				d := n.account(login)
				check.Equal(t, fmt.Sprint(d.FullName, d.Groups), want, login)
			}
			n.manage("DELETE", "/users/ops", "").is(t, 204)
			n.manage("GET", "/users/ops", "").is(t, 404)
		}},
		{"the caller", func(t *testing.T, n *node) {
			n.create("jane", "g1")
			for _, path := range []string{"/users/$current", "/users/%24current", "/users/jane"} {
				var e userEnvelope
				n.unmarshal(n.do("GET", path, "", as("jane", "pw-1")).is(t, 200), &e)
				check.Equal(t, fmt.Sprint(e.Data.LoginName, e.Data.Groups, *e.Data.Disabled), "jane[g1] false", path)
				n.do("GET", path, "", nil).is(t, 401)
			}
			n.do("GET", "/users/admin", "", as("jane", "pw-1")).is(t, 401)
			n.do("GET", "/users/jane", "", as("ops", "changeit")).is(t, 401)
			n.do("GET", "/users/Jane", "", as("jane", "pw-1")).is(t, 401)
			n.manage("GET", "/users/Jane", "").is(t, 404)
			n.manage("PUT", "/users/$current", "{}").is(t, 405)
			n.manage("DELETE", "/users/$current", "").is(t, 405)
		}},
		{"a login that nobody can have", func(t *testing.T, n *node) {
			path := "/users/" + strings.Repeat("x", 61435)
			n.manage("GET", path, "").is(t, 404)
			n.manage("PUT", path, "{}").is(t, 404)
			n.manage("DELETE", path, "").is(t, 404)
			n.manage("POST", path+"/command/disable", "").is(t, 404)
			n.manage("POST", path+"/command/reset-password", `{"newPassword":"x"}`).is(t, 404)
		}},
		{"logins of all kinds", func(t *testing.T, n *node) {
			for _, login := range []string{
				"a/b", "a b", "$x", "$currently", "jürgen", "日本", "a%2Fb", "a+b", "a?b#c", "command", "x/command/enable", `"\`, "<&>", "system", "..", "é\u0301", "𝒜",
			} {
				n.create(login, "g")
				d := n.account(login)
				check.Equal(t, d.LoginName, login, "login")
				want := base + "/users/" + strings.ReplaceAll(url.QueryEscape(login), "+", "%20")
				check.Equal(t, d.Links[2].Href, want, "edit")
				check.Equal(t, n.signsIn(login, "pw-1"), true, "signs in")
				for _, l := range d.Links[4:] {
					n.manage("POST", strings.TrimPrefix(l.Href, base), "").is(t, 200)
				}
				check.Equal(t, n.signsIn(login, "pw-1"), false, "signs in")
				n.manage("DELETE", strings.TrimPrefix(d.Links[3].Href, base), "").is(t, 204)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Time passes only while all goroutines wait: failed logins are slowed.
			synctest.Test(t, func(t *testing.T) { c.test(t, newNode(t)) })
		})
	}
}

func TestUsersContract(t *testing.T) {
	usersContract(t, func(t *testing.T, change ...func(*httpapi.Options)) *node {
		n, _ := newUsersNode(t, change...)
		return n
	})
}
