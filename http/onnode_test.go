package httpapi_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// RelayTo sends to the handler, whichever member is asked for, as to the leader.
func (l *relayTo) RelayTo(w http.ResponseWriter, r *http.Request, to *event.Member) bool {
	l.to = append(l.to, to.Node)
	return l.Relay(w, r, false)
}

func (p *transportRelay) RelayTo(w http.ResponseWriter, r *http.Request, _ *event.Member) bool {
	return p.Relay(w, r, false)
}

// viewOf is the cluster of a leader, a follower and one that is dead, as one of them sees it.
func viewOf(node byte) *memMembership {
	view := event.ClusterView{Node: event.ID{15: node}}
	for i, m := range []event.Member{
		{State: event.StateLeader, Alive: true, EpochNumber: 7},
		{State: event.StateFollower, Alive: true, EpochNumber: 7},
		{State: event.StateShutdown},
		// It does not know yet that it leads no more.
		{State: event.StateLeader, Alive: true, EpochNumber: 6},
	} {
		m.Node = event.ID{15: byte(i + 1)}
		view.Members = append(view.Members, m)
	}
	return &memMembership{view: view, state: view.Members[node-1].State}
}

func TestOnNode(t *testing.T) {
	const one, two, dead, unknown = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002",
		"00000000-0000-0000-0000-000000000003", "00000000-0000-0000-0000-0000000000ff"
	const wrong = "Annals-Node must be leader or the id of a node."
	for _, c := range []struct {
		name, method, path, asked string
		header                    []string
		status                    int
		by                        string // who answered
		text                      string
	}{
		{"the leader", "GET", "/streams/s", "leader", nil, 200, one, ""},
		{"a member", "GET", "/streams/s", one, nil, 200, one, ""},
		{"this node", "GET", "/streams/s", two, nil, 200, two, ""},
		{"this node, no stream", "GET", "/streams/none", two, nil, 404, two, ""},
		{"what each node has for itself", "GET", "/info", one, nil, 200, one, `"state": "leader"`},
		{"a probe", "GET", "/health/live", one, nil, 204, one, ""},
		{"no route", "GET", "/nothing", one, nil, 404, one, ""},
		{"head", "HEAD", "/streams/s", one, nil, 200, one, ""},
		{"a write", "POST", "/streams/n", "leader", nil, 201, one, ""},
		{"a write with wrong credentials", "POST", "/streams/n", "leader", []string{"Authorization", wrongCredentials}, 401, one, ""},
		{"a write too many", "POST", "/streams/n", "leader", []string{"ES-ExpectedVersion", "7"}, 400, one, "Wrong expected EventNumber"},
		{"neither", "GET", "/streams/s", "follower", nil, 400, two, wrong},
		{"an address", "GET", "/streams/s", "10.0.0.1:1112", nil, 400, two, wrong},
		{"nothing", "GET", "/streams/s", "", nil, 400, two, wrong},
		{"unknown", "GET", "/streams/s", unknown, nil, 503, two, ""},
		{"dead", "GET", "/streams/s", dead, nil, 503, two, ""},
		{"relayed to this node", "GET", "/streams/s", two, []string{"Annals-Relayed", "1"}, 200, two, ""},
		{"relayed already", "GET", "/streams/s", one, []string{"Annals-Relayed", "1"}, 503, two, ""},
		{"relayed to a leader of before", "GET", "/streams/s", "leader", []string{"Annals-Relayed", "1"}, 503, two, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			behind := newNode(t, func(o *httpapi.Options) { o.Membership = viewOf(1) })
			behind.filled("s", 5)
			relay := &relayTo{handler: behind.handler}
			n := newFollower(t, func(o *httpapi.Options) { o.Relay, o.Membership = relay, viewOf(2) })
			h := admin(append(c.header, "Content-Type", appJSON, "ES-EventType", "t", "ES-EventId", n.id())...)
			h["Annals-Node"] = []string{c.asked}
			if wrong := with(c.header...).Get("Authorization"); wrong != "" {
				h.Set("Authorization", wrong)
			}
			body := ""
			if c.method == "POST" {
				body = `{"a":1}`
			}
			a := n.do(c.method, c.path, body, h).is(t, c.status).has(t, "Annals-Node", c.by).has(t, "Cache-Control", "no-store")
			check.Contains(t, a.body, c.text, "lacks")
			for _, name := range []string{"Access-Control-Allow-Origin", "Content-Security-Policy", "Annals-Node"} {
				check.Equal(t, len(a.header[name]), 1, name)
			}
			check.Equal(t, len(a.header["Annals-Log-End"]), 0, "internal header")
			if c.status == 503 {
				a.has(t, "Retry-After", "2")
			}
			if relayed := c.by == one; relayed != (relay.asked == 1) {
				t.Errorf("relayed %d times", relay.asked)
			} else if relayed {
				check.Equal(t, relay.to[0], event.ID{15: 1}, "to")
				check.Equal(t, relay.request.Header.Get("Annals-Relayed"), "1", "marked")
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		n := newFollower(t, func(o *httpapi.Options) { o.Relay, o.Membership = &relayTo{}, viewOf(2) })
		n.get("/streams/s", appJSON, "Annals-Node", "leader").is(t, 503).has(t, "Retry-After", "2").has(t, "Annals-Node", two)
		n.get("/streams/s", appJSON).is(t, 200)
	})
	t.Run("no other node", func(t *testing.T) {
		n := newNode(t, func(o *httpapi.Options) { o.Membership = viewOf(1) })
		n.get("/ping", appJSON, "Annals-Node", "leader").is(t, 200).has(t, "Annals-Node", one)
		n.get("/ping", appJSON, "Annals-Node", two).is(t, 503)
	})
	t.Run("a write that another node passes on to the leader", func(t *testing.T) {
		behind := newNode(t, func(o *httpapi.Options) { o.Membership = viewOf(1) })
		n := newForwarding(t, behind, func(o *httpapi.Options) { o.Membership = viewOf(2) })
		n.replicate(9) // It never lags.
		n.one("/streams/n", appJSON, "{}", "Annals-Node", two).is(t, 201).has(t, "Annals-Node", two)
	})
	t.Run("logged with the login", func(t *testing.T) {
		log, text := logged()
		n := newNode(t, func(o *httpapi.Options) { o.Membership, o.LogRequests, o.Logger = viewOf(1), true, log })
		n.get("/ping", appJSON, "Annals-Node", "leader").is(t, 200)
		check.Contains(t, text(), "login=admin")
	})
}

// A live tail of another node ends with this node, which would wait for it otherwise.
func TestOnNodeLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader := newNode(t, func(o *httpapi.Options) { o.Membership = viewOf(1) })
		leader.filled("s", 1)
		follower := newNode(t, func(o *httpapi.Options) {
			o.Membership, o.Relay = viewOf(2), &relayTo{handler: leader.handler}
		})
		d := follower.tail("/streams/s?from=start", "Annals-Node", "leader")
		check.Equal(t, d.says(), "0=0@s, live", "relayed")
		follower.server.Drain()
		d.ends()
	})
}
