package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestClusterProjections asks followers for projections.
func TestClusterProjections(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{options: withProjections})
	relaying := c.members[0]
	relaying.options = []string{"--follower-writes", "Forward"}
	for _, m := range c.members {
		m.start()
	}
	leader, followers := c.settled()
	if leader == relaying {
		leader.order("/admin/node/resign")
		leader, followers = c.settled()
	}
	q := &query{t: t, name: "copy", do: c.atLeader}
	q.create(copying, "&enabled=no")
	q.command("enable")

	for _, path := range []string{"/projections/any", "/projection/copy", "/projection/copy/state?partition=x", "/projection/none/query"} {
		for _, f := range followers {
			answer, err := f.ask(testkit.Request{Path: path})
			if err == nil && f == relaying {
				direct, failed := leader.ask(testkit.Request{Path: path})
				if failed != nil || answer.Status != direct.Status || strings.Contains(string(answer.Body), leader.URL()) {
					t.Errorf("%s at a follower that relays: %s, %v; the leader says %s, %v", path, answer, err, direct, failed)
				}
			} else if want := leader.URL() + path; err != nil || answer.Status != http.StatusTemporaryRedirect || answer.Header.Get("Location") != want {
				t.Errorf("%s at a follower: %s, Location %q, %v, want %s", path, answer, answer.Header.Get("Location"), err, want)
			}
		}
	}

	q.command("disable")
	c.finish()
}

// atLeader asks the leader, once there is one and it has loaded its projections.
func (c *cluster) atLeader(r testkit.Request) (answer testkit.Response, err error) {
	testkit.Eventually(c.t, settleLimit, func() error {
		for _, m := range c.running() {
			ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
			answer, err = m.Do(ctx, r)
			cancel()
			if err == nil && answer.Status != http.StatusTemporaryRedirect && answer.Status != http.StatusServiceUnavailable {
				return nil
			}
		}
		return fmt.Errorf("nobody answers: %s, %w", answer, err)
	})
	return answer, nil
}
