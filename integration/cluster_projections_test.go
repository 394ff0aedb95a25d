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

// TestRebuildInCluster rebuilds a projection under load, and kills the leader after that began and
// during swaps. What the projection emits is there once and in order, from the first version before
// the swap and from the second after it.
func TestRebuildInCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{options: withProjections})
	q := &query{t: t, name: "copy", do: c.atLeader}
	q.create(copying, "")
	stop, appended := make(chan struct{}), make(chan int)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { appended <- c.appendSteadily(ctx, "in", stop) }()
	grows := func() {
		t.Helper()
		before := q.info().Position
		testkit.Eventually(t, settleLimit, func() error {
			if q.info().Position == before {
				return fmt.Errorf("the projection stands at %s", before)
			}
			return nil
		})
	}
	grows()
	q.command("disable") // It has a checkpoint then.
	q.command("enable")
	q.must(http.StatusOK, http.MethodPost, q.path("/rebuild"), strings.Replace(copying, "'copied'", "'copied again'", 1))
	leader, _ := c.settled()
	leader.kill()
	leader.start()
	c.settled()
	testkit.Eventually(t, settleLimit, func() error {
		if a := q.must(http.StatusOK, http.MethodGet, q.path("/rebuild"), ""); !strings.Contains(string(a.Body), `"Ready"`) {
			return fmt.Errorf("the rebuild: %s", a.Body)
		}
		return nil
	})
	for _, after := range []time.Duration{0, 15 * time.Millisecond} {
		grows()
		leader, _ := c.settled()
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			// Its answer may be lost with the leader.
			_, _ = leader.Do(ctx, testkit.Request{Method: http.MethodPost, Path: q.path("/rebuild/swap")})
		}()
		time.Sleep(after) // Any moment is right.
		leader.kill()
		<-asked
		leader.start()
		c.settled()
	}
	testkit.Eventually(t, settleLimit, func() error {
		if a, err := c.atLeader(testkit.Request{Method: http.MethodPost, Path: q.path("/rebuild/swap")}); err != nil || a.Status != http.StatusOK {
			return fmt.Errorf("the swap: %s, %w", a, err)
		}
		return nil
	})
	grows()
	close(stop)
	count := <-appended
	leader, _ = c.settled()
	copiedOnce(t, leader.Client, count)
	isSecond := false
	for _, e := range rawEvents(t, leader.Client, "out") {
		if isSecond && e.Type == "copied" {
			t.Fatalf("event %d is of the first version", e.Number)
		}
		isSecond = e.Type != "copied"
	}
	if !isSecond {
		t.Error("the second version has emitted nothing")
	}
	q.command("disable")
	c.finish()
}

// appendSteadily appends one event after the other, each through any node and until it is stored,
// and returns how many there are.
func (c *cluster) appendSteadily(ctx context.Context, stream string, stop <-chan struct{}) (n int) {
	for ; ; n++ {
		e := batch(n, 1)
		for i := 0; ; i++ {
			try, cancel := context.WithTimeout(ctx, loadPatience)
			a, err := c.members[i%len(c.members)].Client.Append(try, stream, -2, false, e...)
			cancel()
			if err == nil && a.Status == http.StatusCreated {
				break
			}
			if ctx.Err() != nil {
				return n
			}
		}
		select {
		case <-stop:
			return n + 1
		default:
		}
	}
}
