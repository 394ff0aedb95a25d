package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

const leader = "https://leader.example:2113"

// newFollower is a node with two events in s that is not the leader any more.
func newFollower(t testing.TB, change ...func(*httpapi.Options)) *node {
	n := newNode(t, change...)
	n.filled("s", 2)
	n.cluster.role, n.cluster.leader = "follower", leader
	return n
}

// newForwarding is a follower that has the leader do writes.
func newForwarding(t testing.TB, leading *node, change ...func(*httpapi.Options)) *node {
	n := newFollower(t, append(change, func(o *httpapi.Options) { o.RelayWrites = true })...)
	n.store.ahead = leading.store
	return n
}

// redirects checks for an answer that sends the client to the leader.
func redirects(t testing.TB, a answer, path string) {
	t.Helper()
	a.is(t, 307).has(t, "Location", leader+path).has(t, "Content-Type", "text/plain; charset=utf-8")
	check.Equal(t, a.body, "", "body")
}

// readPaths are all forms of path that read, with arguments that are right.
var readPaths = []string{
	"/streams/s", "/streams/s?embed=body", "/streams/s/head/backward/5", "/streams/s/1/5", "/streams/s/0/forward/5", "/streams/a%2Fb%20c/0/forward/5",
	"/streams/s/0", "/streams/s/head", "/streams/s/metadata", "/streams/s/metadata/0", "/streams/s/metadata/head/backward/5", "/streams/s/metadata/0/forward/5",
	"/streams/%24%24s/head", "/streams/$all", "/streams/%24all/head/backward/5", "/streams/$all/" + zeros + "/forward/5",
	"/streams/$all/filtered?exclude-system-events=true", "/streams/$all/filtered/" + zeros + "/forward/5?context=streamid&type=prefix&data=s&a=%2F",
}

var leaderHeaders = []string{"ES-RequireLeader", "ES-RequireMaster", "ES-RequiresMaster", "Kurrent-RequireLeader"}

func TestReadsThatNeedTheLeader(t *testing.T) {
	for _, path := range slices.Concat(readPaths, []string{"/streams/$idx-ce-s", "/streams/$idx-all/0/forward/5", "/query?types=t"}) {
		t.Run(path, func(t *testing.T) {
			n := newFollower(t)
			n.meta1("s")
			local := n.get(path, appJSON)
			for _, name := range leaderHeaders {
				redirects(t, n.get(path, appJSON, name, "True"), path)
				check.Equal(t, n.get(path, appJSON, name, "False").status, local.status, "local")
				n.get(path, appJSON, name, "perhaps").is(t, 400).says(t, "ES-RequireLeader header in wrong format.")
			}
			n.get(path, appJSON, "ES-RequireMaster", "false", "ES-RequireLeader", "TRUE").is(t, 307)
			n.get(path, streamDesc, "ES-RequireLeader", "True").is(t, 307, 406)
			n.do("HEAD", path, "", admin("ES-RequireLeader", "true")).is(t, 307)

			n.cluster.leader = "" // No leader is known.
			check.Equal(t, n.get(path, appJSON).status, local.status, "local")
			n.get(path, appJSON, "ES-RequireLeader", "True").is(t, 503).says(t, "Server Is Not Ready")

			n.cluster.role = "leader"
			check.Equal(t, n.get(path, appJSON, "ES-RequireLeader", "True").status, local.status, "on the leader")
			n.cluster.confirm = &event.NotLeader{Address: leader + "/"}
			redirects(t, n.get(path, appJSON, "ES-RequireLeader", "True"), path)
			n.cluster.confirm = fmt.Errorf("wrapped: %w", event.ErrNotReady)
			n.get(path, appJSON, "ES-RequireLeader", "True").is(t, 503).says(t, "Server Is Not Ready")
			check.Equal(t, n.get(path, appJSON).status, local.status, "unconfirmed")
		})
	}
}

// TestWritesToReadOnlyReplicas: such a node says that it never writes, and where
// that can be done, unless the client asked for the leader or it relays.
func TestWritesToReadOnlyReplicas(t *testing.T) {
	n := newFollower(t)
	n.cluster.role = "readonlyreplica"
	for _, send := range []func(h ...string) answer{
		func(h ...string) answer { return n.batch("s", `[{"eventId":"`+n.id()+`","eventType":"t"}]`, h...) },
		func(h ...string) answer { return n.one("/streams/s", appJSON, "{}", h...) },
		func(h ...string) answer {
			return n.one("/streams/s/metadata", appJSON, "{}", append(h, "ES-EventType", "-")...)
		},
		func(h ...string) answer { return n.delete("s", h...) },
	} {
		a := send().is(t, 500).says(t, "Operation Not Supported on Read Only Replica")
		if !strings.HasPrefix(a.header.Get("Location"), leader+"/streams/s") {
			t.Errorf("Location %q", a.header.Get("Location"))
		}
		send("ES-RequireLeader", "True").is(t, 307)
	}
	n.get("/streams/s", atomJSON).is(t, 200)
	n.cluster.leader = ""
	n.store.set(event.ErrNotReady, false)
	n.one("/streams/s", appJSON, "{}").is(t, 503)
}

// meta1 writes metadata to the stream of a follower as replication would.
func (n *node) meta1(stream string) {
	n.t.Helper()
	role := n.cluster.role
	n.cluster.role = "leader"
	n.meta(stream, `{"a":1}`)
	n.cluster.role = role
}

// unreadable is a body that must not be read.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.ErrUnexpectedEOF
}

// untouched sends a write whose body must stay where it is.
func (n *node) untouched(t *testing.T, method, path string, h http.Header) answer {
	t.Helper()
	r := httptest.NewRequest(method, base+path, unreadable{t})
	r.Header, r.ContentLength = h, maxAppend
	return n.serve(r)
}

const maxAppend = 4 << 20

// writes are all forms of path that write, with headers that are right.
var writes = []struct {
	method, path string
	header       []string
}{
	{"POST", "/streams/s", []string{"Content-Type", eventsJSON}},
	{"POST", "/streams/s?a=%2Fb", []string{"Content-Type", appJSON, "ES-EventType", "t", "ES-EventId", "0f9fad5b-d9cb-469f-a165-70867728950e"}},
	{"POST", "/streams/a%2Fb%20c", []string{"Content-Type", eventsXML}},
	{"POST", "/streams/s/incoming/0f9fad5b-d9cb-469f-a165-70867728950e", []string{"Content-Type", octets, "ES-EventType", "t"}},
	{"POST", "/streams/s/metadata", []string{"Content-Type", appJSON}},
	{"POST", "/streams/%24%24s", []string{"Content-Type", eventsJSON}},
	{"DELETE", "/streams/s", nil},
	{"DELETE", "/streams/s", []string{"ES-HardDelete", "true"}},
}

func TestWritesOnFollower(t *testing.T) {
	for _, c := range writes {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			n := newFollower(t)
			send := func(headers ...string) answer {
				t.Helper()
				return n.untouched(t, c.method, c.path, admin(append(headers, c.header...)...))
			}
			redirects(t, send(), c.path)
			redirects(t, send("ES-RequireLeader", "False"), c.path)
			redirects(t, send("ES-RequireMaster", "True"), c.path)

			// Nothing comes later than the order of checks says.
			h := with(c.header...)
			h.Set("Authorization", wrongCredentials)
			n.untouched(t, c.method, c.path, h).is(t, 401)
			send("Accept", "image/png").is(t, 406)
			send("ES-ExpectedVersion", "soon").is(t, 400).says(t, "ES-ExpectedVersion header in wrong format.")
			send("ES-RequiresMaster", "perhaps").is(t, 400).says(t, "ES-RequireLeader header in wrong format.")

			n.cluster.leader = ""
			send("ES-RequireLeader", "True").is(t, 503).says(t, "Server Is Not Ready")
		})
	}
	n := newFollower(t)
	n.meta1("s")
	n.store.SetMetadata("s", `{"$acl":{"$w":"admin","$d":"admin","$mw":"admin"}}`)
	for _, c := range writes {
		if strings.HasPrefix(c.path, "/streams/a") {
			continue
		}
		n.untouched(t, c.method, c.path, with(c.header...)).is(t, 401) // Rights come first.
	}
	n.untouched(t, "POST", "/streams/s", admin("Content-Type", appJSON)).is(t, 400).says(t, "Must include an event type")
	n.untouched(t, "POST", "/streams/s", admin("Content-Type", appJSON, "ES-EventType", "t")).is(t, 307).says(t, "Forwarding to idempotent URI")
	n.untouched(t, "POST", "/streams/s", admin("Content-Type", "text/plain")).is(t, 415)
	n.untouched(t, "DELETE", "/streams/s", admin("ES-HardDelete", "perhaps")).is(t, 400)
	many := admin("Content-Type", appJSON)
	redirects(t, n.untouched(t, "POST", "/streams", many), "/streams")
	n.untouched(t, "POST", "/streams", admin("Content-Type", appJSON, "ES-RequireLeader", "perhaps")).is(t, 400)
	n.cluster.leader = ""
	many.Set("ES-RequireLeader", "True")
	n.untouched(t, "POST", "/streams", many).is(t, 503).says(t, "Server Is Not Ready")
}

// The store has the last word on who leads.
func TestStoreThatDoesNotLead(t *testing.T) {
	n := newNode(t)
	for _, c := range []struct {
		err    error
		status int
	}{
		{fmt.Errorf("wrapped: %w", &event.NotLeader{Address: leader}), 307},
		{&event.NotLeader{}, 503},
		{event.ErrNotReady, 503},
	} {
		n.store.set(c.err, false)
		for _, a := range map[string]answer{
			"/streams/s":          n.one("/streams/s", appJSON, "{}"),
			"/streams/s/metadata": n.one("/streams/s/metadata", appJSON, "{}", "ES-EventType", "-"),
			"":                    n.delete("s"),
		} {
			a.is(t, c.status)
			if c.status == 503 {
				a.says(t, "Server Is Not Ready")
			} else {
				check.Equal(t, a.body, "", "body")
			}
		}
	}
}

// relayTo is a relay that calls the leader's handler.
type relayTo struct {
	handler http.Handler
	asked   int
	request *http.Request
	to      []event.ID // whom RelayTo was asked for
}

func (l *relayTo) Relay(w http.ResponseWriter, r *http.Request, _ bool) bool {
	l.asked++
	l.request = r
	if r.GetBody != nil {
		r.Body, _ = r.GetBody()
	}
	if l.handler == nil {
		return false
	}
	if len(w.Header()) > 0 {
		panic(fmt.Sprintf("headers %v were set before", w.Header()))
	}
	l.handler.ServeHTTP(w, r)
	return true
}

// TestForwardedWrites: a follower judges a write itself and has the leader do it. Its answers are
// those that the leader gives.
func TestForwardedWrites(t *testing.T) {
	behind := newNode(t)
	relay := &relayTo{handler: behind.handler}
	n := newForwarding(t, behind, func(o *httpapi.Options) { o.Relay = relay })
	n.replicate(20) // It never lags.

	a := n.put("r", `{"a":1}`).has(t, "Location", base+"/streams/r/0")
	checkCORS(t, a, "POST, DELETE, GET, OPTIONS")
	check.Equal(t, len(a.header["Access-Control-Allow-Origin"]), 1, "copies of a header")
	check.Equal(t, behind.get("/streams/r/0", appJSON).is(t, 200).body, `{"a":1}`, "data")
	n.batch("r", `[{"eventId":"`+n.id()+`","eventType":"t","data":{}}]`, "ES-ExpectedVersion", "7").is(t, 400).says(t, "Wrong expected EventNumber").has(t, "ES-CurrentVersion", "0")
	n.one("/streams/r/metadata", appJSON, `{"$maxCount":2}`, "ES-EventType", "-").is(t, 201)
	n.one("/streams/r/incoming/"+n.id(), appJSON, "{}").is(t, 200)
	n.many(manyOf([]string{n.to("r"), n.to("q")}, expects("r", "1"))).is(t, 201)
	n.many(manyOf([]string{n.to("r"), n.to("q")}, expects("r", "1"))).is(t, 409).has(t, "Content-Type", "application/json; charset=utf-8")
	n.delete("r").is(t, 204)
	check.Equal(t, n.store.passed, 7, "passed on")
	n.get("/streams/s", appJSON).is(t, 200)
	n.get("/streams/r", appJSON).is(t, 404)

	// Who asks for the leader is sent there.
	redirects(t, n.delete("r", "ES-RequireLeader", "True"), "/streams/r")
	redirects(t, n.get("/streams/s", appJSON, "ES-RequireLeader", "True"), "/streams/s")
	// What is wrong with a write is found here.
	n.do("POST", "/streams/$x", "[]", with("Content-Type", eventsJSON)).is(t, 401)
	n.one("/streams/r", appJSON, "{}", "ES-ExpectedVersion", "x").is(t, 400)
	n.one("/streams/r", appJSON, "{").is(t, 400).says(t, "Write request body invalid.")
	// A write that another node relayed is done here or not at all.
	redirects(t, n.delete("r", "Annals-Relayed", "1"), "/streams/r")
	// A node that never leads takes no writes.
	n.cluster.role = "readonlyreplica"
	n.delete("r").is(t, 500).says(t, "Operation Not Supported on Read Only Replica")
	n.cluster.role = "follower"
	check.Equal(t, n.store.passed, 7, "passed on")
	check.Equal(t, relay.asked, 0, "relayed")

	// What can become of a write on its way.
	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{fmt.Errorf("%w: %w", event.ErrOutcomeUnknown, event.ErrUnanswered), 500, "Error while forwarding request"},
		{fmt.Errorf("%w: %w", event.ErrNotReady, event.ErrNoLeader), 503, "No Leader Can Be Reached"},
		{fmt.Errorf("%w: %w", event.ErrNotReady, event.ErrEarlierLeader), 503, "The leader is of an earlier version, which does not know this write; nothing was written."},
		{event.ErrOutcomeUnknown, 500, "Delete timeout"},
		{event.ErrNotReady, 503, "Server Is Not Ready"},
		{event.ErrBusy, 503, "Server Is Too Busy"},
	} {
		behind.store.set(c.err, false)
		n.delete("r").is(t, c.status).says(t, c.text)
	}
	behind.store.set(&event.NotLeader{Address: "http://third.example:2113"}, false)
	n.delete("r").is(t, 307).has(t, "Location", "http://third.example:2113/streams/r")
	passed := n.store.passed
	n.cluster.leader = ""
	n.store.ahead = nil
	n.store.set(event.ErrNotReady, false)
	n.delete("r").is(t, 503).says(t, "Server Is Not Ready")
	n.cluster.role = "leader"
	n.store.set(nil, false)
	n.delete("s").is(t, 204)
	check.Equal(t, n.store.passed, passed, "the leader passes nothing on")
}

// The leader would not know a user that a certificate names: no header tells it. A write needs
// none, because this node judged its rights.
func TestSystemIsNotRelayed(t *testing.T) {
	behind, theirs := newSubscriber(t)
	theirs.define("s", "g")
	relay := &relayTo{handler: behind.handler}
	change := func(o *httpapi.Options) { o.Relay, o.Subscriptions = relay, &memSubscriptions{} }
	n := newForwarding(t, behind, change)
	h := with("Content-Type", appJSON, "ES-EventType", "t", "ES-EventId", n.id())
	h.Set("Authorization", "Basic Y2VydGlmaWNhdGU6Y2hhbmdlaXQ=")
	redirects(t, n.do("DELETE", "/subscriptions/s/g", "", h), "/subscriptions/s/g")
	check.Equal(t, relay.asked, 0, "relayed")
	n.do("POST", "/streams/$x", "{}", h).is(t, 201)
	n = newForwarding(t, behind, change, func(o *httpapi.Options) { o.Insecure = true })
	n.do("GET", "/subscriptions/s/g/info", "", h).is(t, 200)
	check.Equal(t, relay.asked, 1, "relayed without security")
}

// The client gets addresses that it can reach, also in a relayed answer.
func TestRelayedAddresses(t *testing.T) {
	behind, theirs := newSubscriber(t, func(o *httpapi.Options) { o.AdvertiseHost, o.AdvertisePort = "leader.example", 9 })
	theirs.define("s", "g")
	for _, c := range []struct {
		name, host string
		header     []string
		advertise  string
		port       int
		want       string
	}{
		{"as the request says", "node.example:2113", nil, "", 0, "http://node.example:2113"},
		{"usual port", "node.example", nil, "", 0, "http://node.example"},
		{"usual port of TLS", "node.example", []string{"X-Forwarded-Proto", "https"}, "", 0, "https://node.example"},
		{"version 6", "[::1]:2113", nil, "", 0, "http://[::1]:2113"},
		{"advertised", "node.example:2113", nil, "public.example", 5, "http://public.example:5"},
		{"proxy", "node.example:2113", []string{"X-Forwarded-Host", "proxy.example", "X-Forwarded-Port", "7", "X-Forwarded-Prefix", "p"}, "", 0, "http://proxy.example:7/p"},
	} {
		t.Run(c.name, func(t *testing.T) {
			relay := &relayTo{handler: behind.handler}
			n := newForwarding(t, behind, func(o *httpapi.Options) {
				o.Relay, o.Subscriptions, o.AdvertiseHost, o.AdvertisePort = relay, &memSubscriptions{}, c.advertise, c.port
			})
			n.replicate(20) // It never lags.
			stream := "/streams/" + strings.ReplaceAll(c.name, " ", "-")
			r := httptest.NewRequest("POST", base+stream, strings.NewReader(`[{"eventId":"`+n.id()+`","eventType":"t","data":{}}]`))
			r.Host, r.Header = c.host, admin(append(c.header, "Content-Type", eventsJSON)...)
			n.serve(r).is(t, 201).has(t, "Location", c.want+stream+"/0")
			r = httptest.NewRequest("GET", base+"/subscriptions/s/g/info", nil)
			r.Host, r.Header = c.host, admin(c.header...)
			before := r.Header.Clone()
			check.Contains(t, n.serve(r).is(t, 200).body, `"`+c.want+"/subscriptions/s/g", "addresses of a relayed answer")
			check.Equal(t, fmt.Sprint(r.Header), fmt.Sprint(before), "own headers")
			check.Equal(t, relay.request.Host, c.host, "host")
		})
	}
}

// A redirect does not wait for the body, and leaves the connection fit for use,
// or says that it is not.
func TestRedirectOverTheWire(t *testing.T) {
	n := newNode(t)
	lead := newNode(t)
	n.cluster.role, n.cluster.leader = "follower", "http://"+listen(t, lead.handler)
	address := listen(t, n.handler)
	const write = "Content-Type: application/octet-stream\r\nES-EventType: t\r\nES-EventId: 0f9fad5b-d9cb-469f-a165-70867728950e\r\n"

	w := dial(t, address)
	for range 3 {
		w.send(request("POST", "/streams/s", write, "{}"))
		status, body := w.answer("POST")
		check.Equal(t, status+"|"+body, "307 Temporary Redirect|", "small body")
	}
	w.send(fmt.Sprintf("POST /streams/s HTTP/1.1\r\nHost: h\r\n%sContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", write, maxAppend))
	r := check.Value(http.ReadResponse(w.r, nil)).Must(t)
	check.Equal(t, r.Status, "307 Temporary Redirect", "large body announced")
	check.Equal(t, r.Close, true, "connection ends")
	check.Equal(t, check.Err(w.r.ReadByte()), io.EOF, "the connection goes on")

	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	t.Cleanup(client.CloseIdleConnections)
	body := strings.Repeat("x", 4_000_000)
	for _, expect := range []string{"100-continue", ""} {
		stream := "/streams/followed" + expect
		req, err := http.NewRequest("POST", "http://"+address+stream, strings.NewReader(body))
		check.Must(t, err)
		req.Header = with("Content-Type", octets, "ES-EventType", "t", "ES-EventId", n.id())
		if expect != "" {
			req.Header.Set("Expect", expect)
		}
		resp, err := client.Do(req)
		check.Must(t, err)
		check.NoError(t, resp.Body.Close())
		check.Equal(t, fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("Location")), "201 "+n.cluster.leader+stream+"/0", "followed")
		check.Equal(t, len(lead.get(stream+"/0", octets).is(t, 200).body), len(body), "data")
	}
}

// The phrase of the leader's status line gets through a relay on a real connection.
func TestRelayedPhrase(t *testing.T) {
	behind, _ := newUsersNode(t)
	n, _ := newUsersNode(t, func(o *httpapi.Options) { o.Relay, o.RelayWrites = &relayTo{handler: behind.handler}, true })
	n.cluster.role, n.cluster.leader = "follower", leader
	w := dial(t, listen(t, n.handler))
	for range 2 {
		w.send(request("POST", "/users/", "Content-Type: application/json\r\nAuthorization: "+admin().Get("Authorization")+"\r\n", "["))
		const text = "Invalid request. The body is not a JSON object."
		status, body := w.answer("POST")
		check.Equal(t, status+"|"+body, "400 "+text+"|"+text, "answer")
	}
	if w.r.Buffered() > 0 {
		rest, err := bufio.NewReader(w.r).ReadString(0)
		t.Errorf("more came: %q, %v", rest, err)
	}
}
