package httpapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// logged returns a logger and what was written to it since the last call,
// without times.
func logged() (hclog.Logger, func() string) {
	var mu sync.Mutex
	var b bytes.Buffer
	l := hclog.New(&hclog.LoggerOptions{Output: &b, Mutex: &mu, DisableTime: true})
	return l, func() string {
		mu.Lock()
		defer mu.Unlock()
		s := b.String()
		b.Reset()
		return s
	}
}

var duration = regexp.MustCompile(`duration=\S+`)

func TestRequestLog(t *testing.T) {
	log, lines := logged()
	relay := &relayTo{handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "relayed")
		_, _ = io.WriteString(w, " answer")
	})}
	n, u := newUsersNode(t, func(o *httpapi.Options) { o.Logger, o.LogRequests, o.Relay, o.RelayWrites = log, true, relay, true })
	u.users["a b\x1b\n"] = &memUser{password: "secret"}
	long := strings.Repeat("é", 300)
	for _, c := range []struct {
		name, method, path, body string
		header                   http.Header
		want                     string
	}{
		{"read", "GET", "/ping", "", nil, `method=GET path=/ping status=200 bytes=49 duration=D remote=192.0.2.1:1234 login="" proto=HTTP/1.1`},
		{"caller", "GET", "/streams/a%2Fb?x=1", "", admin(), `method=GET path="/streams/a%2Fb" status=404 bytes=9 duration=D remote=192.0.2.1:1234 login=admin proto=HTTP/1.1`},
		{"no body", "HEAD", "/ping", "", admin(), `method=HEAD path=/ping status=200 bytes=0 duration=D remote=192.0.2.1:1234 login=admin proto=HTTP/1.1`},
		{"refused", "GET", "/ping", "", with("Authorization", wrongCredentials), `method=GET path=/ping status=401 bytes=12 duration=D remote=192.0.2.1:1234 login="" proto=HTTP/1.1`},
		{"no route", "GET", "/" + long, "", nil, `method=GET path="/` + strings.Repeat("%C3%A9", 42) + `%C3..." status=404 bytes=9 duration=D remote=192.0.2.1:1234 login="" proto=HTTP/1.1`},
		{"control characters", "GET", "/ping", "", as("a b\x1b\n", "secret"), `method=GET path=/ping status=200 bytes=49 duration=D remote=192.0.2.1:1234 login="a b\x1b\n" proto=HTTP/1.1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.do(c.method, c.path, c.body, c.header)
			check.Equal(t, duration.ReplaceAllString(lines(), "duration=D"), "[INFO]  access: request: "+c.want+"\n", "line")
		})
	}
	n.cluster.role, n.cluster.leader = "follower", leader
	check.Equal(t, n.do("DELETE", "/users/u", "", admin()).is(t, 200).body, "relayed answer", "body")
	check.Contains(t, lines(), "status=200 bytes=14 ", "line")
	relay.handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	func() {
		defer func() { _ = recover() }()
		n.do("DELETE", "/users/u", "", admin())
	}()
	check.Contains(t, lines(), "status=0 bytes=0 ", "line")
	quiet, _ := newUsersNode(t, func(o *httpapi.Options) { o.Logger = log })
	quiet.do("GET", "/ping", "", nil)
	quiet.do("GET", "/ping", "", with("Authorization", wrongCredentials))
	check.Equal(t, lines(), "", "lines")
}

// TestFailedLogins: wrong credentials are logged, and a right that is missing is not.
func TestFailedLogins(t *testing.T) {
	log, lines := logged()
	n, _ := newUsersNode(t, func(o *httpapi.Options) { o.RefusedLogins = api.NewRefusedLogins(log) })
	const refused = "[WARN]  credentials were refused: login="
	for _, c := range []struct {
		name   string
		header http.Header
		want   string
	}{
		{"wrong password", as("admin", "secret"), refused + "admin remote=192.0.2.1:1234\n"},
		{"no colon", with("Authorization", "Basic c2VjcmV0"), ""}, // Such a header names no user.
		{"trusted", with("ES-TrustedAuth", "a;b;c"), refused + `"" remote=192.0.2.1:1234` + "\n"},
		{"right", admin(), ""},
		{"nobody", nil, ""},
	} {
		n.do("GET", "/ping", "", c.header)
		if got := lines(); strings.Contains(got, "secret") || got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	n.do("GET", "/users/", "", with("ES-TrustedAuth", "jane")).is(t, 401)
	check.Equal(t, lines(), "", "a right that is missing")
}

func TestBusyAuthentication(t *testing.T) {
	n := newNode(t, func(o *httpapi.Options) { o.Access = busyAccess{o.Access} })
	for _, path := range []string{"/ping", "/streams/s", "/none"} {
		n.get(path, "").is(t, 503).says(t, "Server Is Too Busy").has(t, "Retry-After", "5").has(t, "WWW-Authenticate", "")
	}
	n = newNode(t)
	n.store.set(event.ErrBusy, false)
	n.get("/streams/s", "").is(t, 503).has(t, "Retry-After", "")
}

type busyAccess struct{ api.Access }

func (busyAccess) Authenticate(*http.Request) (p access.Principal, err error) {
	return p, fmt.Errorf("check password: %w", event.ErrBusy)
}

func TestDisableAtomPub(t *testing.T) {
	n := newNode(t, func(o *httpapi.Options) { o.DisableAtomPub = true })
	for _, path := range readPaths {
		n.get(path, "").is(t, 404).bare(t)
		checkCORS(t, n.do("OPTIONS", path, "", nil).is(t, 404), "")
		n.do("GET", path, "", with("Authorization", wrongCredentials)).is(t, 401)
	}
	check.Contains(t, n.get("/info", "").body, `"atomPub": false`)
}

func BenchmarkLoggedEvent(b *testing.B) {
	s := newFixedStore()
	log := hclog.New(&hclog.LoggerOptions{Output: io.Discard})
	h := httpapi.New(httpapi.Options{Node: api.Node{Store: s, Cluster: s, Access: s, Logger: log, LogRequests: true}}).Handler()
	r := httptest.NewRequest("GET", base+"/streams/account-1234/99", nil)
	w := &sink{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
}
