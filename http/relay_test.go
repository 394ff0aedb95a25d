package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	httprequest "github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/check"
)

// replicate has the node's log grow by so many records, as those of another node do.
func (n *node) replicate(count int) {
	n.t.Helper()
	for range count {
		w := event.Write{Stream: "replicated", ExpectedVersion: event.AnyVersion, Events: []event.Proposed{{ID: event.ID{15: 1}, Type: "t"}}}
		w.Events[0].ID[0], w.Events[0].ID[1] = byte(n.ids), byte(n.ids>>8)
		n.ids++
		check.Must(n.t, check.Err(n.store.Write(context.Background(), &w)))
	}
}

// TestForwardedWriteIsShown: what another node wrote for this one is answered when this node shows
// it, or when the time of a write is over.
func TestForwardedWriteIsShown(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(n *node) answer
		want  int
		waits bool
	}{
		{"append", func(n *node) answer { return n.put("r", "{}") }, 201, true},
		{"append of one", func(n *node) answer { return n.one("/streams/r", appJSON, "{}") }, 201, true},
		{"metadata", func(n *node) answer { return n.one("/streams/s/metadata", appJSON, "{}", "ES-EventType", "-") }, 201, true},
		{"delete", func(n *node) answer { return n.delete("s") }, 204, true},
		{"relayed", func(n *node) answer { return n.do("DELETE", "/subscriptions/s/g", "", admin()) }, 404, true},
		{"refusal", func(n *node) answer { return n.delete("s", "ES-ExpectedVersion", "7") }, 400, false},
	} {
		for _, late := range []bool{false, true} {
			name := c.name
			if late {
				name += ", not in time"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					behind, _ := newSubscriber(t)
					behind.filled("s", 2)
					if c.name == "relayed" {
						behind.filled("other", 1)
					}
					n := newForwarding(t, behind, func(o *httpapi.Options) {
						o.Relay, o.Subscriptions = &relayTo{handler: behind.handler}, &memSubscriptions{}
					})
					begun := time.Now()
					var took time.Duration
					done := make(chan answer, 1)
					go func() {
						a := c.do(n)
						took = time.Since(begun)
						done <- a
					}()
					synctest.Wait()
					time.Sleep(time.Second)
					want := time.Duration(0)
					if c.waits {
						n.store.Waits.Await(1)
						want = time.Second
					}
					if late && c.waits {
						want = 4 * time.Second
					} else if c.waits {
						n.replicate(1)
					}
					a := (<-done).is(t, c.want)
					check.Equal(t, took, want, "answered after")
					check.Equal(t, len(a.header["Annals-Log-End"]), 0, "told the client")
				})
			})
		}
	}
}

// A node that relayed learns which answers mean that nothing was done.
func TestNotDone(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(n *node)
		head string
		want string
		code int
	}{
		{"done", func(*node) {}, "Annals-Relayed", "", 201},
		{"another leads", func(n *node) { n.cluster.role, n.cluster.leader = "follower", leader }, "Annals-Relayed", "1", 307},
		{"nobody leads", func(n *node) { n.store.set(event.ErrNotReady, false) }, "Annals-Relayed", "1", 503},
		{"another leads just now", func(n *node) { n.store.set(&event.NotLeader{Address: leader}, false) }, "Annals-Relayed", "1", 307},
		{"too busy", func(n *node) { n.store.set(event.ErrBusy, false) }, "Annals-Relayed", "", 503},
		{"unknown", func(n *node) { n.store.set(event.ErrOutcomeUnknown, false) }, "Annals-Relayed", "", 500},
		{"not relayed", func(n *node) { n.store.set(event.ErrNotReady, false) }, "X", "", 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			c.set(n)
			a := n.one("/streams/r", appJSON, "{}", c.head, "1").is(t, c.code)
			check.Equal(t, a.header.Get(httprequest.HeaderNotDone), c.want, "not done")
		})
	}
}

// takesOver is a relay that takes the body for two attempts; then its own node leads.
type takesOver struct {
	relayTo
	n          *node
	repeatable bool
	bodies     []string
}

func (r *takesOver) Relay(_ http.ResponseWriter, req *http.Request, repeatable bool) bool {
	r.repeatable = repeatable
	for range 2 {
		if req.GetBody == nil {
			break
		}
		body, err := req.GetBody()
		check.NoError(r.n.t, err)
		text, _ := io.ReadAll(body)
		r.bodies = append(r.bodies, string(text))
	}
	check.Equal(r.n.t, req.Header.Get("Idempotency-Key"), "", "the client's word for it")
	r.n.cluster.role, r.n.cluster.leader = "leader", ""
	return false
}

func TestLeadsWhileItRelays(t *testing.T) {
	const user = `{"loginName":"u","password":"p"}`
	for _, c := range []struct {
		method, path, body string
		repeatable         bool
	}{
		{"POST", "/users/", user, false},
		{"GET", "/users/", "", true},
	} {
		t.Run(c.method, func(t *testing.T) {
			relay := &takesOver{}
			n, _ := newUsersNode(t, func(o *httpapi.Options) { o.Relay, o.RelayWrites = relay, true })
			n.cluster.role, n.cluster.leader = "follower", leader
			relay.n = n
			n.manage(c.method, c.path, c.body, "Idempotency-Key", "x").is(t, 200, 201)
			if c.body != "" {
				check.Slice(t, relay.bodies, []string{c.body, c.body}, "bodies")
			}
			check.Equal(t, relay.repeatable, c.repeatable, "repeatable")
		})
	}
}
