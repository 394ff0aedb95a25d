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

// TestRelayedWriteIsShown: a write that a node relayed is answered when this node
// shows it, or when the time of a write is over.
func TestRelayedWriteIsShown(t *testing.T) {
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
		{"refusal", func(n *node) answer { return n.delete("s", "ES-ExpectedVersion", "7") }, 400, false},
	} {
		for _, late := range []bool{false, true} {
			name := c.name
			if late {
				name += ", not in time"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					behind := newNode(t)
					behind.filled("s", 2)
					n := newFollower(t, func(o *httpapi.Options) { o.Relay, o.RelayWrites = &relayTo{handler: behind.handler}, true })
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
						n.store.AwaitWaiting(1)
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

func (r *takesOver) Relay(_ http.ResponseWriter, req *http.Request) bool {
	_, r.repeatable = req.Header["Idempotency-Key"]
	for range 2 {
		body, err := req.GetBody()
		if err != nil {
			return false
		}
		text, _ := io.ReadAll(body)
		r.bodies = append(r.bodies, string(text))
	}
	r.n.cluster.role, r.n.cluster.leader = "leader", ""
	return false
}

func TestLeadsWhileItRelays(t *testing.T) {
	id := []string{"ES-EventId", "fbf4a1a1-b4a3-4dfe-a01f-ec52c34e16e4"}
	for _, c := range []struct {
		name, path, body string
		head             []string
		repeatable       bool
	}{
		{"one", "/streams/r", "{}", id, true},
		{"own id", "/streams/r/incoming/fbf4a1a1-b4a3-4dfe-a01f-ec52c34e16e4", "{}", nil, true},
		{"metadata", "/streams/r/metadata", "{}", []string{"ES-EventType", "-", "ES-EventId", "-"}, false},
		{"metadata with an id", "/streams/r/metadata", "{}", append([]string{"ES-EventType", "-"}, id...), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			relay := &takesOver{}
			n := newFollower(t, func(o *httpapi.Options) { o.Relay, o.RelayWrites = relay, true })
			relay.n = n
			n.one(c.path, appJSON, c.body, append(c.head, "Idempotency-Key", "x")...).is(t, 200, 201)
			check.Equal(t, len(relay.bodies), 2, "bodies")
			check.Equal(t, relay.bodies[1], c.body, "body")
			check.Equal(t, relay.repeatable, c.repeatable, "repeatable")
		})
	}
	relay := &takesOver{}
	n := newFollower(t, func(o *httpapi.Options) { o.Relay, o.RelayWrites = relay, true })
	relay.n = n
	n.delete("s", "Idempotency-Key", "x").is(t, 204)
	check.Equal(t, relay.repeatable, false, "deletion is repeatable")
}
