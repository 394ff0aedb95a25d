package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// groupRequests are one of every kind that is the leader's business.
var groupRequests = []struct{ method, path string }{
	{"GET", "/subscriptions"}, {"GET", "/subscriptions?offset=0&count=1"}, {"GET", "/subscriptions/s"}, {"GET", "/subscriptions/s/g/info"},
	{"GET", "/subscriptions/s/g"}, {"GET", "/subscriptions/s/g/5?embed=body"}, {"HEAD", "/subscriptions/s/g"},
	{"PUT", "/subscriptions/s/g"}, {"POST", "/subscriptions/s/g"}, {"DELETE", "/subscriptions/s/g"},
	{"POST", "/subscriptions/s/g/pause"}, {"POST", "/subscriptions/s/g/resume"},
	{"POST", "/subscriptions/s/g/replayParked?stopAt=1"}, {"POST", "/subscriptions/restart"},
	{"POST", "/subscriptions/s/g/ack/0f9fad5b-d9cb-469f-a165-70867728950e"}, {"POST", "/subscriptions/s/g/nack?ids=0f9fad5b-d9cb-469f-a165-70867728950e&action=park"},
}

func TestSubscriptionsOnFollower(t *testing.T) {
	behind, theirs := newSubscriber(t)
	theirs.define("s", "g")
	for _, relayWrites := range []bool{false, true} {
		for _, c := range groupRequests {
			t.Run(fmt.Sprint(c.method, c.path, relayWrites), func(t *testing.T) {
				relay := &relayTo{handler: behind.handler}
				n, ours := newSubscriber(t, func(o *httpapi.Options) { o.Relay, o.RelayWrites = relay, relayWrites })
				n.cluster.role, n.cluster.leader = "follower", leader
				ask := func(headers ...string) answer {
					return n.do(c.method, c.path, "", admin(append(headers, "Content-Type", appJSON)...))
				}
				isRead := c.method == "GET" || c.method == "HEAD"
				if isRead || relayWrites {
					a := ask().is(t, 200, 404, 409)
					check.Equal(t, relay.asked, 1, "relayed")
					if strings.Contains(a.body, "://") && !strings.Contains(a.body, base) {
						t.Errorf("addresses of the leader: %s", a.body)
					}
				} else {
					redirects(t, ask(), c.path)
				}
				redirects(t, ask("Annals-Relayed", "1"), c.path)
				asked := relay.asked
				n.do(c.method, c.path, "", with("Content-Type", appJSON)).is(t, 401)
				check.Equal(t, relay.asked, asked, "without rights")
				relay.handler = nil
				redirects(t, ask(), c.path)
				n.cluster.leader = ""
				ask().is(t, 503)
				check.Equal(t, ours.made(), "", "calls")
				n.cluster.role = "leader"
				ours.fail = event.ErrNotReady
				status := 503
				if strings.HasSuffix(c.path, "restart") {
					status = 400
				}
				ask().is(t, status)
			})
		}
	}
	n, ours := newSubscriber(t)
	n.cluster.role, n.cluster.leader = "follower", leader
	n.untouched(t, "PUT", "/subscriptions/s/g", admin("Content-Type", appJSON)).is(t, 307)
	n.get("/subscriptions/s/g/0", competingJSON).is(t, 400)
	n.get("/subscriptions", appJSON).is(t, 307)
	check.Equal(t, ours.made(), "", "calls")
}

func TestSubscriptionFailures(t *testing.T) {
	for _, c := range groupRequests {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, subs := newSubscriber(t)
				ask := func() answer { return n.do(c.method, c.path, "", admin("Content-Type", appJSON)) }
				subs.fail = &event.NotLeader{Address: leader}
				redirects(t, ask(), c.path)
				subs.fail = fmt.Errorf("disk on fire")
				ask().is(t, 500)
				subs.fail = event.ErrDiskFull
				ask().is(t, 503)
				subs.fail, subs.block = nil, true
				ask().is(t, 408, 500)
			})
		})
	}
}

func TestParkedMessages(t *testing.T) {
	n, subs := newSubscriber(t)
	const view = "/subscriptions/viewparkedmessages/a%20b/g/"
	n.get(view+"head/backward/1", competingJSON).is(t, 404).says(t, "Not Found")
	n.filled("a%20b", 4)
	parked := subscription.Key{Stream: "a b", Group: "g"}.ParkedStream()
	for i := range 3 {
		n.store.Append(parked, event.TypeLink, fmt.Sprintf("%d@a b", 3-i), "")
	}
	n.cluster.role = "follower" // Every node has them.
	own := "/streams/%24persistentsubscription-a%20b%3A%3Ag-parked/"
	for _, path := range []string{"head/backward/2", "1/backward/5", "0/forward/2", "2/forward/2", "5/forward/2", "head/backward/20?embed=tryharder"} {
		for accept, other := range map[string]string{competingJSON: atomJSON, competingXML: atomXML} {
			for _, resolve := range []string{"true", "false"} {
				got := n.get(view+path, accept, "ES-ResolveLinkTos", resolve).is(t, 200)
				want := n.get(own+path, other, "ES-ResolveLinkTos", resolve).is(t, 200)
				check.Equal(t, got.body, want.body, path)
				check.Equal(t, got.header.Get("Cache-Control"), "max-age=0, no-cache, must-revalidate", path)
			}
		}
	}
	f := n.viewed(view + "head/backward/20?embed=tryharder")
	check.Equal(t, f.Title, "Event stream '"+parked+"'", "title")
	for i, e := range f.Entries {
		check.Equal(t, fmt.Sprint(e.Title, *e.StreamID, *e.EventNumber, *e.PositionStreamID, *e.PositionEventNumber), fmt.Sprint(i+1, "@a b", "a b", i+1, parked, 2-i), "entry")
	}
	for _, path := range []string{"x/backward/1", "-1/backward/1", "head/forward/1", "x/forward/1", "0/forward/0", "head/backward/0", "0/forward/x", "0/forward/4097"} {
		n.get(view+path, competingJSON).is(t, 400)
	}
	etag := n.get(view+"3/forward/2", competingJSON).header.Get("ETag")
	n.get(view+"3/forward/2", competingJSON, "If-None-Match", etag).is(t, 304)
	n.get(view+"3/forward/2", competingXML, "If-None-Match", etag).is(t, 200)
	check.Equal(t, subs.made(), "", "groups are not asked")

	// What is shown are events of the source: a caller that may not read it is refused.
	n.do("GET", view+"head/backward/1", "", nil).is(t, 401)
	n.do("GET", view+"head/backward/1", "", as("jane", "changeit")).is(t, 200)
	n.do("GET", strings.Replace(view, "a%20b", "$x", 1)+"head/backward/1", "", as("jane", "changeit")).is(t, 401)

	done := make(chan answer)
	go func() { done <- n.get(view+"3/forward/2", competingJSON, "ES-LongPoll", "30") }()
	n.store.Waits.Await(1)
	n.store.Append(parked, event.TypeLink, "0@a b", "")
	if a := <-done; !strings.Contains(a.body, "0@a b") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func (n *node) viewed(path string) feed {
	n.t.Helper()
	return decode[feed](n.t, n.get(path, competingJSON))
}
