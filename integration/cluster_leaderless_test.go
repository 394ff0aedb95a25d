package integration_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestLongClusterLeftAlone kills two nodes of three. The third says in plain words that there is no
// leader and who is missing, wherever it is asked, and serves reads; nothing repeats in its log.
func TestLongClusterLeftAlone(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	leader, followers := c.settled()
	leader.append("before", bigEvent(1))
	c.identical()
	for _, m := range c.members {
		m.awaitLine("this node is ready: took=")
		m.awaitLine("the leader is " + leader.replication() + ": term=")
		if n := strings.Count(m.process.Output(), "this node is ready"); n != 1 {
			t.Errorf("%s said %d times that it is ready", m, n)
		}
	}
	last := followers[0]
	leader.kill()
	followers[1].kill()
	const why = "1 of 3 voting nodes can be reached, 2 are needed"
	line := last.awaitLine("[ERROR] annals.cluster: this cluster has no leader: " + why + "; writes are refused: missing=")
	for _, gone := range []*member{leader, followers[1]} {
		check.Contains(t, line, gone.replication(), "is missing")
	}
	testkit.Eventually(t, settleLimit, func() error { return last.health("/health/live", http.StatusNoContent) })
	answer, err := last.ask(testkit.Request{Path: "/health/ready"})
	if err != nil || answer.Status != http.StatusServiceUnavailable || string(answer.Body) != "no leader is known: "+why {
		t.Errorf("/health/ready: %s, %v", answer, err)
	}
	must(t, last, testkit.Request{Path: "/streams/before/0", Admin: true}, http.StatusOK)
	p, code := testkit.Run(t, testkit.Command{Quiet: true, Args: []string{"doctor", "--node", last.URL()}})
	if out := p.Output(); code != 1 || !strings.Contains(out, "WRONG start: the node serves reads, but there is no leader: "+why) {
		t.Errorf("doctor: code %d\n%s", code, out)
	}
	for _, noise := range []string{"Election timeout", "candidate state", "pre-vote", "entering follower"} {
		if strings.Contains(last.process.Output(), noise) {
			t.Errorf("the log of %s tells of %q", last, noise)
		}
	}
	leader.start()
	followers[1].start()
	c.settled()
	c.finish()
}
