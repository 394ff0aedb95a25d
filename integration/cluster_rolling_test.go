package integration_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// What nodes log about their leadership.
const (
	leads      = "leading: term="
	handedOver = "leadership was handed over: "
)

// patientWrites are for tests that count lost leaders by 500: writes are not given up because the
// machine is busy.
var patientWrites = []string{"--commit-timeout-ms", "300000"}

// healing are the answers that a client of a cluster must expect at any time, and
// which repeating the request with the same ids heals. 400 is that of a wrong expected version.
var healing = regexp.MustCompile(`^(201|307|400|503 .*|no answer)$`)

// onlyHealing demands that writers got no other answers, except 500 where a leader was lost without
// handing over: each writer had at most one write in flight there.
func (c *cluster) onlyHealing(l *load) {
	c.t.Helper()
	lost := c.said(leads) - 1 - c.said(handedOver)
	for what, n := range l.counted() {
		if !healing.MatchString(what) && !(strings.HasPrefix(what, "500 ") && n <= lost*l.writers) {
			c.t.Errorf("%d answers were %s, %d leaders were lost", n, what, lost)
		}
	}
}

// TestClusterRollingRestart stops and starts all nodes in turn, as for a new
// version, while they are written to and followed.
func TestClusterRollingRestart(t *testing.T) {
	c := startCluster(t, clusterOptions{options: patientWrites})
	followed := c.startTails(8)
	l := c.startLoad(seed(t), 8, loadPatience)
	for _, m := range c.members {
		l.more(t, 50)
		state := check.Value(m.state()).Must(t)
		begun := time.Now()
		m.stop()
		t.Logf("%s was %s, stopped within %s", m, state, time.Since(begun).Round(time.Millisecond))
		m.start()
		l.more(t, 100)
		c.settled()
	}
	l.finish(t)
	t.Logf("answers: %s", l.told())
	c.onlyHealing(l)
	c.acknowledgedOnce(l.ledger)
	followed.have(t, c.identical().places)
	c.finish()
}

// TestClusterResign has the leader hand over under load, to the node with the
// highest priority of those that have everything.
func TestClusterResign(t *testing.T) {
	c := startCluster(t, clusterOptions{options: patientWrites})
	l := c.startLoad(seed(t), 8, settleLimit) // No node goes away: everything is answered.
	for round := range 3 {
		_, followers := c.settled()
		heir := followers[round%2]
		l.more(t, 50)
		c.lead(heir, 10*(round+1))
		l.more(t, 100)
		for _, m := range followers {
			m.order("/admin/node/priority/0")
			awaitPriority(t, heir, m, 0)
		}
	}
	l.finish(t)
	t.Logf("answers: %s", l.told())
	c.onlyHealing(l)
	if n := l.counted()["no answer"]; n > 0 {
		t.Errorf("%d requests were left without answer", n)
	}
	c.acknowledgedOnce(l.ledger)
	c.finish()
}

// TestClusterResignAlone makes a leader hand over when no other node answers: that is not an error,
// and it keeps leading when a majority is back.
func TestClusterResignAlone(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	leader, followers := c.settled()
	for _, m := range followers {
		m.kill()
	}
	leader.order("/admin/node/resign")
	for _, m := range followers {
		m.start()
	}
	c.settled()
	leader.append("after-all", bigEvent(1))
	c.finish()
}

// lead has a node of the highest priority lead: the others resign until it does.
func (c *cluster) lead(heir *member, priority int) {
	c.t.Helper()
	leader, _ := c.settled()
	heir.order("/admin/node/priority/" + strconv.Itoa(priority))
	awaitPriority(c.t, leader, heir, priority)
	// An heir that answers too late is passed over: then the next leader resigns as well.
	testkit.Eventually(c.t, settleLimit, func() error {
		now, _ := c.settled()
		if now == heir {
			return nil
		}
		now.order("/admin/node/resign")
		return fmt.Errorf("%s leads, and not %s, which has the highest priority", now, heir)
	})
}

// awaitPriority waits until a node has heard of another one's priority.
func awaitPriority(t *testing.T, at, of *member, priority int) {
	t.Helper()
	eventuallyGossiped(t, at, of, "priority "+strconv.Itoa(priority), func(g gossiped) bool { return g.Priority == priority })
}
