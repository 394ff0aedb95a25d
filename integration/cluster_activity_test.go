package integration_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestClusterActivity asks each node of a cluster for a change, by each of the ways to the
// leader: there is one event of it, by the node that decided, with the address of the client.
func TestClusterActivity(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{options: []string{"--follower-writes", "Forward", "--prepare-timeout-ms", "30000", "--commit-timeout-ms", "30000"}})
	for _, m := range c.members {
		m.start()
	}
	leader, followers := c.settled()
	deletion := func(stream string, header ...string) testkit.Request {
		r := testkit.Request{Method: http.MethodDelete, Path: "/streams/" + stream, Header: map[string]string{}}
		if len(header) > 0 {
			r.Header[header[0]] = header[1]
		}
		return r
	}
	want := map[string]string{} // by path: who decided
	for i, m := range c.members {
		for way, r := range map[string]testkit.Request{"relayed": deletion(fmt.Sprintf("relayed-%d", i)), "named": deletion(fmt.Sprintf("named-%d", i), "Annals-Node", "leader")} {
			stream := strings.TrimPrefix(r.Path, "/streams/")
			leader.append(stream, testkit.Event{ID: uuidOf(1000 + 10*i + len(way)), Type: "t", Data: json.RawMessage("{}")})
			must(t, m, r, http.StatusNoContent)
			want[r.Path] = leader.Host()
		}
		r := testkit.Request{Method: http.MethodPost, Path: fmt.Sprintf("/admin/node/priority/%d", i)}
		must(t, m, r, http.StatusOK)
		want[r.Path] = m.Host()
	}
	type operation struct {
		Who, From, Node, Method, Path string
		Status                        int
	}
	read := func(m *member) (all []operation, err error) {
		entries, err := m.ReadStream(t.Context(), "$operations", 0)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			var o operation
			if err := json.Unmarshal([]byte(e.Data), &o); err != nil {
				return nil, fmt.Errorf("%s: %w", e.Data, err)
			}
			all = append(all, o)
		}
		return all, nil
	}
	testkit.Eventually(t, settleLimit, func() error {
		all, err := read(followers[0])
		if err == nil && len(all) < len(want) {
			err = fmt.Errorf("%d operations, of %d", len(all), len(want))
		}
		return err
	})
	all := check.Value(read(leader)).Must(t)
	for _, o := range all {
		client, _, err := net.SplitHostPort(o.From)
		node, had := want[o.Path]
		if !had || o.Node != node || o.Who != "system" || err != nil {
			t.Errorf("%+v, by %q wanted", o, node)
		}
		for _, m := range c.members {
			if strings.HasPrefix(m.replication(), client+":") && m.host.Addr() != o.Node[:strings.IndexByte(o.Node, ':')] {
				t.Errorf("%+v has the address of a node that relayed it", o)
			}
		}
		delete(want, o.Path)
	}
	if len(want) > 0 || t.Failed() {
		t.Errorf("not recorded, of %+v: %v", all, want)
	}
	c.settled()
	c.finish()
}

// TestActivityOfTheEnd: that a client ended the node is recorded before it ends.
func TestActivityOfTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := testkit.StartNode(t, dir, "--insecure")
	must(t, n, testkit.Request{Method: http.MethodPost, Path: "/admin/shutdown"}, http.StatusOK)
	check.MustEqual(t, n.Wait(settleLimit), 0, "the node ended with")
	n = testkit.StartNode(t, dir, "--insecure")
	entries, err := n.ReadStream(t.Context(), "$operations", 0)
	if err != nil || len(entries) != 1 || !strings.Contains(string(entries[0].Data), `"method":"POST","path":"/admin/shutdown","query":"","status":200`) {
		t.Errorf("%+v, %v", entries, err)
	}
	n.Stop()
}
