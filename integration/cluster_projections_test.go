package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestClusterProjections runs a projection while leaders come and go: what it
// emits is there once, in order, and on every node.
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
	q.must(http.StatusOK, http.MethodPut, q.path("/config"), often)
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

	const events = 500
	var written atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	defer func() { <-done }()
	defer cancel()
	go func() {
		defer close(done)
		appendWhile(ctx, events, func(n int) { written.Store(int64(n)) }, c.appendAnywhere)
	}()
	for i, lose := range []func(m *member) (back func()){
		func(m *member) func() { m.kill(); return m.start },
		func(m *member) func() { m.order("/admin/node/resign"); return func() {} },
		func(m *member) func() { m.kill(); return m.start },
	} {
		testkit.Eventually(t, settleLimit, func() error {
			if n := written.Load(); n < int64(100*(i+1)) {
				return fmt.Errorf("%d events are written", n)
			}
			return nil
		})
		leader, _ := c.settled()
		lose(leader)()
	}
	within(t, settleLimit, "all events are written", done)
	c.settled()
	q.awaitState(fmt.Sprintf(`{"n":%d}`, events))
	c.same()
	for _, m := range c.members {
		copiedOnce(t, m.Client, events)
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

// appendAnywhere appends an event to in, at whichever node takes it.
func (c *cluster) appendAnywhere(ctx context.Context, e testkit.Event) error {
	err := errors.New("no node runs")
	for _, m := range c.members {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		answer, failed := m.Append(ctx, "in", -2, false, e)
		cancel()
		if failed == nil && answer.Status == http.StatusCreated {
			return nil
		}
		err = fmt.Errorf("%s: %s, %w", m, answer, failed)
	}
	return err
}
