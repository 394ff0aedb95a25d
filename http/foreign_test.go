package httpapi_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/internal/check"
)

// What clients say of themselves.
const (
	firefox    = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	powerShell = "Mozilla/5.0 (Windows NT 10.0; Microsoft Windows 10.0.19041; en-US) PowerShell/7.4.1"
	navigation = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
)

// TestForeignPages has browsers make requests for pages of other sites, which change
// nothing where no one is asked who they are, and others make theirs.
func TestForeignPages(t *testing.T) {
	const page = "http://evil.example"
	for _, c := range []struct {
		name, method, path string
		header             http.Header
		open               bool // users are asked
		status             int
	}{
		{name: "cross-site", header: with("Sec-Fetch-Site", "cross-site"), status: 401},
		{name: "cross-site with an origin that looks like ours", header: with("Sec-Fetch-Site", "cross-site", "Origin", base), status: 401},
		{name: "cross-site where users are asked", header: with("Sec-Fetch-Site", "cross-site"), open: true, status: 201},
		{name: "same-origin", header: with("Sec-Fetch-Site", "same-origin", "User-Agent", firefox), status: 201},
		{name: "same-origin behind a proxy of another name", header: with("Sec-Fetch-Site", "same-origin", "Origin", "https://events.example"), status: 201},
		{name: "same-site", header: with("Sec-Fetch-Site", "same-site"), status: 201},
		{name: "same-site, another host", header: with("Sec-Fetch-Site", "same-site", "Origin", "http://shop.example"), status: 401},
		{name: "no page", header: with("Sec-Fetch-Site", "none", "User-Agent", firefox), status: 201},

		{name: "origin", header: with("Origin", page), status: 401},
		{name: "origin with our name in front", header: with("Origin", base+".evil.example"), status: 401},
		{name: "origin with our name as user", header: with("Origin", "http://node.example@evil.example"), status: 401},
		{name: "null origin", header: with("Origin", "null"), status: 401},
		{name: "empty origin", header: with("Origin", ""), status: 401},
		{name: "two origins", header: with("Origin", base, "Origin", page), status: 401},
		{name: "our origin", header: with("Origin", base, "User-Agent", firefox), status: 201},
		{name: "our origin, another port", header: with("Origin", "http://NODE.example.:8080"), status: 201},
		{name: "origin of a proxy that says so", header: with("Origin", "https://events.example", "X-Forwarded-Host", "events.example:443"), status: 201},
		{name: "origin that the operator named", header: with("Origin", "https://ui.corp.example"), status: 201},

		{name: "browser without an origin", header: with("User-Agent", firefox), status: 401},
		{name: "browser of an unknown name", header: with("Accept-Language", "de"), status: 401},
		{name: "navigation", header: with("Accept", navigation), status: 401},
		{name: "navigation, marked", header: with("Upgrade-Insecure-Requests", "1"), status: 401},
		{name: "curl", header: with("User-Agent", "curl/8.5.0", "Accept", "*/*"), status: 201},
		{name: "nothing said", status: 201},
		{name: "fetch of Node.js", header: with("User-Agent", "node", "Accept", "*/*", "Accept-Language", "*", "Sec-Fetch-Mode", "cors"), status: 201},
		{name: "PowerShell", header: with("User-Agent", powerShell), status: 201},

		{name: "delete", method: "DELETE", header: with("Origin", page), status: 401},
		{name: "delete by us", method: "DELETE", header: with("Origin", base), status: 204},
		{name: "reading", method: "GET", header: with("Origin", page), status: 200},
		{name: "navigation that reads", method: "GET", header: with("User-Agent", firefox), status: 200},
		{name: "reading that hands out messages", method: "GET", path: "/subscriptions/s/g/1", header: with("Sec-Fetch-Site", "cross-site"), status: 401},
		{name: "navigation that hands out messages", method: "GET", path: "/subscriptions/s/g/1", header: with("User-Agent", firefox), status: 401},
		// There is no such group.
		{name: "a consumer", method: "GET", path: "/subscriptions/s/g/1", header: with("User-Agent", "Go-http-client/1.1"), status: 404},
		{name: "preflight", method: "OPTIONS", header: with("Origin", page), status: 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, func(o *httpapi.Options) {
				o.Insecure, o.Subscriptions = !c.open, &memSubscriptions{}
				o.HostNames = append(o.HostNames, "*.corp.example")
			})
			n.filled("s", 1)
			h := admin("Content-Type", appJSON, "ES-EventType", "t", "ES-EventId", n.id())
			for key, values := range c.header {
				h[key] = values
			}
			method, path := c.method, c.path
			if method == "" {
				method = "POST"
			}
			if path == "" {
				path = "/streams/s"
			}
			n.do(method, path, "{}", h).is(t, c.status)
		})
	}
}

// TestReadingPages has no page of another site read an answer where no one is asked who
// they are.
func TestReadingPages(t *testing.T) {
	for _, c := range []struct {
		name, origin string
		insecure     bool
		allowed      string
	}{
		{"where users are asked", "http://evil.example", false, "*"},
		{"another site", "http://evil.example", true, ""},
		{"no page", "", true, ""},
		{"null", "null", true, ""},
		{"our host", "http://node.example:8080", true, "http://node.example:8080"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, func(o *httpapi.Options) { o.Insecure = c.insecure })
			n.filled("s", 1)
			for method, paths := range map[string][]string{"GET": {"/streams/s", "/streams/s/0", "/streams/none", "/info", "/nothing", "/ping"}, "OPTIONS": {"/streams/s"}} {
				for _, path := range paths {
					for _, accept := range []string{appJSON, "text/html"} {
						h := admin("Accept", accept)
						if c.origin != "" {
							h.Set("Origin", c.origin)
						}
						a := n.do(method, path, "", h).has(t, "Access-Control-Allow-Origin", c.allowed)
						if varies := strings.Contains(a.header.Get("Vary"), "Origin"); varies != (c.insecure && c.allowed != "") {
							t.Errorf("%s %s: Vary %q", method, path, a.header.Get("Vary"))
						}
					}
				}
			}
		})
	}
}

// TestNamesOfTheNode: where no one is asked who they are, a client that calls the node by a
// name which anyone can have lead here gets nothing.
func TestNamesOfTheNode(t *testing.T) {
	for _, c := range []struct {
		host  string
		known bool
	}{
		{"evil.example", false},
		{"evil.example:2113", false},
		{"node.example.evil.example", false},
		{"127.0.0.1.evil.example", false},
		{"localhost.evil.example", false},
		{"corp.example", false},
		{"evil.example.", false},
		{"node.example:2113", true},
		{"NODE.example.", true},
		{"a.corp.example", true},
		{"localhost:2113", true},
		{"ui.localhost", true},
		{"127.0.0.1:2113", true},
		{"[::1]:2113", true},
		{"192.168.1.7:2113", true}, // An address cannot be led elsewhere.
		{"annals:2113", true},      // As containers are called.
		{"", true},
	} {
		t.Run(c.host, func(t *testing.T) {
			for _, insecure := range []bool{true, false} {
				n := newNode(t, func(o *httpapi.Options) {
					o.Insecure = insecure
					o.HostNames = append(o.HostNames, "*.corp.example")
				})
				n.filled("s", 1)
				ask := func(ctx context.Context, method, path string, header http.Header) int {
					r := httptest.NewRequestWithContext(ctx, method, base+path, nil)
					r.Host, r.Header = c.host, header
					w := httptest.NewRecorder()
					n.handler.ServeHTTP(w, r)
					return w.Code
				}
				ctx := t.Context()
				for _, path := range []string{"/streams/s", "/info", "/nothing", "/streams/s/"} {
					refused := ask(ctx, "GET", path, admin()) == http.StatusMisdirectedRequest
					if refused != (insecure && !c.known) {
						t.Errorf("insecure %t: %s is refused: %t", insecure, path, refused)
					}
				}
				if got := ask(ctx, "GET", "/streams/s", admin("Annals-Node", "leader")); insecure && !c.known && got != http.StatusMisdirectedRequest {
					t.Errorf("asked for the leader: %d", got)
				}
				if got := ask(ctx, "GET", "/health/live", nil); got != http.StatusNoContent {
					t.Errorf("whether it lives: %d", got)
				}
				check.Equal(t, ask(ctx, "OPTIONS", "/streams/s", nil), http.StatusOK, "OPTIONS")
				if got := ask(address.WithJudged(ctx), "GET", "/streams/s", admin()); got != http.StatusOK {
					t.Errorf("passed on by another node: %d", got)
				}
			}
		})
	}
	n := newNode(t, func(o *httpapi.Options) { o.Insecure, o.HostNames = true, []string{"*"} })
	n.filled("s", 1)
	n.get("/streams/s", "").is(t, 200)
}

// TestForwardedNames: no cache gives one client what another client's headers made of an
// answer.
func TestForwardedNames(t *testing.T) {
	n := newNode(t, func(o *httpapi.Options) { o.Subscriptions, o.Users = &memSubscriptions{}, idle{} })
	n.filled("s", 30)
	local := context.WithValue(context.Background(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 2113}))
	paths := []string{"/streams/s/", "/streams/s/metadata/", "/streams/$all/", "/", "/streams/s", "/streams/s/0/forward/20", "/streams/s/0", "/streams/$all/head/backward/5", "/subscriptions?offset=0&count=1"}
	for _, header := range [][2]string{
		{"X-Forwarded-Host", "evil.example"}, {"X-Forwarded-Host", "node.example:666"}, {"X-Forwarded-Port", "666"}, {"X-Forwarded-Proto", "https"},
		{"X-Forwarded-Prefix", "evil"}, {"Host", "evil.example"}, {"Host", "node.example:666"}, {"Host", "10.0.0.8:2113"},
	} {
		for _, path := range paths {
			for _, accept := range []string{atomJSON, atomXML, appJSON} {
				r := httptest.NewRequestWithContext(local, "GET", base+path, nil)
				r.Header = admin("Accept", accept)
				if header[0] == "Host" {
					r.Host = header[1]
				} else {
					r.Header.Set(header[0], header[1])
				}
				w := httptest.NewRecorder()
				n.handler.ServeHTTP(w, r)
				answer := w.Header().Get("Location") + w.Body.String()
				control, vary := w.Header().Get("Cache-Control"), w.Header().Get("Vary")
				switch echoed := strings.Contains(answer, header[1]); {
				case !echoed:
				case strings.Contains(control, "public"):
					t.Errorf("%s of %s with %s: %s", path, accept, header, control)
				case header[0] != "Host" && control != "no-store" && !strings.Contains(vary, header[0]):
					t.Errorf("%s of %s with %s: Vary %q, Cache-Control %q", path, accept, header, vary, control)
				}
			}
		}
	}
	for _, host := range []string{"node.example:2113", "localhost:2113", "10.0.0.7:2113", "127.0.0.1:2113"} {
		r := httptest.NewRequestWithContext(local, "GET", base+"/streams/s/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		n.handler.ServeHTTP(w, r)
		check.Equal(t, w.Header().Get("Location"), "http://"+host+"/streams/s", "Location")
		check.Equal(t, w.Header().Get("Cache-Control"), "max-age=31536000, public", "Cache-Control")
	}
	n.get("/streams/s", atomJSON).has(t, "Vary", "Accept")
	for path, status := range map[string]int{"/streams/none": 404, "/nothing": 404, "/streams/s/x": 400} {
		n.get(path, "").is(t, status).has(t, "Cache-Control", "no-store")
	}
}
