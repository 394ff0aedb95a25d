package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestLongClusterForward writes and reads through one follower that relays, as a client
// does that knows one address: it reads what it wrote, and the leader's death
// is not its concern.
func TestLongClusterForward(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{options: []string{"--follower-writes", "Forward", "--prepare-timeout-ms", "30000", "--commit-timeout-ms", "30000"}})
	for _, m := range c.members {
		m.start()
	}
	_, followers := c.settled()
	m := followers[0]
	ids := 0
	must := func(r testkit.Request, want ...int) {
		t.Helper()
		answer, err := m.ask(r)
		for err == nil && answer.Status >= 500 && r.Header[testkit.HeaderEventID] != "" && t.Context().Err() == nil {
			c.settled() // A busy machine has lost its leader: the same write again, as clients do.
			answer, err = m.ask(r)
		}
		check.Must(t, err)
		if slices.Contains(want, answer.Status) {
			return
		}
		t.Fatalf("%s %s: %s, want %v", r.Method, r.Path, answer, want)
	}
	appends := func(stream string) testkit.Request {
		ids++
		r := testkit.Request{Path: "/streams/" + stream, Header: map[string]string{"Content-Type": testkit.MediaJSON, "ES-EventType": "t"}}
		return withID(r, ids)
	}
	read := func(path string) testkit.Request {
		return testkit.Request{Path: path, Header: map[string]string{"Accept": testkit.MediaJSON}}
	}

	t.Run("a client reads what it wrote", func(t *testing.T) {
		c.in(t)
		for i := range 200 {
			must(appends("own"), http.StatusCreated)
			must(read(fmt.Sprintf("/streams/own/%d", i)), http.StatusOK)
			stream := fmt.Sprintf("gone-%d", i)
			must(appends(stream), http.StatusCreated)
			metadata := appends(stream + "/metadata")
			delete(metadata.Header, "ES-EventType")
			must(metadata, http.StatusCreated)
			must(read("/streams/"+stream+"/metadata/0"), http.StatusOK)
			must(testkit.Request{Method: http.MethodDelete, Path: "/streams/" + stream, Header: map[string]string{"ES-HardDelete": "true"}}, http.StatusNoContent)
			must(read("/streams/"+stream+"/0"), http.StatusGone)
		}
	})

	t.Run("the client names the node", func(t *testing.T) {
		c.in(t)
		view := check.Value(m.gossip()).Must(t)
		on := func(node string, r testkit.Request, status int) testkit.Response {
			t.Helper()
			r.Header["Annals-Node"] = node
			answer, err := m.ask(r)
			if err != nil || answer.Status != status || answer.Header.Get("Cache-Control") != "no-store" {
				t.Fatalf("%s %s on %s: %s, %v, want %d", r.Method, r.Path, node, answer, err, status)
			}
			return answer
		}
		for _, one := range view {
			answer := on(one.Node, read("/info"), http.StatusOK)
			var info struct{ State string }
			if err := json.Unmarshal(answer.Body, &info); err != nil || info.State != strings.ToLower(one.State) || answer.Header.Get("Annals-Node") != one.Node {
				t.Errorf("%s, which is %s, answered %s, %v", one.Node, one.State, answer, err)
			}
			if info.State == "leader" {
				by := on("leader", appends("named"), http.StatusCreated).Header.Get("Annals-Node")
				again := on("leader", read("/streams/named/0"), http.StatusOK).Header.Get("Annals-Node")
				if by != one.Node || again != one.Node {
					t.Errorf("%s leads, and %s and %s answered", one.Node, by, again)
				}
			}
		}
		if after := on("00000000-0000-0000-0000-000000000001", read("/info"), http.StatusServiceUnavailable).Header.Get("Retry-After"); after != "2" {
			t.Errorf("Retry-After is %q", after)
		}
		on("followers", read("/info"), http.StatusBadRequest)
	})

	t.Run("the leader dies", func(t *testing.T) {
		c.in(t)
		for i := range 4 {
			must(appends(fmt.Sprintf("before-%d", i)), http.StatusCreated)
			leader, followers := c.settled()
			m = followers[0]
			must(appends("own"), http.StatusCreated) // There is a connection to the leader.
			leader.kill()
			if i%2 == 0 {
				must(appends("own"), http.StatusCreated)
			} else { // One that was sent on a connection that had just broken is not repeated.
				must(testkit.Request{Method: http.MethodDelete, Path: fmt.Sprintf("/streams/before-%d", i)}, http.StatusNoContent, http.StatusInternalServerError)
			}
			must(read(fmt.Sprintf("/streams/own/%d", 200+i+(i+2)/2)), http.StatusOK)
			leader.start()
		}
	})
	c.settled()
	c.finish()
}
