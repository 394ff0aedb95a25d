package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// manage sends a request about users as an administrator.
func (n *node) manage(method, path, body string, headers ...string) answer {
	n.t.Helper()
	if body != "" {
		headers = append(headers, "Content-Type", appJSON)
	}
	return n.do(method, path, body, admin(headers...))
}

// create makes a user whose password is pw-1.
func (n *node) create(login string, groups ...string) {
	n.t.Helper()
	body, err := json.Marshal(map[string]any{"loginName": login, "fullName": "Some One", "groups": groups, "password": "pw-1"})
	check.Must(n.t, err)
	n.manage("POST", "/users/", string(body)).is(n.t, 201)
}

func userPath(login string) string {
	return "/users/" + strings.ReplaceAll(url.QueryEscape(login), "+", "%20")
}

// account reads a user as an administrator.
func (n *node) account(login string) userDetail {
	n.t.Helper()
	a := n.manage("GET", userPath(login), "").is(n.t, 200)
	var e userEnvelope
	n.unmarshal(a, &e)
	if e.Data == nil || !*e.Success || e.Error != "Success" {
		n.t.Fatalf("detail %s", a.body)
	}
	return *e.Data
}

func (n *node) unmarshal(a answer, v any) {
	n.t.Helper()
	a.has(n.t, "Content-Type", "application/json; charset=utf-8")
	check.Must(n.t, json.Unmarshal([]byte(a.body), v), "body", a.body)
}

// signsIn reports whether the credentials are right.
func (n *node) signsIn(login, password string) bool {
	n.t.Helper()
	return n.do("GET", "/info", "", as(login, password)).is(n.t, 200, 401).status == 200
}

// commanded checks the envelope of a command.
func (a answer) commanded(t testing.TB, status int, login, outcome string) answer {
	t.Helper()
	want := fmt.Sprintf("{\n  \"loginName\": %q,\n  \"success\": %v,\n  \"error\": %q\n}", login, outcome == "Success", outcome)
	check.Equal(t, a.is(t, status).has(t, "Content-Type", "application/json; charset=utf-8").body, want, "envelope")
	challenged := ""
	if status == 401 {
		challenged = `X-Basic realm="ESDB"`
	}
	return a.has(t, "WWW-Authenticate", challenged)
}

// TestUsersGolden compares whole answers with a file.
func TestUsersGolden(t *testing.T) {
	var file strings.Builder
	n, u := newUsersNode(t)
	say := func(method, path, body string, h http.Header) {
		a := n.do(method, path, body, h)
		fmt.Fprintf(&file, "%s %s %s\n%d %s\n", method, path, body, a.status, http.StatusText(a.status))
		for _, k := range []string{"Content-Type", "Cache-Control", "Location", "Vary", "WWW-Authenticate", "Access-Control-Allow-Methods"} {
			if v := a.header.Get(k); v != "" {
				file.WriteString(k + ": " + v + "\n")
			}
		}
		file.WriteString("\n" + a.body + "\n\n")
	}
	asAdmin := func(method, path, body string) { say(method, path, body, admin("Content-Type", appJSON)) }
	asAdmin("POST", "/users/", `{"loginName":"jane","fullName":"Jane Doe","groups":["billing"],"password":"pw-1"}`)
	asAdmin("POST", "/users/", `{"loginName":"a/b \u00fc","fullName":"\"x\" <y>","groups":["a","b \u00df"],"password":"pw-1"}`)
	asAdmin("POST", "/users/", `{"loginName":"jane","password":"pw-2"}`)
	asAdmin("POST", "/users/", `{"loginName":"jane"}`)
	asAdmin("GET", "/users/jane", "")
	asAdmin("GET", "/users/none", "")
	asAdmin("GET", "/users/", "")
	asAdmin("PUT", "/users/jane", `{"fullName":"Jane Roe"}`)
	asAdmin("PUT", "/users/none", `{"fullName":"x"}`)
	asAdmin("POST", "/users/jane/command/disable", "")
	asAdmin("GET", "/users/jane", "")
	asAdmin("POST", "/users/jane/command/enable", "")
	asAdmin("POST", "/users/jane/command/reset-password", `{"newPassword":"pw-2"}`)
	jane := as("jane", "pw-2", "Content-Type", appJSON)
	say("GET", "/users/$current", "", jane)
	say("GET", "/users/admin", "", jane)
	say("POST", "/users/jane/command/change-password", `{"currentPassword":"x","newPassword":"y"}`, jane)
	say("POST", "/users/jane/command/change-password", `{"currentPassword":"pw-2","newPassword":"y"}`, jane)
	asAdmin("DELETE", "/users/jane", "")
	asAdmin("DELETE", "/users/jane", "")
	say("GET", "/users/$current", "", with("ES-TrustedAuth", "somebody; $admins"))
	say("GET", "/users/", "", nil)
	for _, err := range []error{event.ErrWriteTimeout, event.ErrBusy, event.ErrNotReady, errors.New("other")} {
		u.fail = err
		fmt.Fprintf(&file, "# %v\n", err)
		asAdmin("POST", "/users/jane/command/enable", "")
		asAdmin("GET", "/users/jane", "")
	}
	compareFile(t, filepath.Join("testdata", "users.txt"), file.String())
}

// compareFile compares a text with a file, or writes it with -update.
func compareFile(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		check.Must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		check.Must(t, os.WriteFile(name, []byte(got), 0o644))
	}
	want := check.Value(os.ReadFile(name)).Must(t)
	check.Equal(t, got, string(want), name)
}

func TestUserBodies(t *testing.T) {
	n, u := newUsersNode(t)
	n.create("jane")
	const create, update = "/users/", "/users/jane"
	const reset, change = "/users/jane/command/reset-password", "/users/jane/command/change-password"
	const none = "Invalid request. The body is not a JSON object."
	big := strings.Repeat("x", 64<<10)
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		says                     string
	}{
		{"no body", "POST", create, "", 400, none},
		{"not JSON", "POST", create, "{", 400, none},
		{"rubbish behind", "POST", create, `{"loginName":"x","password":"p"}x`, 400, none},
		{"a list", "POST", create, "[]", 400, none},
		{"a text", "POST", create, `"x"`, 400, none},
		{"null", "POST", create, "null", 400, none},
		{"not UTF-8", "POST", create, "{\"loginName\":\"\xff\",\"password\":\"p\"}", 400, none},
		{"byte order mark", "POST", create, "\xef\xbb\xbf" + `{"loginName":"bom","password":"p"}`, 201, ""},
		{"no login", "POST", create, `{"password":"p"}`, 400, "loginName is required and must not be empty."},
		{"null login", "POST", create, `{"loginName":null,"password":"p"}`, 400, "loginName is required"},
		{"empty login", "POST", create, `{"loginName":"","password":"p"}`, 400, "loginName is required"},
		{"login is a number", "POST", create, `{"loginName":1,"password":"p"}`, 400, "loginName must be a text."},
		{"no password", "POST", create, `{"loginName":"x"}`, 400, "password is required and must not be empty."},
		{"empty password", "POST", create, `{"loginName":"x","password":""}`, 400, "password is required"},
		{"password is a boolean", "POST", create, `{"loginName":"x","password":true}`, 400, "password must be a text."},
		{"full name is an object", "POST", create, `{"loginName":"x","password":"p","fullName":{}}`, 400, "fullName must be a text."},
		{"groups is a text", "POST", create, `{"loginName":"x","password":"p","groups":"a"}`, 400, "groups must be a list of texts."},
		{"a group is a number", "POST", create, `{"loginName":"x","password":"p","groups":["a",1]}`, 400, "groups must be a list of texts."},
		{"a group is null", "POST", create, `{"loginName":"x","password":"p","groups":[null]}`, 400, "groups must be a list of texts."},
		{"the last of a name counts", "POST", create, `{"loginName":5,"LOGINNAME":"twice","password":"p","groups":1,"groups":["g"]}`, 201, ""},
		{"the last of a name is wrong", "POST", create, `{"loginName":"x","loginname":5,"password":"p"}`, 400, "loginName must be a text."},
		{"colon in the login", "POST", create, `{"loginName":"a:b","password":"p"}`, 400, "loginName must not hold a colon"},
		{"line feed in the login", "POST", create, `{"loginName":"a\nb","password":"p"}`, 400, "loginName must not hold control characters"},
		{"DEL in the login", "POST", create, `{"loginName":"a\u007f","password":"p"}`, 400, "loginName must not hold control characters"},
		{"C1 in the login", "POST", create, `{"loginName":"a\u0085","password":"p"}`, 400, "loginName must not hold control characters"},
		{"half a surrogate", "POST", create, `{"loginName":"a\ud800","password":"p"}`, 400, "loginName must not hold control characters"},
		{"the caller's name", "POST", create, `{"loginName":"$current","password":"p"}`, 400, "loginName must not be $current"},
		{"longest login", "POST", create, `{"loginName":"` + big[:61434] + `","password":"p"}`, 201, ""},
		{"longer login", "POST", create, `{"loginName":"` + big[:61435] + `","password":"p"}`, 400, "loginName is longer than 61434 bytes."},
		{"too large", "POST", create, `{"loginName":"x","password":"p","x":"` + big + `"}`, 413, "Too large a description of a user."},
		{"update with no body", "PUT", update, "", 400, none},
		{"update with a number", "PUT", update, `{"fullName":7}`, 400, "fullName must be a text."},
		{"update with bad groups", "PUT", update, `{"groups":{}}`, 400, "groups must be a list of texts."},
		{"update too large", "PUT", update, `{"x":"` + big + `"}`, 413, "Too large a description of a user."},
		{"reset without body", "POST", reset, "", 400, none},
		{"reset to nothing", "POST", reset, `{}`, 400, "newPassword is required and must not be empty."},
		{"reset to an empty password", "POST", reset, `{"newPassword":""}`, 400, "newPassword is required"},
		{"reset to a list", "POST", reset, `{"newPassword":[]}`, 400, "newPassword must be a text."},
		{"change without current", "POST", change, `{"newPassword":"x"}`, 400, "currentPassword is required."},
		{"change without new", "POST", change, `{"currentPassword":"pw-1"}`, 400, "newPassword is required"},
		{"change from a number", "POST", change, `{"currentPassword":1,"newPassword":"x"}`, 400, "currentPassword must be a text."},
	} {
		t.Run(c.name, func(t *testing.T) {
			send := func(contentType string) answer {
				h := admin("Content-Type", contentType)
				if c.path == change {
					h = as("jane", "pw-1", "Content-Type", contentType)
				}
				if contentType == "" {
					delete(h, "Content-Type")
				}
				return n.do(c.method, c.path, c.body, h)
			}
			calls := u.calls
			a := send("application/JSON; charset=UTF-8").is(t, c.status)
			if c.status >= 400 {
				a.says(t, c.says)
				check.Equal(t, u.calls, calls, "calls")
			}
			for _, contentType := range []string{"", "text/json", "text/xml", "application/x-www-form-urlencoded", "application/json; charset=latin1"} {
				send(contentType).is(t, 415).bare(t)
			}
		})
	}
	d := n.account("twice")
	check.Equal(t, fmt.Sprint(d.Groups), "[g]", "groups")
}

func TestUserNegotiation(t *testing.T) {
	n, _ := newUsersNode(t)
	for accept, status := range map[string]int{
		"": 200, "*/*": 200, appJSON: 200, "application/*": 200, "application/json, text/plain, */*": 200, "text/xml, application/json;q=0.1": 200,
		textXML: 406, "application/xml": 406, "text/plain": 406, atomJSON: 406, "text/*": 406,
	} {
		check.Equal(t, n.manage("GET", "/users/", "", "Accept", accept).status, status, accept)
		check.Equal(t, n.manage("POST", "/users/ops/command/enable", "", "Accept", accept).status, status, accept)
	}
	n.manage("GET", "/users/?format=json", "", "Accept", textXML).is(t, 200)
	n.manage("GET", "/users/?format=xml", "", "Accept", appJSON).is(t, 406)
	// The form of a request comes before the rights to it, the rest after.
	n.do("POST", "/users/", "{}", nil).is(t, 415)
	n.do("GET", "/users/", "", with("Accept", textXML)).is(t, 406)
	n.do("POST", "/users/", "{", with("Content-Type", appJSON)).is(t, 401)
	n.do("GET", "/users/none", "", nil).is(t, 401)
}

func TestUserRoutes(t *testing.T) {
	const list, detail, current, command, password = "GET, POST, OPTIONS", "GET, PUT, DELETE, OPTIONS", "GET, OPTIONS", "POST, PUT, OPTIONS", "POST, OPTIONS"
	paths := map[string]string{
		"/users": list, "/users/": list, "/%75sers/": list, "/users/jane": detail, "/users/a%2Fb": detail, "/users/%2F": detail, "/users/command": detail,
		"/users/$current": current, "/users/%24current": current, "/users/$Current": detail,
		"/users/jane/command/enable": command, "/users/jane/command/disable": command, "/users/jane/comm%61nd/disable": command,
		"/users/jane/command/reset-password": password, "/users/jane/command/change-password": password, "/users/$current/command/change-password": password,

		"/users//": "", "/users/jane/": "", "/users/jane/command": "", "/users/jane/command/": "", "/users/jane/command/Enable": "", "/users//command/enable": "",
		"/users/jane/command/enable/": "", "/users/jane/other/enable": "", "/users/a/b": "", "/users/a/b/c/d": "", "/Users/": "", "/users%2Fjane": "", "/usersx": "",
	}
	for path, methods := range paths {
		t.Run(path, func(t *testing.T) {
			n, u := newUsersNode(t)
			status, other := 200, 405
			if methods == "" {
				status, other = 404, 404
			}
			a := n.do("OPTIONS", path, "", nil).is(t, status)
			checkCORS(t, a, methods)
			for _, method := range []string{"GET", "POST", "DELETE", "PUT", "PATCH", "FOO"} {
				if strings.Contains(methods, method) {
					continue
				}
				a := n.manage(method, path, "").is(t, other)
				a.bare(t)
				checkCORS(t, a, methods)
			}
			n.do("OPTIONS", path, "", with("Authorization", wrongCredentials)).is(t, status)
			check.Equal(t, u.calls, 0, "nothing was done")
		})
	}
	without := newNode(t)
	insecure, _ := newUsersNode(t, func(o *httpapi.Options) { o.Insecure = true })
	for path := range paths {
		without.manage("GET", path, "").is(t, 404)
		insecure.manage("GET", path, "").is(t, 404)
	}
}

func TestUserAddresses(t *testing.T) {
	n, _ := newUsersNode(t, func(o *httpapi.Options) { o.AdvertiseHost, o.AdvertisePort = "public.example", 5 })
	proxy := []string{"X-Forwarded-Proto", "https", "X-Forwarded-Prefix", "/db/"}
	n.manage("POST", "/users/", `{"loginName":"a b","password":"p"}`, proxy...).is(t, 201).has(t, "Location", "https://public.example:5/db/users/a%20b")
	var e userEnvelope
	n.unmarshal(n.manage("GET", "/users/a%20b", "", proxy...).is(t, 200), &e)
	const home = "https://public.example:5/db/users/a%20b"
	check.Equal(t, fmt.Sprint(e.Data.Links), fmt.Sprintf("[{%[1]s/command/reset-password reset-password} {%[1]s/command/change-password change-password} "+
		"{%[1]s edit} {%[1]s delete} {%[1]s/command/disable disable}]", home), "links")
}

func TestCallersThatAreNoUsers(t *testing.T) {
	n, _ := newUsersNode(t)
	n.create("system")
	const notFound = "{\n  \"data\": null,\n  \"success\": false,\n  \"error\": \"NotFound\"\n}"
	trusted := with("ES-TrustedAuth", "somebody; $admins")
	check.Equal(t, n.do("GET", "/users/$current", "", trusted).is(t, 404).body, notFound, "trusted")
	n.do("GET", "/users/", "", trusted).is(t, 200)
	n.do("GET", "/users/jane", "", with("ES-TrustedAuth", "jane")).is(t, 404)
	n.do("GET", "/users/joe", "", with("ES-TrustedAuth", "jane")).is(t, 401)
	node := func(method, path, body string) answer {
		r := httptest.NewRequestWithContext(context.WithValue(context.Background(), nodeKey{}, true), method, base+path, strings.NewReader(body))
		r.Header.Set("Content-Type", appJSON)
		return n.serve(r)
	}
	check.Equal(t, node("GET", "/users/$current", "").is(t, 404).body, notFound, "node")
	node("GET", "/users/system", "").is(t, 200)
	// A user of that name is not the node, nor the other way round.
	node("POST", "/users/system/command/change-password", `{"currentPassword":"pw-1","newPassword":"x"}`).is(t, 401)
	n.do("GET", "/users/", "", as("system", "pw-1")).is(t, 401)
}

func TestUserErrors(t *testing.T) {
	n, u := newUsersNode(t, func(o *httpapi.Options) { o.ReferenceStatusCodes = true })
	n.create("jane")
	for _, command := range []string{"disable", "enable"} {
		n.manage("POST", "/users/jane/command/"+command, "").is(t, 200)
		n.manage("PUT", "/users/jane/command/"+command, "").is(t, 200)
	}
	for _, c := range []struct {
		err    error
		status int
		name   string // of the envelope; empty: there is none
		text   string
	}{
		{fmt.Errorf("wrapped: %w", event.ErrUserNotFound), 404, "NotFound", ""},
		{event.ErrUserConflict, 409, "Conflict", ""},
		{event.ErrNotAuthorized, 401, "Unauthorized", ""},
		{event.ErrWriteTimeout, 408, "TryAgain", ""},
		{event.ErrOutcomeUnknown, 408, "TryAgain", ""},
		{context.DeadlineExceeded, 408, "TryAgain", ""},
		{errors.New("other"), 500, "Error", ""},
		{&event.Corruption{File: "x"}, 500, "Error", ""},
		{event.ErrBusy, 503, "", "Server Is Too Busy"},
		{event.ErrNotReady, 503, "", "Server Is Not Ready"},
		{event.ErrDiskFull, 503, "", "Server Is Out Of Disk Space"},
		{&event.NotLeader{Address: leader}, 307, "", ""},
		{&event.NotLeader{}, 503, "", "Server Is Not Ready"},
	} {
		u.fail = c.err
		for _, q := range []struct{ method, path, body string }{
			{"POST", "/users/", `{"loginName":"jane","password":"p"}`}, {"PUT", "/users/jane", "{}"}, {"DELETE", "/users/jane", ""},
			{"POST", "/users/jane/command/enable", ""}, {"POST", "/users/jane/command/reset-password", `{"newPassword":"x"}`},
			{"GET", "/users/jane", ""}, {"GET", "/users/", ""}, {"GET", "/users/$current", ""},
		} {
			a := n.manage(q.method, q.path, q.body)
			retry := ""
			if c.err == event.ErrBusy {
				retry = "5"
			}
			a.has(t, "Retry-After", retry)
			switch {
			case c.status == 307:
				redirects(t, a, q.path)
			case c.name == "":
				a.is(t, c.status).says(t, c.text)
			case q.method == "GET":
				check.Equal(t, a.is(t, c.status).body, "{\n  \"data\": null,\n  \"success\": false,\n  \"error\": \""+c.name+"\"\n}", "body")
			default:
				a.commanded(t, c.status, "jane", c.name)
			}
		}
	}
	u.fail = nil
	n.manage("DELETE", "/users/jane", "").commanded(t, 200, "jane", "Success")
}

func TestUserTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, u := newUsersNode(t)
		u.block = true
		begin := time.Now()
		n.manage("POST", "/users/jane/command/enable", "").commanded(t, 408, "jane", "TryAgain")
		n.manage("GET", "/users/", "").is(t, 408)
		check.Equal(t, time.Since(begin), 20*time.Second, "took")
	})
}

// The leader answers all requests about users.
func TestUsersOnFollower(t *testing.T) {
	reads := []string{"/users/", "/users", "/users/admin", "/users/$current?a=%2F", "/users/a%2Fb"}
	writes := []struct{ method, path, body string }{
		{"POST", "/users/", `{"loginName":"u","password":"p"}`}, {"PUT", "/users/u", "{}"}, {"POST", "/users/u/command/disable", ""},
		{"PUT", "/users/u/command/enable", ""}, {"POST", "/users/u/command/reset-password", `{"newPassword":"x"}`}, {"DELETE", "/users/u", ""},
	}
	for _, relayWrites := range []bool{false, true} {
		t.Run(fmt.Sprint("relays writes: ", relayWrites), func(t *testing.T) {
			behind, stored := newUsersNode(t)
			relay := &relayTo{handler: behind.handler}
			n, u := newUsersNode(t, func(o *httpapi.Options) { o.Relay, o.RelayWrites = relay, relayWrites })
			n.cluster.role, n.cluster.leader = "follower", leader
			behind.create("a/b")
			asked := 0
			for _, path := range reads {
				a := n.manage("GET", path, "", "ES-RequireLeader", "True").is(t, 200)
				asked++
				check.Equal(t, relay.asked, asked, "relayed")
				check.Equal(t, strings.Contains(a.body, base+"/users/"), true, "links")
				n.manage("HEAD", path, "").is(t, 200)
				asked++
				redirects(t, n.manage("GET", path, "", "Annals-Relayed", "1"), path)
			}
			for _, w := range writes {
				if !relayWrites {
					h := admin("Content-Type", appJSON)
					redirects(t, n.untouched(t, w.method, w.path, h), w.path)
					continue
				}
				n.manage(w.method, w.path, w.body).is(t, 200, 201, 204)
				asked++
			}
			check.Equal(t, relay.asked, asked, "relayed")
			// Rights are this node's to check, before anything goes to the leader.
			for _, w := range writes {
				n.do(w.method, w.path, w.body, with("Content-Type", appJSON)).is(t, 401)
				n.do(w.method, w.path, w.body, as("ops", "changeit", "Content-Type", appJSON)).is(t, 401)
			}
			n.do("GET", "/users/", "", as("ops", "changeit")).is(t, 401)
			n.do("POST", "/users/", "", admin()).is(t, 415)
			// And the leader's again.
			delete(stored.users, "admin")
			n.manage("GET", "/users/", "").is(t, 401)
			asked++
			check.Equal(t, relay.asked, asked, "relayed")
			check.Equal(t, u.calls, 0, "asked here")

			// What the relay itself says has what every answer has.
			relay.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
			checkCORS(t, n.manage("GET", "/users/", "").is(t, 500), "GET, POST, OPTIONS")
			relay.handler = nil // It cannot.
			redirects(t, n.manage("GET", "/users/", ""), "/users/")
			n.cluster.leader = "" // No node leads.
			n.manage("GET", "/users/", "").is(t, 503).says(t, "Server Is Not Ready")
			n.untouched(t, "PUT", "/users/u", admin("Content-Type", appJSON)).is(t, 503)
			n.cluster.role, n.cluster.confirm = "leader", event.ErrNotReady
			n.manage("GET", "/users/", "").is(t, 503)
			check.Equal(t, u.calls, 0, "asked here")
		})
	}
	n, _ := newUsersNode(t)
	n.cluster.role, n.cluster.leader = "follower", leader
	redirects(t, n.manage("GET", "/users/$current", ""), "/users/$current")
}

func TestUsersAreSorted(t *testing.T) {
	n, u := newUsersNode(t)
	u.users = map[string]*memUser{"admin": u.users["admin"]}
	var e usersEnvelope
	n.unmarshal(n.manage("GET", "/users/", "").is(t, 200), &e)
	check.Equal(t, len(e.Data), 1, "list")
	if e.Data[0].DateLastUpdated != nil || !slices.Equal(e.Data[0].Groups, []string{"$admins"}) {
		t.Errorf("%+v", e.Data[0])
	}
}
