package httpapi_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// memMembership answers what a test sets and remembers what it was asked for.
type memMembership struct {
	mu    sync.Mutex
	view  event.ClusterView
	state event.NodeState
	fail  error
	block bool
	calls []string
}

func (m *memMembership) View() event.ClusterView { return m.view }

func (m *memMembership) State() event.NodeState { return m.state }

func (m *memMembership) call(ctx context.Context, format string, args ...any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.block {
		<-ctx.Done()
		return ctx.Err()
	}
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
	return m.fail
}

func (m *memMembership) SetPriority(priority int) error {
	return m.call(context.Background(), "priority %d", priority)
}

func (m *memMembership) Resign(ctx context.Context) error { return m.call(ctx, "resign") }

func (m *memMembership) AddMember(ctx context.Context, node string) error {
	return m.call(ctx, "add %s", node)
}

func (m *memMembership) RemoveMember(ctx context.Context, node string) error {
	return m.call(ctx, "remove %s", node)
}

// made returns what was asked for since it was called last.
func (m *memMembership) made() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := strings.Join(m.calls, ", ")
	m.calls = nil
	return calls
}

// threeMembers is a leader, a follower that died, and a replica of which little is known.
func threeMembers() event.ClusterView {
	at := time.Date(2024, 2, 3, 10, 11, 12, 345678999, time.FixedZone("", 3600))
	return event.ClusterView{
		ServerHost: "node-1.example", ServerPort: 2113,
		Members: []event.Member{
			{
				Node: event.ID{1, 2, 3, 15: 1}, Time: at, State: event.StateLeader, Alive: true, Voter: true, Priority: 5, Version: "1.2.3",
				ReplicationHost: "10.0.0.1", ReplicationPort: 1112, ReplicationSecure: true, HTTPHost: "node-1.example", HTTPPort: 2113,
				LastCommit: 4711, Writer: 4900, Chaser: 4900, EpochPosition: 300, EpochNumber: 7, EpochID: event.ID{9, 15: 9},
			},
			{
				Node: event.ID{1, 2, 3, 15: 2}, Time: at.Truncate(time.Second), State: event.StateFollower, Voter: true, Priority: -1, Version: "1.2.3 & <newer>",
				ReplicationHost: "10.0.0.2", ReplicationPort: 1112, HTTPHost: "::1", HTTPPort: 2113,
				LastCommit: 4000, Writer: 4100, Chaser: 4100, EpochPosition: 300, EpochNumber: 7, EpochID: event.ID{9, 15: 9},
			},
			{
				Node: event.ID{1, 2, 3, 15: 3}, State: event.StateReadOnlyLeaderless, Alive: true, ReadOnly: true,
				LastCommit: -1, Writer: -1, Chaser: -1, EpochPosition: -1,
			},
		},
	}
}

func newMember(t testing.TB, change ...func(*httpapi.Options)) (*node, *memMembership) {
	m := &memMembership{view: threeMembers(), state: event.StateReadOnlyReplica}
	set := func(o *httpapi.Options) {
		o.Membership, o.Open = m, api.OpenGossip
	}
	return newNode(t, append([]func(*httpapi.Options){set}, change...)...), m
}

// TestClusterGolden compares the cluster's documents with files, in all formats.
func TestClusterGolden(t *testing.T) {
	n, _ := newMember(t)
	for name, accept := range map[string]string{"json": appJSON, "xml": "application/xml", "text.xml": textXML, "txt": "text/plain"} {
		n.golden("gossip."+name, "/gossip", accept)
		n.golden("members."+name, "/admin/cluster/members", accept)
	}
}

// TestGossipOfANodeWithoutPeers: a node that listens for no peer has an address all
// the same, for clients read the texts of addresses as such.
func TestGossipOfANodeWithoutPeers(t *testing.T) {
	n, m := newMember(t)
	m.view.Members = []event.Member{{State: event.StateLeader, Alive: true, HTTPHost: "10.0.0.1", HTTPPort: 2113}}
	body := n.get("/gossip", appJSON).is(t, 200).body
	for _, want := range []string{`"internalTcpIp": "10.0.0.1"`, `"internalTcpPort": 0`, `"internalSecureTcpPort": 0`} {
		check.Contains(t, body, want, "is missing in")
	}
}

func TestClusterDocuments(t *testing.T) {
	n, m := newMember(t)
	for _, empty := range []bool{false, true} {
		if empty {
			m.view = event.ClusterView{}
		}
		for _, path := range []string{"/gossip", "/admin/cluster/members"} {
			var doc any
			check.NoError(t, json.Unmarshal([]byte(n.get(path, appJSON).is(t, 200).body), &doc), path)
			text := n.get(path, textXML).is(t, 200).body
			check.NoError(t, xml.Unmarshal([]byte(text), new(struct{})), path, "in", text)
			n.get(path, "text/plain").is(t, 200)
		}
	}
	check.Equal(t, n.get("/admin/cluster/members", appJSON).body, "[]", "nobody")
	check.Equal(t, decode[struct{ State string }](t, n.get("/info", "")).State, "readonlyreplica", "state")
}

func TestClusterNegotiation(t *testing.T) {
	n, _ := newMember(t)
	for _, c := range []struct{ accept, format, gossip, admin string }{
		{"", "", appJSON, "text/plain"},
		{"*/*", "", appJSON, "text/plain"},
		{"application/*", "", appJSON, appJSON},
		{"text/*", "", textXML, "text/plain"},
		{"text/plain;q=0.5, application/xml", "", "application/xml", "application/xml"},
		{appJSON, "text", "text/plain", "text/plain"},
		{"text/plain", "json", appJSON, appJSON},
		{"", "xml", textXML, textXML},
		{"", "atom", "", ""},
		{atomXML, "", "", ""},
		{"image/png", "", "", ""},
	} {
		for path, want := range map[string]string{"/gossip": c.gossip, "/admin/cluster/members": c.admin} {
			path := path + "?format=" + c.format
			a := n.get(path, c.accept)
			if want == "" {
				a.is(t, 406).bare(t)
				continue
			}
			a.is(t, 200).has(t, "Content-Type", want+"; charset=utf-8").has(t, "Vary", "Accept").has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate")
		}
	}
	n.do("POST", "/admin/node/resign", "", admin("Accept", "image/png")).is(t, 406)
}

func TestClusterRoutes(t *testing.T) {
	for path, methods := range map[string]string{
		"/gossip":                         "GET, POST, OPTIONS",
		"/admin/node/resign":              "POST, OPTIONS",
		"/admin/node/priority/3":          "POST, OPTIONS",
		"/admin/cluster/members":          "GET, POST, OPTIONS",
		"/admin/cluster/members/h%3a1112": "DELETE, OPTIONS",

		"/gossip/": "", "/gossip/updates": "", "/admin": "", "/admin/": "", "/admin/node": "", "/admin/node/resign/": "", "/admin/node/priority": "",
		"/admin/node/priority/": "", "/admin/node/priority/1/2": "", "/admin/cluster": "", "/admin/cluster/members/": "", "/admin/cluster/members/a/b": "",
	} {
		t.Run(path, func(t *testing.T) {
			n, m := newMember(t)
			status, other := 200, 405
			if methods == "" {
				status, other = 404, 404
			}
			a := n.do("OPTIONS", path, "", nil).is(t, status)
			a.bare(t)
			checkCORS(t, a, methods)
			for _, method := range []string{"GET", "POST", "DELETE", "PUT", "PATCH", "TRACE", "FOO"} {
				if strings.Contains(methods, method) {
					continue
				}
				a := n.do(method, path, "", admin()).is(t, other)
				a.bare(t)
				checkCORS(t, a, methods)
				if methods != "" {
					a.has(t, "Allow", methods)
				}
			}
			n.do("OPTIONS", path, "", with("Authorization", wrongCredentials)).is(t, status)
			check.Equal(t, m.made(), "", "nothing was done")
		})
	}
}

// everyRoute is each operation on the cluster, as it succeeds.
var everyRoute = []struct{ method, path, does string }{
	{"GET", "/gossip", ""},
	{"POST", "/gossip", ""},
	{"POST", "/admin/node/resign", "resign"},
	{"POST", "/admin/node/priority/-7", "priority -7"},
	{"GET", "/admin/cluster/members", ""},
	{"POST", "/admin/cluster/members?node=10.0.0.9:1112", "add 10.0.0.9:1112"},
	{"DELETE", "/admin/cluster/members/10.0.0.9:1112", "remove 10.0.0.9:1112"},
}

func TestClusterCallers(t *testing.T) {
	callers := map[string]string{
		"anonymous": "", "user": "Basic amFuZTpjaGFuZ2VpdA==", "ops": "Basic b3BzOmNoYW5nZWl0", "admin": "Basic YWRtaW46Y2hhbmdlaXQ=", "wrong": wrongCredentials,
	}
	for _, options := range []struct {
		name                        string
		gossip, anonymous, insecure bool
	}{
		{"default", true, false, false}, {"closed", false, false, false}, {"anonymous", false, true, false}, {"insecure", false, false, true},
	} {
		for _, route := range everyRoute {
			for caller, authorization := range callers {
				t.Run(options.name+" "+route.method+" "+route.path+" "+caller, func(t *testing.T) {
					n, m := newMember(t, func(o *httpapi.Options) {
						o.Open = opening(options.anonymous, options.gossip)
						o.Insecure = options.insecure
					})
					n.access.insecure = options.insecure
					allowed := caller == "ops" || caller == "admin"
					if route.path == "/gossip" {
						allowed = allowed || caller == "user" || caller == "anonymous" && (options.gossip || options.anonymous)
					}
					h := with("Content-Type", appJSON)
					if authorization != "" {
						h.Set("Authorization", authorization)
					}
					a := n.do(route.method, route.path, `{"members":[]}`, h)
					if !allowed && !options.insecure {
						a.is(t, 401).has(t, "WWW-Authenticate", `X-Basic realm="ESDB"`)
						a.bare(t)
						check.Equal(t, m.made(), "", "nothing was done")
						return
					}
					a.is(t, 200)
					check.Equal(t, m.made(), route.does, "done")
				})
			}
		}
	}
	n, _ := newMember(t)
	n.access.loading = true
	n.get("/gossip", "").is(t, 503).has(t, "Retry-After", "5")
	n.do("GET", "/gossip", "", nil).is(t, 200)
	// Rights come before parameters.
	n.do("POST", "/admin/node/priority/x", "", nil).is(t, 401)
	n.do("POST", "/admin/cluster/members", "", nil).is(t, 401)
}

func TestRoutesThatAreSwitchedOff(t *testing.T) {
	for _, c := range []struct {
		name          string
		change        func(*httpapi.Options)
		gossip, admin bool
	}{
		{"nothing", func(*httpapi.Options) {}, true, true},
		{"gossip", func(o *httpapi.Options) { o.DisableGossip = true }, false, true},
		{"admin", func(o *httpapi.Options) { o.DisableAdminUI = true }, true, false},
		{"no membership", func(o *httpapi.Options) { o.Membership = nil }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, _ := newMember(t, c.change)
			for _, route := range everyRoute {
				there := c.admin
				if route.path == "/gossip" {
					there = c.gossip
				}
				a := n.do(route.method, route.path, `{"members":[]}`, admin("Content-Type", appJSON))
				if there {
					a.is(t, 200)
				} else {
					a.is(t, 404).bare(t)
				}
			}
			n.do("GET", "/info", "", nil).is(t, 200)
		})
	}
}

func TestPostGossip(t *testing.T) {
	n, m := newMember(t)
	own := n.get("/gossip", appJSON).body
	for _, c := range []struct {
		name, contentType, body string
		status                  int
	}{
		{"own view", appJSON, own, 200},
		{"own view as XML", "application/xml", n.get("/gossip", "application/xml").body, 200},
		{"own view as text/xml", textXML, n.get("/gossip", textXML).body, 200},
		{"a ghost", appJSON, `{"members":[{"instanceId":"0f9fad5b-d9cb-469f-a165-70867728950e","state":"Leader","isAlive":true}]}`, 200},
		{"nobody", appJSON, ` {"Members":[],"other":1}`, 200},
		{"no type", "", own, 415},
		{"other type", "text/plain", own, 415},
		{"events", eventsJSON, own, 415},
		{"no body", appJSON, "", 400},
		{"not JSON", appJSON, "{not gossip", 400},
		{"rubbish behind", appJSON, own + "x", 400},
		{"a list", appJSON, "[]", 400},
		{"no members", appJSON, `{"a":1}`, 400},
		{"members are no list", appJSON, `{"members":{}}`, 400},
		{"a member is a number", appJSON, `{"members":[{},1]}`, 400},
		{"not XML", textXML, "{}", 400},
		{"no body as XML", textXML, "", 400},
		{"XML without members", textXML, "<ClientClusterInfo/>", 400},
		{"JSON said to be XML", "application/xml", own, 400},
		{"too large", appJSON, `{"members":[` + strings.Repeat(" ", 1<<20) + `]}`, 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := with("Accept", appJSON)
			if c.contentType != "" {
				h.Set("Content-Type", c.contentType)
			}
			a := n.do("POST", "/gossip", c.body, h).is(t, c.status)
			switch c.status {
			case 200:
				check.Equal(t, a.body, own, "own view")
			case 400:
				a.says(t, "Invalid request.")
			case 413:
				a.says(t, "Too large a view of the cluster.")
			}
		})
	}
	check.Equal(t, n.get("/gossip", appJSON).body, own, "nothing is taken from it")
	check.Equal(t, m.made(), "", "nothing was done")
}

func TestNodeOrders(t *testing.T) {
	n, m := newMember(t)
	for priority, want := range map[string]string{
		"0": "priority 0", "-5": "priority -5", "+5": "priority 5", "2147483647": "priority 2147483647", "-2147483648": "priority -2147483648",
		"2147483648": "", "1.5": "", "x": "", "0x10": "", "1_0": "", "%20": "", "1e3": "",
	} {
		a := n.do("POST", "/admin/node/priority/"+priority, "ignored", admin("Content-Type", "nonsense", "Accept", "*/*"))
		if want == "" {
			a.is(t, 400).says(t, "nodePriority must be an integer.")
		} else {
			check.Equal(t, a.is(t, 200).has(t, "Content-Type", "text/plain; charset=utf-8").body, "", "body")
		}
		check.Equal(t, m.made(), want, priority)
	}
	for _, body := range []string{"", "{}", "rubbish"} {
		check.Equal(t, n.do("POST", "/admin/node/resign", body, admin()).is(t, 200).body, "", "body")
		check.Equal(t, m.made(), "resign", "resign")
	}
	m.fail = event.ErrNotReady
	n.do("POST", "/admin/node/resign", "", admin()).is(t, 503).says(t, "Server Is Not Ready")
	n.do("POST", "/admin/node/priority/1", "", admin()).is(t, 503)
}

func TestMembers(t *testing.T) {
	n, m := newMember(t)
	const list, member = "/admin/cluster/members", "/admin/cluster/members/10.0.0.2:1112"
	own := n.get(list, appJSON).body
	type row struct {
		NodeID, State, ReplicationAddress, HTTPAddress, Version string
		IsAlive, Voter, ReadOnly                                bool
		Priority                                                int
		WriterCheckpoint, EpochNumber                           int64
	}
	check.Equal(t, decode[[]row](t, n.get(list, appJSON))[1], row{
		NodeID: "01020300-0000-0000-0000-000000000002", State: "Follower", Voter: true, Priority: -1, Version: "1.2.3 & <newer>",
		ReplicationAddress: "10.0.0.2:1112", HTTPAddress: "[::1]:2113", WriterCheckpoint: 4100, EpochNumber: 7,
	}, "second")

	check.Equal(t, n.do("POST", list+"?node=%5b::1%5d:1112&other=1", "ignored", admin("Accept", appJSON)).is(t, 200).body, own, "answer")
	check.Equal(t, m.made(), "add [::1]:1112", "add")
	n.do("POST", list+"?node=01020300-0000-0000-0000-000000000002", "", admin()).is(t, 200).has(t, "Content-Type", "text/plain; charset=utf-8")
	check.Equal(t, m.made(), "add 01020300-0000-0000-0000-000000000002", "add")
	check.Equal(t, n.do("DELETE", list+"/%5B::1%5D:1112", "", admin("Accept", appJSON)).is(t, 200).body, own, "answer")
	check.Equal(t, m.made(), "remove [::1]:1112", "remove")
	for _, query := range []string{"", "?node=", "?node=%20", "?other=1"} {
		n.do("POST", list+query, "", admin()).is(t, 400).says(t, "node must be the id of a node")
	}
	n.do("DELETE", list+"/%20", "", admin()).is(t, 400).says(t, "node must be the id of a node")
	check.Equal(t, m.made(), "", "nothing was done")

	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{&event.NotLeader{Address: leader}, 307, ""},
		{&event.NotLeader{}, 503, "Server Is Not Ready"},
		{event.ErrNotReady, 503, "Server Is Not Ready"},
		{fmt.Errorf("wrapped: %w", &event.MemberError{Text: "The node is a member already."}), 400, "The node is a member already."},
		{event.ErrOutcomeUnknown, 408, "Server was unable to handle request in time"},
		{errors.New("other"), 500, "Internal Server Error"},
	} {
		m.fail = c.err
		for path, a := range map[string]answer{
			list + "?node=h%3A1": n.do("POST", list+"?node=h%3A1", "", admin()),
			member:               n.do("DELETE", member, "", admin()),
		} {
			if c.status == 307 {
				redirects(t, a, path)
				continue
			}
			check.Equal(t, a.is(t, c.status).says(t, c.text).body, c.text, "text")
		}
	}
	n.get(list, "").is(t, 200) // The list is this node's own, also on a follower.
}

func TestMembershipTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, m := newMember(t)
		m.block = true
		for _, c := range []struct{ method, path string }{
			{"POST", "/admin/node/resign"}, {"POST", "/admin/cluster/members?node=h:1"}, {"DELETE", "/admin/cluster/members/h:1"},
		} {
			begin := time.Now()
			n.do(c.method, c.path, "", admin()).is(t, 408).says(t, "Server was unable to handle request in time")
			check.Equal(t, time.Since(begin), 10*time.Second, "took")
		}
	})
}
