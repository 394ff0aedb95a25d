package integration_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// resignGapLimit is how long writes may stop when a leader hands over in order.
const resignGapLimit = time.Second

// healing are the answers that a client of a cluster must expect at any time, and
// which repeating the request with the same ids heals. 400 is that of a wrong expected version.
var healing = regexp.MustCompile(`^(201|307|400|503 .*|no answer)$`)

func (l *clusterLoad) onlyHealing(t *testing.T) {
	t.Helper()
	for what, n := range l.counted() {
		if strings.HasPrefix(what, "500 ") { // A leader was lost that nobody took away.
			onlyWhenCalm(t, "%d answers were %s", n, what)
		} else if !healing.MatchString(what) {
			t.Errorf("%d answers were %s", n, what)
		}
	}
}

// TestClusterRollingRestart stops and starts all nodes in turn, as for a new
// version, while they are written to.
func TestClusterRollingRestart(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	l := c.startLoad(seed(t), 8, loadPatience)
	for _, m := range c.members {
		shortGap(t, l, "node restarted", writeGapLimit, func() func() {
			state, err := m.state()
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			m.stop()
			t.Logf("%s was %s, stopped within %s", m, state, time.Since(begun).Round(time.Millisecond))
			m.start()
			return func() { c.settled() }
		})
	}
	l.finish(t)
	t.Logf("answers: %s", l.told())
	l.onlyHealing(t)
	c.acknowledgedOnce(l.ledger)
	c.finish()
}

// TestClusterResign has the leader hand over under load, to the node with the
// highest priority of those that have everything.
func TestClusterResign(t *testing.T) {
	c := startCluster(t, clusterOptions{})
	l := c.startLoad(seed(t), 8, 2*loadPatience)
	for round := range 3 {
		leader, followers := c.settled()
		heir := followers[round%2]
		priority := 10 * (round + 1)
		heir.order("/admin/node/priority/" + strconv.Itoa(priority))
		awaitPriority(t, leader, heir, priority)
		tries := 0
		shortGap(t, l, "leader resigned", resignGapLimit, func() func() {
			c.leader().order("/admin/node/resign")
			return func() {
				// When it is done again the heir itself resigns.
				if now, _ := c.settled(); tries == 0 && now != heir {
					onlyWhenCalm(t, "%s leads, and not %s, which has the highest priority", now, heir)
				}
				tries++
			}
		})
		for _, m := range followers {
			m.order("/admin/node/priority/0")
			awaitPriority(t, heir, m, 0)
		}
	}
	l.finish(t)
	t.Logf("answers: %s", l.told())
	l.onlyHealing(t)
	for what := range l.counted() {
		if what == "no answer" {
			onlyWhenCalm(t, "a request was left without answer although no node went away")
		}
	}
	c.acknowledgedOnce(l.ledger)
	c.finish()
}

// TestClusterResignAlone has a leader hand over to whom nobody answers any more:
// that is no error, and it goes on leading when a majority is back.
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

// awaitPriority waits until a node has heard of another one's priority.
func awaitPriority(t *testing.T, at, of *member, priority int) {
	t.Helper()
	eventuallyGossiped(t, at, of, "priority "+strconv.Itoa(priority), func(g gossiped) bool { return g.Priority == priority })
}
