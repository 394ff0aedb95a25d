package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/annalsdb/annals/admin/activity"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// notes are what was noted.
type notes struct {
	mu  sync.Mutex
	all []string

	closed bool // nothing more is recorded
}

func (n *notes) Begin() bool { return !n.closed }
func (n *notes) End()        {}

func (n *notes) Note(o activity.Operation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text := fmt.Sprintf("%s %s %s", o.Who, o.Method, o.Path)
	if o.Query != "" {
		text += "?" + o.Query
	}
	text = fmt.Sprintf("%s %d from %s", text, o.Status, o.From)
	if o.Node != "" {
		text += " decided by " + o.Node
	}
	n.all = append(n.all, text)
}

// taken returns what was noted since the last call.
func (n *notes) taken() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	return all
}

// TestActivity says which requests are noted: those that ask for a change, but for what
// applications do all day, however they were answered.
func TestActivity(t *testing.T) {
	noted, operations := &notes{}, &memOperations{}
	operations.shutdown = func() {
		noted.mu.Lock()
		defer noted.mu.Unlock()
		check.Equal(t, len(noted.all), 1, "the node ends before that is noted")
	}
	n, _ := newUsersNode(t, func(o *httpapi.Options) {
		o.Activity, o.Operations, o.Membership, o.Subscriptions, o.Projections = noted, operations, viewOf(1), &memSubscriptions{}, &memProjections{}
	})
	n.cluster.role = "leader"
	n.put("s", "{}")
	noted.taken()
	typed := func(typ string, h http.Header) http.Header { h.Set("Content-Type", typ); return h }
	const user = `{"loginName":"new","fullName":"n","groups":[],"password":"p"}`
	for _, c := range []struct {
		name, method, path, body string
		header                   http.Header
		want                     string // without from; empty: nothing is noted
	}{
		{"a read", "GET", "/streams/s", "", admin(), ""},
		{"a head", "HEAD", "/streams/s", "", admin(), ""},
		{"options", "OPTIONS", "/streams/s", "", admin(), ""},
		{"an append", "POST", "/streams/s", "{}", typed(appJSON, admin("ES-EventType", "t", "ES-EventId", n.id())), ""},
		{"an append that is refused", "POST", "/streams/s", "{}", typed(appJSON, with("Authorization", wrongCredentials, "ES-EventType", "t")), ""},
		{"an append without an id", "POST", "/streams/s", "{}", typed(appJSON, admin("ES-EventType", "t")), ""},
		{"an append with the id in the path", "POST", "/streams/s/incoming/" + n.id(), "{}", typed(appJSON, admin("ES-EventType", "t")), ""},
		{"with a slash", "POST", "/streams/s/", "{}", typed(appJSON, admin("ES-EventType", "t")), ""},
		{"with a slash, of an unknown type", "POST", "/streams/s/", "{}", typed("image/png", http.Header{}), ""},
		{"an append of metadata", "POST", "/streams/$$s", "{}", typed(appJSON, admin("ES-EventType", "$metadata", "ES-EventId", n.id())), "admin POST /streams/$$s 201"},
		{"an append of settings", "POST", "/streams/%24settings", "{}", typed(appJSON, admin("ES-EventType", "t", "ES-EventId", n.id())), "admin POST /streams/%24settings 201"},
		{"metadata", "POST", "/streams/s/metadata", "{}", typed(appJSON, admin("ES-EventId", n.id())), "admin POST /streams/s/metadata 201"},
		{"an ack", "POST", "/subscriptions/s/g/ack/" + n.id(), "", admin(), ""},
		{"a nack", "POST", "/subscriptions/s/g/nack?action=park", "", admin(), ""},
		{"an ack of a metadata stream", "POST", "/subscriptions/$$s/g/ack/" + n.id(), "", admin(), ""},
		{"a replay", "POST", "/subscriptions/s/g/replayParked", "", admin(), "admin POST /subscriptions/s/g/replayParked 404"},
		{"a read by post", "POST", "/projections/read-events", "{}", typed(appJSON, admin()), ""},
		{"gossip", "POST", "/gossip", `{"members":[]}`, typed(appJSON, admin()), ""},
		{"a user", "POST", "/users", user, typed(appJSON, admin()), "admin POST /users 201"},
		{"a user again", "POST", "/users", `{"loginName":"new","fullName":"n","groups":[],"password":"q"}`, typed(appJSON, admin()), "admin POST /users 409"},
		{"without the right", "DELETE", "/users/new", "", as("new", "p"), "new DELETE /users/new 401"},
		{"without a login", "DELETE", "/users/new", "", nil, " DELETE /users/new 401"},
		{"with wrong credentials", "DELETE", "/users/new", "", with("Authorization", wrongCredentials), " DELETE /users/new 401"},
		{"a body of a wrong type", "POST", "/users", user, typed("text/plain", admin()), "admin POST /users 415"},
		{"no route", "POST", "/nothing", "", admin(), ""},
		{"no such method", "PATCH", "/users/new", "", admin(), ""},
		{"a query", "POST", "/admin/cluster/members?node=x", "", admin(), "admin POST /admin/cluster/members?node=x 200"},
		{"a path as it came", "DELETE", "/streams/a%2Fb%3Cscript%3E", "", admin(), "admin DELETE /streams/a%2Fb%3Cscript%3E 400"},
		{"a node that is away", "DELETE", "/streams/s", "", admin("Annals-Node", "00000000-0000-0000-0000-0000000000ff"), " DELETE /streams/s 503"},
		{"a deletion", "DELETE", "/streams/s", "", admin(), "admin DELETE /streams/s 204"},
		{"the end of the node", "POST", "/admin/shutdown", "", admin(), "admin POST /admin/shutdown 200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := n.do(c.method, c.path, c.body, c.header)
			var want []string
			if c.want != "" {
				want = []string{c.want + " from 192.0.2.1:1234"}
			}
			check.Slice(t, noted.taken(), want, "answered", got.status, got.body)
		})
	}
}

// TestActivityOfRelayed has the node note a request that decided it, and no other.
func TestActivityOfRelayed(t *testing.T) {
	leading, following := &notes{}, &notes{}
	behind := newNode(t, func(o *httpapi.Options) {
		o.Activity, o.Membership, o.Subscriptions = leading, viewOf(1), &memSubscriptions{}
	})
	relay := &relayTo{handler: behind.handler}
	n := newNode(t, func(o *httpapi.Options) {
		o.Activity, o.Membership, o.Relay, o.RelayWrites, o.Subscriptions = following, viewOf(2), relay, true, &memSubscriptions{}
	})
	n.cluster.role, n.cluster.leader = "follower", leader
	check := func(what string, atLeader, here int) {
		t.Helper()
		if l, f := leading.taken(), following.taken(); len(l) != atLeader || len(f) != here {
			t.Errorf("%s: the leader noted %q, the follower %q", what, l, f)
		}
	}
	n.do("DELETE", "/subscriptions/s/g", "", admin())
	check("relayed", 1, 0)
	n.store.ahead = behind.store
	n.do("DELETE", "/streams/s", "", admin())
	if got := following.taken(); len(got) != 1 || !strings.HasSuffix(got[0], " decided by leader.example:2113") {
		t.Errorf("noted of a write that was passed on: %q", got)
	}
	check("passed on", 0, 0)
	n.do("DELETE", "/streams/s", "", admin("Annals-Node", "leader"))
	check("relayed by Annals-Node", 1, 0)
	n.do("DELETE", "/streams/s", "", with("Authorization", wrongCredentials))
	check("refused by the follower", 0, 1)
	n.do("DELETE", "/streams/s", "", with("Authorization", wrongCredentials, "Annals-Node", "leader"))
	check("refused by the leader", 1, 0)
	behind.cluster.role, behind.cluster.leader = "follower", ""
	n.do("DELETE", "/subscriptions/s/g", "", admin()).is(t, 503)
	check("nobody led: it may be tried again", 0, 0)
	redirecting := newNode(t, func(o *httpapi.Options) { o.Activity = following })
	redirecting.cluster.role, redirecting.cluster.leader = "follower", leader
	redirecting.do("DELETE", "/streams/s", "", admin()).is(t, 307)
	check("redirected", 0, 0)
}

// TestNothingIsDoneUnrecorded: when nothing more is recorded, nothing that would have to be is
// done, and all else is.
func TestNothingIsDoneUnrecorded(t *testing.T) {
	noted := &notes{closed: true}
	n, _ := newUsersNode(t, func(o *httpapi.Options) { o.Activity = noted })
	n.cluster.role = "leader"
	n.put("s", "{}")
	write := func() http.Header {
		return admin("Content-Type", appJSON, "ES-EventType", "t", "ES-EventId", n.id())
	}
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/streams/s", 200},
		{"POST", "/streams/s", 201},
		{"POST", "/streams/$$s", 503},
		{"POST", "/streams/s/metadata", 503},
		{"DELETE", "/users/ops", 503},
		{"DELETE", "/streams/s", 503},
		{"GET", "/streams/s/1", 200},
	} {
		n.do(c.method, c.path, "{}", write()).is(t, c.status)
	}
}
