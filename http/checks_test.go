package httpapi_test

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

const wrongCredentials = "Basic YWRtaW46d3Jvbmc="

func TestRoutes(t *testing.T) {
	const guid = "0f9fad5b-d9cb-469f-a165-70867728950e"
	const stream, page, metadata, incoming = "POST, DELETE, GET, OPTIONS", "GET, OPTIONS", "GET, POST, OPTIONS", "POST, OPTIONS"
	for path, methods := range map[string]string{
		"/streams/s": stream, "/streams/s/": stream, "/streams/$all": stream, "/streams/%24all/": stream,
		"/streams/s/0": page, "/streams/s/head": page, "/streams/s/0/1": page, "/streams/s/0/backward/1": page, "/streams/s/0/forward/1": page,
		"/streams/s/incoming": page, "/streams/s/incoming/" + guid: incoming, "/streams/$all/incoming/" + guid: incoming,
		"/streams/s/metadata": metadata, "/streams/s/metadata/": metadata, "/streams/$all/metadata": metadata,
		"/streams/s/metadata/0": page, "/streams/s/metadata/0/1": page, "/streams/s/metadata/0/backward/1": page, "/streams/s/metadata/0/forward/1": page,
		"/streams/$all/0": page, "/streams/$all/0/1": page, "/streams/$all/0/backward/1": page, "/streams/$all/0/forward/1": page,
		"/streams/$all/filtered": page, "/streams/$all/filtered/0/1": page, "/streams/$all/filtered/0/backward/1": page, "/streams/$all/filtered/0/forward/1": page,
		"/streams/%6det%61data/metadata": metadata, "/streams/s/%6det%61data": metadata, "/%73treams/s": stream,
		"/ping": page, "/streams": "POST, OPTIONS", "/info": page, "/": page, "/web": page, "/health/live": "GET, HEAD, OPTIONS",

		"/streams/": "", "/streams//": "", "/streams//0": "", "/streams/s/0/": "", "/streams/s//": "", "/streams/s//0": "",
		"/streams/s/0/sideways/1": "", "/streams/s/0/forward/1/2": "", "/streams/s/0/forward/1/": "", "/streams/s/metadata/0/": "",
		"/streams/s/metadata/0/1/2/3/4": "", "/streams/$all/filtered/": "", "/streams/s/incoming/": "", "/streams/a/b/c/d": "",
		"/streams/s/0/forward": "", "/other": "", "/Streams/s": "", "/streams%2Fs": "", "//streams/s": "",
	} {
		if path == "/streams/s/0/forward" { // A page whose count is the word: it has a route.
			methods = page
		}
		t.Run(path, func(t *testing.T) {
			n := newNode(t)
			status := 200
			if methods == "" {
				status = 404
			}
			a := n.do("OPTIONS", path, "", nil).is(t, status)
			a.bare(t)
			checkCORS(t, a, methods)
			for _, method := range []string{"PUT", "PATCH", "TRACE", "FOO"} {
				status := 405
				if methods == "" {
					status = 404
				}
				a := n.do(method, path, "", admin()).is(t, status)
				a.bare(t)
				checkCORS(t, a, methods)
				if path != "/health/live" {
					n.do(method, path, "", with("Authorization", wrongCredentials)).is(t, 401)
				}
			}
			for _, method := range []string{"GET", "POST", "DELETE"} {
				a := n.do(method, path, "", admin("Content-Type", octets, "ES-EventType", "t"))
				check.Equal(t, a.status != 405 && a.status != 404, strings.Contains(methods, method) && a.status != 404, method+" is known")
				checkCORS(t, a, methods)
			}
		})
	}
}

func TestOddTargets(t *testing.T) {
	n := newNode(t)
	for _, method := range []string{"GET", "CONNECT", "FOO"} {
		for _, path := range []string{"", "*", "x"} {
			r := check.Value(http.NewRequest(method, base, nil)).Must(t)
			r.URL.Path = path
			n.serve(r).is(t, 404)
		}
	}
}

func checkCORS(t *testing.T, a answer, methods string) {
	t.Helper()
	a.has(t, "Access-Control-Allow-Origin", "*").has(t, "Access-Control-Allow-Methods", methods).
		has(t, "Access-Control-Expose-Headers", "Location, ES-Position, ES-CurrentVersion").
		has(t, "Access-Control-Allow-Headers", "Content-Type, X-Requested-With, X-Forwarded-Host, X-Forwarded-Prefix, X-PINGOTHER, Authorization, "+
			"ES-LongPoll, ES-ExpectedVersion, ES-EventId, ES-EventType, ES-RequireMaster, ES-RequireLeader, ES-HardDelete, ES-ResolveLinkTos, ES-RequiresMaster, ES-WaitFor, ES-WaitAtMost")
	a.has(t, "X-Content-Type-Options", "nosniff").has(t, "Content-Security-Policy", "default-src 'none'; sandbox")
	if _, ok := a.header["Access-Control-Allow-Methods"]; !ok {
		t.Error("no Access-Control-Allow-Methods")
	}
}

func TestOrderOfChecks(t *testing.T) {
	n := newNode(t)
	n.filled("s", 1)
	n.meta("s", `{"$acl":{"$r":"admin","$w":"admin","$d":"admin","$mr":"admin","$mw":"admin"}}`)
	for _, c := range []struct {
		name, method, path string
		header             http.Header
		status             int
	}{
		{"wrong credentials, no route", "GET", "/nothing", with("Authorization", wrongCredentials), 401},
		{"wrong credentials, OPTIONS", "OPTIONS", "/streams/s", with("Authorization", wrongCredentials), 200},
		{"wrong credentials, OPTIONS, no route", "OPTIONS", "/nothing", with("Authorization", wrongCredentials), 404},
		{"wrong credentials, slash", "GET", "/streams/s/", with("Authorization", wrongCredentials), 401},
		{"wrong credentials, open stream", "GET", "/streams/other", with("Authorization", wrongCredentials), 401},
		{"wrong credentials, ping", "GET", "/ping", with("Authorization", wrongCredentials), 401},
		{"health looks at no credentials", "GET", "/health/live", with("Authorization", wrongCredentials), 204},
		{"anonymous OPTIONS", "OPTIONS", "/streams/s", nil, 200},
		{"method before type", "PUT", "/streams/s", with("Accept", "image/png"), 405},
		{"415 before 406", "POST", "/streams/s", with("Accept", "image/png"), 415},
		{"406 before rights", "GET", "/streams/s", with("Accept", "image/png"), 406},
		{"406 of a change", "DELETE", "/streams/s", with("Accept", "text/html"), 406},
		{"rights before arguments", "GET", "/streams/s/abc", with("Accept", appJSON), 401},
		{"rights before headers", "POST", "/streams/s", with("Content-Type", appJSON), 401},
		{"right to delete", "DELETE", "/streams/s", nil, 401},
		{"right to read metadata", "GET", "/streams/s/metadata", nil, 401},
		{"right to page metadata", "GET", "/streams/s/metadata/0/1", nil, 401},
		{"right to write metadata", "POST", "/streams/s/metadata", with("Content-Type", appJSON), 401},
		{"right of the metadata stream", "GET", "/streams/$$s/0", nil, 401},
		{"right to incoming", "POST", "/streams/s/incoming/x", with("Content-Type", appJSON), 401},
		{"system streams", "GET", "/streams/$x", nil, 401},
		{"rights before existence", "GET", "/streams/$x/7", with("Authorization", "Basic b3BzOmNoYW5nZWl0"), 401},
		{"slash: 415", "POST", "/streams/s/", with("Content-Type", "text/plain"), 415},
		{"slash: 406", "GET", "/streams/s/", with("Accept", "image/png"), 406},
		{"slash: anonymous", "GET", "/streams/s/", nil, 307},
		{"argument before the operation", "GET", "/streams/none/x", admin("Accept", appJSON), 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := n.do(c.method, c.path, "", c.header).is(t, c.status)
			if c.status == 401 {
				a.has(t, "WWW-Authenticate", `X-Basic realm="ESDB"`)
			}
			if c.status == 401 || c.status == 405 || c.status == 406 || c.status == 415 {
				a.bare(t)
			}
		})
	}
	n.access.loading = true
	n.do("GET", "/streams/s", "", admin()).is(t, 503).has(t, "Retry-After", "5").says(t, "Server Is Not Ready")
	n.do("OPTIONS", "/streams/s", "", admin()).is(t, 200)
	n.do("GET", "/streams/other", "", nil).is(t, 404)
}

func TestTrailingSlash(t *testing.T) {
	n := newNode(t)
	for _, c := range []struct{ method, path string }{
		{"GET", "/streams/s/"}, {"DELETE", "/streams/s/"}, {"POST", "/streams/s/"}, {"GET", "/streams/$all/"}, {"GET", "/streams/%24all/"},
		{"GET", "/streams/s/metadata/"}, {"POST", "/streams/s/metadata/"}, {"GET", "/streams/a%2F/"}, {"HEAD", "/streams/s/"},
	} {
		h := with("Content-Type", appJSON, "Accept", appJSON)
		a := n.do(c.method, c.path, "[]", h).is(t, 307).has(t, "Location", base+strings.TrimSuffix(c.path, "/")).
			has(t, "Cache-Control", "max-age=31536000, public")
		if c.method != "HEAD" {
			a.says(t, "Moved Permanently")
		}
	}
	n.do("GET", "/streams/s/?embed=body", "", with("X-Forwarded-Prefix", "p")).is(t, 307).has(t, "Location", base+"/p/streams/s?embed=body")
}

func TestNegotiation(t *testing.T) {
	n := newNode(t)
	n.filled("s", 1)
	for _, c := range []struct{ accept, feed, single string }{
		{"", atomXML, atomXML},
		{"*/*", atomXML, atomXML},
		{" ", atomXML, atomXML},
		{"*", atomXML, atomXML},
		{"application/json, text/plain, */*", appJSON, appJSON},
		{"text/xml;q=0.3,application/vnd.eventstore.atom+json;q=0.9", atomJSON, atomJSON},
		{"image/png,application/json;q=0.1", appJSON, appJSON},
		{"application/json,text/xml", appJSON, appJSON},
		{"TEXT/XML", textXML, textXML},
		{"text/*", textXML, textXML},
		{"application/*", streamDesc, atomXML},
		{"application/*;q=0.1, */*;q=0.5", atomXML, atomXML},
		{"text/xml;q=0.5;level=1, application/json;q=0.7", appJSON, appJSON},
		{"application/json;q=0", appJSON, appJSON},
		{"application/json;q=nonsense,text/xml", appJSON, appJSON},
		{"nonsense,text/xml", textXML, textXML},
		{"nonsense", "", ""},
		{"image/png", "", ""},
		{"image/*", "", ""},
		{octets, "", octets},
		{eventsJSON, eventsJSON, ""},
		{"application/vnd.kurrent.atom+json", "application/vnd.kurrent.atom+json", "application/vnd.kurrent.atom+json"},
		{"application/vnd.kurrent.events+json", "application/vnd.kurrent.events+json", ""},
		{"application/vnd.kurrent.streamdesc+json", "application/vnd.kurrent.streamdesc+json", ""},
		{"text/plain", "", ""},
	} {
		for path, want := range map[string]string{"/streams/s": c.feed, "/streams/s/0": c.single} {
			t.Run(path+" "+c.accept, func(t *testing.T) {
				h := admin()
				if c.accept != "" {
					h.Set("Accept", c.accept)
				}
				a := n.do("GET", path, "", h)
				if want == "" {
					a.is(t, 406).bare(t)
					return
				}
				if want != octets {
					want += "; charset=utf-8"
				}
				a.is(t, 200).has(t, "Content-Type", want)
			})
		}
	}
	for format, want := range map[string]string{
		"json": appJSON, "JSON": appJSON, "xml": textXML, "atom": atomXML, "atomxj": atomJSON, "": atomJSON, "text": "", "nonsense": "",
	} {
		a := n.get("/streams/s?format="+format, atomJSON)
		if want == "" {
			a.is(t, 406)
			continue
		}
		a.is(t, 200).has(t, "Content-Type", want+"; charset=utf-8")
	}
	h := admin("Accept", "image/png")
	h.Add("Accept", appJSON)
	n.do("GET", "/streams/s", "", h).is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8")
	n.get("/streams/s/0/forward/1", streamDesc).is(t, 200).has(t, "Content-Type", atomJSON+"; charset=utf-8")
}

func TestDescription(t *testing.T) {
	n, subs := newSubscriber(t)
	subs.define("a b", "g/1")
	subs.define("a b", "g2")
	subs.define("b", "g2")
	const before = `{"title":"Description document for 'a b'","description":"The description document will be presented when no accept header is present or it was requested",` +
		`"_links":{"self":{"href":"/streams/a%20b","supportedContentTypes":["application/vnd.eventstore.streamdesc+json"]},` +
		`"stream":{"href":"/streams/a%20b","supportedContentTypes":["application/atom+xml","application/vnd.eventstore.atom+json"]}`
	const kinds = `","supportedContentTypes":["application/vnd.eventstore.competingatom+xml","application/vnd.eventstore.competingatom+json"]}`
	const want = before + `,"streamSubscription":[{"href":"/subscriptions/a%20b/g%2F1` + kinds + `,{"href":"/subscriptions/a%20b/g2` + kinds + `]}}`
	for _, path := range []string{"", "/head/backward/5", "/7/5"} {
		check.Equal(t, n.get("/streams/a%20b"+path, streamDesc).is(t, 200).body, want, "document")
	}
	none := strings.ReplaceAll(strings.ReplaceAll(before, "a b", "none"), "a%20b", "none") + "}}"
	check.Equal(t, n.get("/streams/none", streamDesc).body, none, "without groups")
	subs.fail = event.ErrNotReady
	n.get("/streams/a%20b", streamDesc).is(t, 200)
	subs.fail = nil
	n.do("GET", "/streams/$x", "", with("Accept", streamDesc)).is(t, 401)
	n.cluster.role = "follower"
	calls := len(subs.calls)
	check.Equal(t, n.get("/streams/a%20b", streamDesc).is(t, 200).body, before+"}}", "on a follower")
	check.Equal(t, len(subs.calls), calls, "on a follower")
}

func TestCaching(t *testing.T) {
	const open, closed = "max-age=0, no-cache, must-revalidate", "max-age=31536000, private"
	n := newNode(t)
	n.filled("s", 25)
	for _, path := range []string{"/0/forward/20", "/5/forward/20", "/19/backward/20", "/24/backward/3", "/3", "/24/3"} {
		n.get("/streams/s"+path, appJSON).is(t, 200).has(t, "Cache-Control", closed).has(t, "ETag", "").has(t, "Vary", "Accept")
	}
	pages := []string{"", "/6/forward/20", "/head/backward/3", "/30/backward/3", "/25/forward/1", "/head/3"}
	for _, path := range append(pages, "/head") {
		n.get("/streams/s"+path, appJSON).is(t, 200).has(t, "Cache-Control", open).has(t, "ETag", `"24;248368668"`).has(t, "Vary", "Accept")
	}
	for _, path := range append(pages, "/0/forward/20", "/19/backward/20") {
		a := n.get("/streams/s"+path, appJSON, "If-None-Match", `"24;248368668"`).is(t, 304)
		check.Equal(t, a.body, "", "body")
		for _, tags := range []string{`"23;248368668"`, `"24;-1955838367"`, "24;248368668", `"24"`, "", ",", `W/`, `W/"23;248368668"`, `w/"24;248368668"`, `"24;248368668`, `x, "24;248368668"`,
			`"a""24;248368668"`, `"a" "24;248368668"`, `"*"`, `*, *`} {
			n.get("/streams/s"+path, appJSON, "If-None-Match", tags).is(t, 200)
		}
		for _, tags := range []string{`W/"24;248368668"`, "*", " * ", `"23;248368668", "24;248368668"`, `"a,b" ,, W/"", W/"24;248368668"`, `"24;248368668",x`} {
			a := n.get("/streams/s"+path, appJSON, "If-None-Match", tags).is(t, 304).has(t, "ETag", `"24;248368668"`)
			check.Equal(t, a.body, "", "body")
		}
		a = n.do("GET", "/streams/s"+path, "", http.Header{"Accept": {appJSON}, "If-None-Match": {`"x"`, `W/"24;248368668"`}}).is(t, 304)
		n.get("/streams/s"+path, atomJSON, "If-None-Match", `"24;-1955838367"`).is(t, 304)
	}
	for _, tag := range []string{`"-1;248368668"`, "*"} {
		n.get("/streams/none", appJSON, "If-None-Match", tag).is(t, 404)
	}
	n.filled("soft", 1)
	n.delete("soft").is(t, 204)
	n.filled("hard", 1)
	n.delete("hard", "ES-HardDelete", "true").is(t, 204)
	n.get("/streams/soft", appJSON, "If-None-Match", "*").is(t, 404)
	n.get("/streams/hard", appJSON, "If-None-Match", "*").is(t, 410)

	n.meta("s", `{"$cacheControl":12}`)
	for _, path := range pages {
		n.get("/streams/s"+path, appJSON).has(t, "Cache-Control", "max-age=12, private").has(t, "ETag", `"24;248368668"`)
	}
	n.get("/streams/s/0/forward/2", appJSON).has(t, "Cache-Control", closed)

	d := newNode(t, func(o *httpapi.Options) { o.DisableHTTPCaching = true })
	d.filled("s", 2)
	d.meta("s", `{"$cacheControl":12}`)
	for _, path := range []string{"", "/0", "/head", "/0/forward/1", "/metadata"} {
		d.get("/streams/s"+path, appJSON).is(t, 200).has(t, "Cache-Control", open)
	}
}

func TestHead(t *testing.T) {
	n := newNode(t)
	n.filled("s", 2)
	for _, path := range []string{"/streams/s", "/streams/s/0", "/ping"} {
		want := n.get(path, appJSON).is(t, 200)
		a := n.do("HEAD", path, "", admin("Accept", appJSON)).is(t, 200).has(t, "Content-Type", want.header.Get("Content-Type")).
			has(t, "Content-Length", fmt.Sprint(len(want.body)))
		check.Equal(t, a.body, "", "body")
	}
	n.do("HEAD", "/streams/none", "", admin()).is(t, 404)
}

func TestControlHeaders(t *testing.T) {
	n := newNode(t)
	n.filled("s", 2)
	for _, bad := range []string{"0", "-1", "soon", "", "1.5", "+1"} {
		n.get("/streams/s/1/forward/5", appJSON, "ES-LongPoll", bad).is(t, 400).says(t, "ES-LongPoll header in wrong format.")
		n.get("/streams/s", appJSON, "ES-LongPoll", bad).is(t, 200)
		n.get("/streams/s/0", appJSON, "ES-LongPoll", bad).is(t, 200)
	}
	for _, name := range []string{"ES-RequireLeader", "ES-RequireMaster", "ES-RequiresMaster", "Kurrent-RequireLeader"} {
		for _, value := range []string{"True", "false", "TRUE"} {
			n.get("/streams/s", appJSON, name, value).is(t, 200)
			n.one("/streams/s", appJSON, "{}", name, value).is(t, 201)
			n.delete("none", "ES-HardDelete", "true", name, value).is(t, 204, 410)
		}
		for _, path := range []string{"/streams/s", "/streams/s/0/forward/1", "/streams/s/0", "/streams/s/metadata", "/streams/$all"} {
			n.get(path, appJSON, name, "perhaps").is(t, 400).says(t, "ES-RequireLeader header in wrong format.")
		}
	}
	n.one("/streams/k", appJSON, "{}", "Kurrent-EventType", "new", "Kurrent-ExpectedVersion", "-1", "ES-ExpectedVersion", "7").is(t, 201)
	e := decode[entry](t, n.get("/streams/k/0?embed=rich", atomJSON))
	check.Equal(t, *e.EventType, "new", "the new name wins")
	n.one("/streams/k", appJSON, "{}", "Kurrent-EventId", "zz").is(t, 400).says(t, "ES-EventId header in wrong format.")
	n.get("/streams/s", appJSON, "Kurrent-ResolveLinkTos", "perhaps").is(t, 400)
	n.get("/streams/s/5/forward/1", appJSON, "Kurrent-LongPoll", "x").is(t, 400)
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		status [3]int // read, append, delete
		text   [3]string
	}{
		{event.ErrBusy, [3]int{503, 503, 503}, [3]string{"Server Is Too Busy", "Server Is Too Busy", "Server Is Too Busy"}},
		{event.ErrNotReady, [3]int{503, 503, 503}, [3]string{"Server Is Not Ready", "Server Is Not Ready", "Server Is Not Ready"}},
		{event.ErrClosed, [3]int{503, 503, 503}, [3]string{"Server Is Not Ready", "Server Is Not Ready", "Server Is Not Ready"}},
		{event.ErrDiskFull, [3]int{503, 503, 503}, [3]string{"Server Is Out Of Disk Space", "Server Is Out Of Disk Space", "Server Is Out Of Disk Space"}},
		{event.ErrWriteTimeout, [3]int{408, 500, 500}, [3]string{"Server was unable to handle request in time", "Write timeout", "Delete timeout"}},
		{event.ErrOutcomeUnknown, [3]int{408, 500, 500}, [3]string{"Server was unable to handle request in time", "Write timeout", "Delete timeout"}},
		{event.ErrTooLarge, [3]int{413, 413, 413}, [3]string{"Too large events received. Limit is 4mb", "Too large events received. All events of one write together are limited to 16mb", "Too large events received. All events of one write together are limited to 16mb"}},
		{event.ErrStreamDeleted, [3]int{410, 410, 410}, [3]string{"Deleted", "Stream deleted", "Stream deleted"}},
		{&event.Corruption{File: "db/chunk-000002.000000", Offset: 4711}, [3]int{500, 500, 500}, [3]string{
			"Stored data is damaged: chunk-000002.000000 at offset 4711", "Stored data is damaged: chunk-000002.000000 at offset 4711", "Stored data is damaged: chunk-000002.000000 at offset 4711",
		}},
		{errors.New("other"), [3]int{500, 500, 500}, [3]string{"Internal Server Error", "Internal Server Error", "Internal Server Error"}},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			n := newNode(t)
			n.store.set(fmt.Errorf("wrapped: %w", c.err), false)
			n.get("/streams/s", appJSON).is(t, c.status[0]).says(t, c.text[0])
			n.get("/streams/$all/"+zeros+"/forward/1", appJSON).is(t, 200) // Nothing to read.
			n.one("/streams/s", appJSON, "{}").is(t, c.status[1]).says(t, c.text[1])
			n.delete("s").is(t, c.status[2]).says(t, c.text[2])
		})
	}
}

func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.filled("s", 1)
		n.store.set(nil, true)
		took := func(what string, want time.Duration, f func()) {
			t.Helper()
			begin := time.Now()
			f()
			check.Equal(t, time.Since(begin), want, what)
		}
		took("append", 4*time.Second, func() { n.one("/streams/s", appJSON, "{}").is(t, 500).says(t, "Write timeout") })
		took("delete", 4*time.Second, func() { n.delete("s").is(t, 500).says(t, "Delete timeout") })
		took("read", 10*time.Second, func() {
			n.get("/streams/s", appJSON).is(t, 408).says(t, "Server was unable to handle request in time")
		})
		took("$all", 10*time.Second, func() { n.get("/streams/$all", appJSON).is(t, 408) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took("client gone", time.Second, func() {
			n.doContext(ctx, "GET", "/streams/s", "", admin("Accept", appJSON)).is(t, 408, 503)
		})
	})
}

func TestNodeEndpoints(t *testing.T) {
	n := newNode(t)
	check.Equal(t, n.do("GET", "/ping", "", nil).is(t, 200).has(t, "Content-Type", "application/json; charset=utf-8").body,
		"{\n  \"text\": \"Ping request successfully handled\"\n}", "ping")
	check.Equal(t, n.do("GET", "/ping?format=text", "", nil).is(t, 200).has(t, "Content-Type", "text/plain; charset=utf-8").body,
		"Text: Ping request successfully handled", "ping as text")
	check.Equal(t, n.do("GET", "/ping", "", with("Accept", textXML)).body,
		`<?xml version="1.0" encoding="utf-8"?><TextMessage><Text>Ping request successfully handled</Text></TextMessage>`, "ping as XML")
	n.do("GET", "/ping", "", with("Accept", "image/png")).is(t, 406)

	type info struct {
		ESVersion, Version, State, ProjectionsMode string
		Features                                   struct{ Projections, UserManagement, AtomPub bool }
		Authentication                             struct {
			Type       string
			Properties *int
		}
	}
	for _, accept := range []string{"", textXML, appJSON} {
		got := decode[info](t, n.get("/info", accept).has(t, "Content-Type", "application/json; charset=utf-8"))
		want := info{ESVersion: "23.10.0.0", Version: "1.2.3", State: "leader", ProjectionsMode: "None"}
		want.Features.UserManagement, want.Features.AtomPub = true, true
		want.Authentication.Type = "internal"
		check.Equal(t, got, want, "info")
	}
	open := newNode(t, func(o *httpapi.Options) { o.Insecure, o.DisableAdminUI = true, true })
	got := decode[info](t, open.do("GET", "/info", "", nil))
	check.Equal(t, fmt.Sprint(got.Authentication.Type, got.Features.UserManagement), "insecurefalse", "insecure")
	open.do("GET", "/", "", nil).is(t, 404)
	open.do("GET", "/web", "", nil).is(t, 404)

	for _, path := range []string{"/", "/web"} {
		n.do("GET", path, "", nil).is(t, 302).says(t, "Moved").has(t, "Location", base+"/web/index.html")
	}
	n.do("GET", "/health/live", "", nil).is(t, 204)
	n.do("HEAD", "/health/live", "", nil).is(t, 204)
	n.cluster.unready = true
	n.do("GET", "/health/live", "", nil).is(t, 503)
	n.cluster.reads = true // without a leader
	n.do("GET", "/health/live", "", nil).is(t, 204)
	n.cluster.unready, n.cluster.reads = false, false
	n.server.Drain()
	n.do("GET", "/health/live", "", nil).is(t, 503)
}

func TestValidate(t *testing.T) {
	n := newNode(t)
	good := httpapi.Options{Node: api.Node{Store: n.store, Cluster: n.cluster, Access: n.access}, Health: n.cluster, AdvertiseHost: "a.example", AdvertisePort: 2113}
	check.NoError(t, good.Validate())
	for name, spoil := range map[string]func(*httpapi.Options){
		"no store":     func(o *httpapi.Options) { o.Store = nil },
		"no access":    func(o *httpapi.Options) { o.Access = nil },
		"bad host":     func(o *httpapi.Options) { o.AdvertiseHost = "a b" },
		"bad port":     func(o *httpapi.Options) { o.AdvertisePort = 70000 },
		"port below 0": func(o *httpapi.Options) { o.AdvertisePort = -1 },
	} {
		bad := good
		spoil(&bad)
		check.Fails(t, bad.Validate(), name, "is valid")
	}
}

func TestAdvertised(t *testing.T) {
	n := newNode(t, func(o *httpapi.Options) { o.AdvertiseHost, o.AdvertisePort = "public.example", 80 })
	n.filled("s", 1)
	f := n.feed("/streams/s")
	check.Equal(t, f.ID, "http://public.example/streams/s", "advertised")
	f = n.feed("/streams/s", "X-Forwarded-Host", "proxy:5")
	check.Equal(t, f.ID, "http://proxy:5/streams/s", "forwarded")
	n = newNode(t, func(o *httpapi.Options) { o.AdvertiseHost = "::1" })
	n.filled("s", 1)
	f = n.feed("/streams/s")
	check.Equal(t, f.ID, "http://[::1]:2113/streams/s", "address of version 6")
}

// TestOperationsRefuseAnonymous refuses callers without credentials before it
// looks at what they ask for.
func TestOperationsRefuseAnonymous(t *testing.T) {
	n := newOperator(t)
	for path, method := range map[string]string{
		"/admin/mergeindexes": "POST", "/admin/reloadconfig": "POST", "/admin/shutdown": "POST", "/info/options": "GET", "/admin/login": "GET",
		"/sys/subsystems": "GET", "/histogram/no-such-thing": "GET", "/stats/no-such-thing": "GET", "/stats/x?group=false": "GET",
	} {
		n.do(method, path, "", nil).is(t, 401).has(t, "WWW-Authenticate", `X-Basic realm="ESDB"`).bare(t)
	}
	check.Equal(t, len(n.operations.calls), 0, "operations")
	for _, path := range []string{"/info", "/ping"} {
		n.do("GET", path, "", with("Accept", appJSON)).is(t, 200)
		n.do("GET", path, "", with("Accept", appJSON, "Authorization", wrongCredentials)).is(t, 401)
	}
}

func TestMergeIndexesFreshID(t *testing.T) {
	n := newOperator(t)
	type merge struct{ MergeIndexesID event.ID }
	first := decode[merge](t, n.do("POST", "/admin/mergeindexes", "", admin("Accept", appJSON)))
	second := decode[merge](t, n.do("POST", "/admin/mergeindexes", "", admin("Accept", appJSON)))
	check.Equal(t, first == second || first == merge{}, false, "fresh")
	text := n.do("POST", "/admin/mergeindexes", "", admin("Accept", "text/plain")).is(t, 200)
	check.Equal(t, strings.HasPrefix(text.body, "MergeIndexesId: "), true, "text")
	doc := n.do("POST", "/admin/mergeindexes", "", admin("Accept", textXML)).is(t, 200)
	var root struct{ XMLName xml.Name }
	check.Must(t, xml.Unmarshal([]byte(doc.body), &root))
	check.Equal(t, root.XMLName.Local, "MergeIndexesResultDto", "root")
}

func TestLoginTellsWho(t *testing.T) {
	n := newOperator(t)
	type login struct {
		Data struct {
			LoginName string
			Groups    []string
		}
		Success bool
	}
	for _, accept := range []string{"", appJSON} {
		who := decode[login](t, n.get("/admin/login", accept).has(t, "Content-Type", "application/json; charset=utf-8"))
		check.Equal(t, fmt.Sprint(who), "{{admin [$admins]} true}", "who")
	}
	n.do("GET", "/admin/login", "", with("Authorization", wrongCredentials)).is(t, 401)
}

func TestStatsSubPaths(t *testing.T) {
	n := newOperator(t)
	type queues struct {
		ES struct {
			Queue map[string]struct{ QueueName string }
		}
		Proc map[string]any
	}
	full := decode[queues](t, n.get("/stats", appJSON))
	tcp := decode[map[string]any](t, n.get("/stats/proc/tcp", appJSON))
	check.Equal(t, fmt.Sprint(tcp), fmt.Sprint(full.Proc["tcp"]), "sub path")
	for _, q := range full.ES.Queue {
		path := "/stats/es/queue/" + strings.ReplaceAll(url.PathEscape(q.QueueName), "/", "%2F")
		one := decode[struct{ QueueName string }](t, n.get(path, appJSON))
		check.Equal(t, one.QueueName, q.QueueName, path)
	}
	check.Equal(t, n.get("/stats/", appJSON).body, n.get("/stats", appJSON).body, "with a slash")
}

func TestStatsXML(t *testing.T) {
	n := newOperator(t)
	type process struct {
		XMLName xml.Name
		ID      int64 `xml:"id"`
		GC      struct {
			Gen0Size *int64 `xml:"gen0Size"`
		} `xml:"gc"`
	}
	for _, accept := range []string{textXML, "application/xml"} {
		a := n.get("/stats", accept).is(t, 200).has(t, "Content-Type", accept+"; charset=utf-8")
		var doc struct {
			XMLName xml.Name
			Proc    process `xml:"proc"`
		}
		check.Must(t, xml.Unmarshal([]byte(a.body), &doc))
		check.Equal(t, fmt.Sprint(doc.XMLName.Local, doc.Proc.ID, doc.Proc.GC.Gen0Size != nil), "Stats4711 true", "all")
	}
	var part process
	check.Must(t, xml.Unmarshal([]byte(n.get("/stats/proc?format=xml", "").is(t, 200).body), &part))
	check.Equal(t, fmt.Sprint(part.XMLName.Local, part.ID), "Stats4711", "part")
}

// TestLaterNames: what clients of later versions send and read.
func TestLaterNames(t *testing.T) {
	n := newNode(t)
	n.filled("s", 3)
	n.do("POST", "/streams/s", "{}", admin("Content-Type", appJSON, "Kurrent-EventType", "t", "Kurrent-EventId", n.id(), "Kurrent-ExpectedVersion", "7")).
		is(t, 400).has(t, "ES-CurrentVersion", "2").has(t, "Kurrent-CurrentVersion", "2")
	for _, typ := range []string{"atom+json", "event+json", "events+json", "streamdesc+json", "event+xml", "events+xml"} {
		a := n.get("/streams/s", "application/vnd.kurrent."+typ).is(t, 200)
		if !strings.HasPrefix(a.header.Get("Content-Type"), "application/vnd.kurrent.") {
			t.Errorf("%s: %s", typ, a.header.Get("Content-Type"))
		}
	}
	a := n.do("OPTIONS", "/streams/s", "", with("Access-Control-Request-Headers", "content-type, kurrent-eventid")).is(t, 200)
	if !strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "Kurrent-EventId") || len(a.header.Values("Access-Control-Allow-Headers")) != 1 {
		t.Error(a.header.Values("Access-Control-Allow-Headers"))
	}
}
