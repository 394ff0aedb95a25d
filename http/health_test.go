package httpapi_test

import (
	"math"
	"testing"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

func TestReady(t *testing.T) {
	for _, c := range []struct {
		name   string
		spoil  func(*operator)
		reason string
	}{
		{"serving", func(*operator) {}, ""},
		{"a follower", func(n *operator) { n.cluster.role, n.cluster.leader = "follower", "http://other" }, ""},
		{"no leader is asked for while it serves", func(n *operator) { n.cluster.role = "unknown" }, ""},
		{"draining", func(n *operator) { n.server.Drain() }, "shutting down"},
		{"draining comes first", func(n *operator) { n.server.Drain(); n.startup.progress.Started = false }, "shutting down"},
		{"not caught up", func(n *operator) {
			n.cluster.role, n.cluster.leader, n.startup.caughtUp = "catchingup", "http://other", false
		}, "catching up with the leader"},
		{"without a leader", func(n *operator) { n.cluster.role, n.cluster.unready = "unknown", true }, "no leader is known"},
		{"without a majority", func(n *operator) {
			n.cluster.role, n.cluster.unready, n.cluster.leaderless = "unknown", true, "1 of 3 voting nodes can be reached, 2 are needed"
		}, "no leader is known: 1 of 3 voting nodes can be reached, 2 are needed"},
		{"caught up with nobody", func(n *operator) { n.cluster.role, n.startup.caughtUp = "unknown", false }, "no leader is known"},
		{"a leader that does not serve", func(n *operator) { n.cluster.unready = true }, "not serving requests"},
		{"a follower that does not serve", func(n *operator) {
			n.cluster.role, n.cluster.leader, n.cluster.unready, n.startup.caughtUp = "follower", "http://other", true, false
		}, "not serving requests"},
		{"unhealthy", func(n *operator) {
			n.cluster.role, n.cluster.unready, n.cluster.trouble = "unknown", true, "the disk hangs"
		}, "the disk hangs"},
		{"removed before it started", func(n *operator) {
			n.cluster.unready, n.startup.progress, n.cluster.trouble = true, httpapi.Progress{Doing: "waiting for a leader", Percent: 97}, "this node was removed from the cluster"
		}, "this node was removed from the cluster"},
		{"starting", func(n *operator) { n.startup.progress = httpapi.Progress{Percent: -1}; n.cluster.unready = true }, "starting"},
		{"reading", func(n *operator) { n.startup.progress = httpapi.Progress{Doing: "reading the log", Percent: -1} }, "starting: reading the log"},
		{"rebuilding", func(n *operator) { n.startup.progress = httpapi.Progress{Doing: "rebuilding the index", Percent: 42.4} }, "starting: rebuilding the index 42 %"},
		{"not a number", func(n *operator) { n.startup.progress = httpapi.Progress{Doing: "reading", Percent: math.NaN()} }, "starting: reading"},
		{"without end", func(n *operator) { n.startup.progress = httpapi.Progress{Doing: "reading", Percent: math.Inf(1)} }, "starting: reading"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newOperator(t)
			c.spoil(n)
			status := 204
			if c.reason != "" {
				status = 503
			}
			a := n.do("GET", "/health/ready", "", with("Authorization", wrongCredentials, "Accept", "image/png")).is(t, status).has(t, "Cache-Control", "no-cache")
			checkCORS(t, a, "GET, HEAD, OPTIONS")
			check.Equal(t, a.body, c.reason, "reason")
			if c.reason != "" {
				a.says(t, c.reason)
			}
			head := n.do("HEAD", "/health/ready", "", nil).is(t, status)
			check.Equal(t, head.body, "", "body of HEAD")
		})
	}
	newNode(t).do("GET", "/health/ready", "", nil).is(t, 204)
}

func TestStartup(t *testing.T) {
	newOperator(t).golden("health-startup.json", "/health/startup", "")
	newNode(t).golden("health-startup.json", "/health/startup", "")
	for _, c := range []struct {
		progress httpapi.Progress
		body     string
	}{
		{httpapi.Progress{Doing: "rebuilding the index", Percent: 42}, `"rebuilding the index",` + "\n  " + `"percent": 42.0`},
		{httpapi.Progress{Doing: "reading \"x\"", Percent: 99.96}, `"reading \"x\"",` + "\n  " + `"percent": 100.0`},
		{httpapi.Progress{Percent: 0}, `"",` + "\n  " + `"percent": 0.0`},
		{httpapi.Progress{Doing: "reading the log", Percent: -1}, `"reading the log",` + "\n  " + `"percent": null`},
		{httpapi.Progress{Percent: math.NaN()}, `"",` + "\n  " + `"percent": null`},
	} {
		n := newOperator(t)
		n.startup.progress = c.progress
		a := n.do("GET", "/health/startup", "", with("Authorization", wrongCredentials, "Accept", "image/png")).is(t, 503).
			has(t, "Content-Type", "application/json; charset=utf-8").has(t, "Cache-Control", "no-cache")
		check.Equal(t, a.body, "{\n  \"started\": false,\n  \"doing\": "+c.body+"\n}", "startup")
		check.Equal(t, n.do("HEAD", "/health/startup", "", nil).is(t, 503).body, "", "body of HEAD")
	}
}

// TestWhileStarting asks a node that still reads its files for all that it can
// tell already, and for what it cannot.
func TestWhileStarting(t *testing.T) {
	m := &memMembership{view: threeMembers(), state: event.StateInitializing}
	n := newOperator(t, func(o *httpapi.Options) { o.Membership, o.Open = m, api.OpenGossip })
	n.startup.progress = httpapi.Progress{Doing: "reading the log", Percent: 7}
	n.startup.caughtUp = false
	n.cluster.role, n.cluster.unready = "initializing", true
	n.access.loading = true
	n.store.set(event.ErrNotReady, false)

	for path, status := range map[string]int{
		"/ping": 200, "/info": 200, "/gossip": 200, "/": 302, "/web": 302,
		"/health/live": 503, "/health/ready": 503, "/health/startup": 503,
		"/streams/s": 503, "/stats": 401, "/admin/login": 401, "/info/options": 401,
	} {
		a := n.do("GET", path, "", nil).is(t, status)
		check.Equal(t, a.header.Get("Retry-After"), "", path+" says when to come again")
	}
	check.Equal(t, decode[struct{ State string }](t, n.do("GET", "/info", "", nil)).State, "initializing", "state")
	n.do("GET", "/health/ready", "", nil).says(t, "starting: reading the log 7 %")
	for _, path := range []string{"/ping", "/info", "/gossip", "/streams/s", "/stats", "/admin/login"} {
		n.get(path, "").is(t, 503).has(t, "Retry-After", "5").says(t, "Server Is Not Ready")
	}
	for _, path := range []string{"/health/live", "/health/ready", "/health/startup"} {
		n.get(path, "").is(t, 503).has(t, "Retry-After", "")
	}
}
