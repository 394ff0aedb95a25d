package httpapi_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/subscription"
)

// Every answer to a write says where its last event lies.
func TestPositionOfWrites(t *testing.T) {
	n := newNode(t)
	id := n.id()
	one := []string{"ES-EventId", id}
	for _, c := range []struct {
		name string
		ask  func() answer
		new  bool
	}{
		{"batch", func() answer { return n.put("s", "{}", "{}") }, true},
		{"single", func() answer { return n.one("/streams/s", appJSON, "{}", one...) }, true},
		{"repeated", func() answer { return n.one("/streams/s", appJSON, "{}", one...) }, false},
		{"with the id in the path", func() answer { return n.one("/streams/s/incoming/"+n.id(), appJSON, "{}", "ES-EventId", "-") }, true},
		{"metadata", func() answer { return n.one("/streams/s/metadata", appJSON, "{}", "ES-EventType", "-") }, true},
		{"several streams", func() answer {
			return n.many(manyOf([]string{n.to("a"), n.to("b")}))
		}, true},
		{"soft deletion", func() answer { return n.delete("s") }, true},
		{"hard deletion", func() answer { return n.delete("s", "ES-HardDelete", "true") }, true},
	} {
		before := len(n.store.Positions())
		a := c.ask()
		log := n.store.Positions()
		check.Equal(t, len(log) > before, c.new, c.name, "is new")
		a.has(t, "ES-Position", strconv.FormatInt(log[len(log)-1], 10))
	}
	check.Equal(t, n.one("/streams/s", appJSON, "{}").is(t, 410).header.Get("ES-Position"), "", "position of a refusal")
}

// Reads of streams and of the log wait until this node has reached a position.
func TestWaitFor(t *testing.T) {
	for _, path := range []string{
		"/streams/s", "/streams/s/2", "/streams/s/head", "/streams/s/0/forward/9", "/streams/s/head/backward/9", "/streams/s/metadata",
		"/streams/$all", "/streams/$all/head/backward/9", "/streams/$all/" + position(200) + "/forward/9",
		"/streams/$all/filtered/head/backward/9?context=streamid&type=prefix&data=s", "/streams/$all/names", "/streams/$all/at/2026-01-01T00:00:00Z",
		"/query?types=event-type", "/streams/$idx-all",
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.filled("s", 2)
				begin := time.Now()
				p := n.poll(t.Context(), path, "ES-WaitFor", "200")
				time.Sleep(time.Second)
				synctest.Wait()
				check.Equal(t, len(p.done), 0, "answered early")
				n.filled("s", 1)
				if a := <-p.done; a.status == 504 || p.end.Sub(begin) != time.Second {
					t.Errorf("%d %s after %s", a.status, a.body, p.end.Sub(begin))
				}
				n.store.Waits.Await(0)
			})
		})
	}
}

// A live tail begins, and a query is answered, once the position is reached.
func TestWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.filled("s", 2)
		d := n.tail("/streams/s?from=start", "ES-WaitFor", "200")
		check.Equal(t, d.says(), "", "early")
		found := make(chan answer, 1)
		go func() { found <- n.query(`{"query":{"items":[{"streams":["s"]}]}}`, "ES-WaitFor", "200") }()
		n.store.Waits.Await(2)
		n.filled("s", 1)
		check.Equal(t, d.says(), "0=0@s, 1=1@s, 2=2@s, live")
		page := decode[foundPage](t, (<-found).is(t, 200))
		check.Equal(t, page.String(), "0@s 1@s 2@s to 200")
		d.leave()
		<-d.done
	})
}

func TestWaitForInVain(t *testing.T) {
	for _, c := range []struct {
		name, query string
		headers     []string
		after       time.Duration
		status      int
		text        string // empty: not looked at
	}{
		{"not reached", "", []string{"ES-WaitFor", "200"}, 5 * time.Second, 504, "Position 200 was not reached within 5s: the log of this node has come to 200"},
		{"beyond all", "", []string{"ES-WaitFor", "C:99900/P:99900", "ES-WaitAtMost", "1"}, time.Second, 504,
			"Position 99900 was not reached within 1s: the log of this node has come to 200"},
		{"by the query", "?waitFor=300&waitAtMost=250ms", nil, 250 * time.Millisecond, 504, "Position 300 was not reached within 250ms: the log of this node has come to 200"},
		{"no patience", "?waitFor=200&waitAtMost=0", nil, 0, 504, ""},
		{"reached", "?waitFor=199&waitAtMost=0s", nil, 0, 200, ""},
		{"most", "?waitFor=200&waitAtMost=60", nil, time.Minute, 504, ""},
		{"later name", "", []string{"Kurrent-WaitFor", "200", "Kurrent-WaitAtMost", "2s"}, 2 * time.Second, 504, ""},
		{"the header counts", "?waitFor=x", []string{"ES-WaitFor", "0"}, 0, 200, ""},
		{"only how long", "", []string{"ES-WaitAtMost", "x"}, 0, 200, ""},
		{"no position", "?waitFor=", nil, 0, 400, "'' is not a position to wait for. Should be 123, C:123/P:123, 123/123 or 32 hexadecimal digits"},
		{"too long", "", []string{"ES-WaitFor", "0", "ES-WaitAtMost", "61s"}, 0, 400, "'61s' is not how long to wait at most. Should be a duration like 250ms or 5s, up to 60s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.filled("s", 2)
				begin := time.Now()
				p := n.poll(t.Context(), "/streams/s"+c.query, c.headers...)
				a := (<-p.done).is(t, c.status)
				check.Equal(t, p.end.Sub(begin), c.after, "took")
				if c.text != "" {
					a.says(t, c.text)
				}
				n.store.Waits.Await(0)
			})
		})
	}
}

// A waiter ends with its client and with the server; those that are too many are refused.
func TestWaitForEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.filled("s", 2)
		ctx, leave := context.WithCancel(t.Context())
		gone := n.poll(ctx, "/streams/s", "ES-WaitFor", "200")
		n.store.Waits.Await(1)
		leave()
		<-gone.done
		n.store.Waits.Await(0)

		ctx, leave = context.WithCancel(t.Context())
		var all []*polled
		for range 4096 {
			all = append(all, n.poll(ctx, "/streams/s", "ES-WaitFor", "200"))
		}
		n.get("/streams/s", appJSON, "ES-WaitFor", "200").is(t, 503).has(t, "Retry-After", "5").
			says(t, "Too many requests wait for a position: all 4096 waits are taken")
		n.get("/streams/s", appJSON, "ES-WaitFor", "100").is(t, 200)
		leave()
		for _, p := range all {
			<-p.done
		}
		stays := n.poll(t.Context(), "/streams/s", "ES-WaitFor", "200")
		n.server.Drain()
		(<-stays.done).is(t, 503)
	})
}

// A node that is to answer as the leader says at once that it does not lead.
func TestWaitForLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.filled("s", 2)
		n.cluster.role, n.cluster.leader = "follower", leader
		begin := time.Now()
		n.get("/streams/s", appJSON, "ES-WaitFor", "200", "ES-RequireLeader", "True").is(t, 307)
		check.Equal(t, time.Since(begin), 0, "took")
	})
}

// What the leader alone knows is waited for there, until the projection or the group is as far. A
// relayed request waits on the leader and nowhere else.
func TestWaitForLeading(t *testing.T) {
	for _, path := range []string{"/projection/p", "/projection/p/statistics", "/projection/p/state", "/projection/p/result", "/subscriptions/s/g/info"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				subs := &memSubscriptions{groups: []*memGroup{{Info: subscription.Info{Key: subscription.Key{Stream: "s", Group: "g"}}}}}
				leads, projections := newProjector(t, func(o *httpapi.Options) { o.Subscriptions = subs })
				projections.define("p", projection.Continuous)
				move := func(end int64) { projections.line.Move(end); subs.line.Move(end) }
				n := newForwarding(t, leads, func(o *httpapi.Options) {
					o.Relay, o.Subscriptions, o.Projections = &relayTo{handler: leads.handler}, &memSubscriptions{}, &memProjections{}
				})
				for _, n := range []*node{leads, n} {
					move(7)
					begin := time.Now()
					(<-n.poll(t.Context(), path, "ES-WaitFor", "6").done).is(t, 200)
					check.Equal(t, time.Since(begin), 0, "took")
					p := n.poll(t.Context(), path, "ES-WaitFor", "9", "ES-WaitAtMost", "60s")
					time.Sleep(40 * time.Second)
					check.Equal(t, len(p.done), 0, "answered early")
					move(10)
					(<-p.done).is(t, 200)
					check.Equal(t, p.end.Sub(begin), 40*time.Second, "took")
					a := (<-n.poll(t.Context(), path, "ES-WaitFor", "10").done).is(t, 504)
					name := "projection p"
					if strings.HasSuffix(path, "/info") {
						name = "group s::g"
					}
					check.Equal(t, a.body, "Position 10 was not reached within 5s: the "+name+" has come to 10")
					if name == "projection p" {
						projections.rests.Store(&projection.Resting{Status: "stopped", At: "s: 9"})
						begin = time.Now()
						(<-n.poll(t.Context(), path, "ES-WaitFor", "9").done).is(t, 200)
						a = (<-n.poll(t.Context(), path, "ES-WaitFor", "10").done).is(t, 504)
						check.Equal(t, a.body, "Position 10 was not reached: the projection p is stopped at s: 9")
						check.Equal(t, time.Since(begin), 0, "took")
						projections.rests.Store(nil)
					}
				}
			})
		})
	}
}
