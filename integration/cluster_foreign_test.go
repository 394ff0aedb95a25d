package integration_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestLongClusterForeignData points a node with data of another history to the cluster: it is
// refused with the reason, and no other node notices.
func TestLongClusterForeignData(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	leader, followers := c.settled()
	leader.fill("filled", 40)
	c.level()
	victim := followers[0]
	copied := victim.backup()
	victim.stop()
	own := filepath.Join(victim.host.Dir(), "own")
	moveFolder(t, victim.db(), own)
	others := c.running()

	for _, v := range []struct {
		name    string
		prepare func()
		raft    bool // the data come with the consensus state of a cluster of one
		says    string
	}{
		{"data of another cluster", func() {}, false, "this node belongs to cluster "},
		{"data and consensus state of another cluster", func() {}, true, "this node belongs to cluster "},
		{"another history of this cluster", func() { victim.restore(copied) }, false, "different histories"},
		{"another history of this cluster with consensus state", func() { victim.restore(copied) }, true, "different histories"},
	} {
		t.Run(v.name, func(t *testing.T) {
			c.in(t)
			t.Cleanup(func() {
				if victim.process != nil {
					victim.wipe()
				}
			})
			v.prepare()
			victim.diverge()
			if !v.raft {
				remove(t, filepath.Join(victim.db(), "raft"))
			}
			leader := c.leader(others...)
			leader.fill("filled", 20)
			c.level(others...)
			before := c.identical(others...)

			victim.start()
			t.Log(victim.awaitAny(others, v.says))
			c.undisturbed(t, others, victim)
			// A service manager starts it again and again.
			for range foreignStarts {
				select {
				case <-victim.process.Done():
					victim.start()
					victim.awaitAny([]*member{victim}, v.says)
					c.undisturbed(t, others, victim)
				default:
				}
			}
			c.settled(others...)
			after := c.identical(others...)
			for id, at := range before.places {
				check.MustEqual(t, after.places[id], at, "event", id, "was at ..., and is at")
			}
			if _, there := after.places[bigEvent(700_000).ID]; there {
				t.Error("an event of the other history is in the cluster")
			}
		})
	}
	// Its own data are as welcome as ever.
	moveFolder(t, own, victim.db())
	victim.start()
	c.settled()
	c.identical()
	c.finish()
}

// foreignStay is how long a node with another history is watched. Its raft, left
// to itself, would stand for election in less.
const foreignStay = 2 * time.Second

// foreignStarts is how often a node with another history that has ended is started again.
const foreignStarts = 4

// undisturbed watches a cluster while a node runs that does not belong to it: the others serve all
// the time, and that node takes no part and no writes. On a busy machine the others may replace
// their leader by themselves.
func (c *cluster) undisturbed(t *testing.T, others []*member, foreign *member) {
	t.Helper()
	over := time.NewTimer(foreignStay)
	defer over.Stop()
	said := false
	for n := 0; ; n++ {
		for _, m := range others {
			testkit.Eventually(t, settleLimit, func() error { return m.health("/health/live", http.StatusNoContent) })
			if voters, err := m.voters(); err != nil || len(voters) != 3 {
				t.Fatalf("to %s the voters are %v, %v", m, voters, err)
			}
			view := check.Value(m.gossip()).Must(t)
			for _, g := range view {
				if g.IP == foreign.host.Addr() && g.Alive && (g.State == "Leader" || g.State == "Follower") {
					t.Fatalf("to %s the node with another history is %s", m, g.State)
				}
			}
		}
		others[n%2].fill("filled", 1)
		answer, err := foreign.ask(testkit.Request{Path: "/streams/not-taken", Body: []byte(`{}`), Header: map[string]string{
			"Content-Type": testkit.MediaJSON, testkit.HeaderEventType: "T", testkit.HeaderEventID: bigEvent(710_000 + n).ID,
		}})
		if err == nil && answer.Status == http.StatusCreated {
			t.Fatal("the node with another history takes writes")
		}
		if state, err := foreign.state(); err == nil && (state == "leader" || state == "follower") && !said {
			said = true
			t.Errorf("the node with another history says that it is %s", state)
		}
		select {
		case <-over.C:
			return
		case <-foreign.process.Done():
			check.Equal(t, foreign.process.ExitCode(), 1, "it ended with code")
			return
		default:
		}
	}
}

// awaitAny waits until this node or one of the others has logged a line with a text, and returns
// it.
func (m *member) awaitAny(others []*member, text string) (found string) {
	t := m.cluster.t
	t.Helper()
	testkit.Eventually(t, settleLimit, func() error {
		for _, o := range append([]*member{m}, others...) {
			for _, level := range []string{"[WARN]", "[ERROR]", "annals: "} {
				if line := lineWith(o.process, level, text); line != "" {
					found = o.String() + " says: " + line
					return nil
				}
			}
		}
		return errors.New("no node says anything about: " + text)
	})
	return found
}

// startAlone starts the node as one that has no others.
func (m *member) startAlone() {
	m.cluster.t.Helper()
	m.process = m.run(append([]string{"node"}, append(m.arguments(), "--cluster-size=1", "--gossip-seed=", "--discover-via-dns=true")...)...)
	m.cluster.settled(m)
}

// diverge lets the node write events that its cluster does not know.
func (m *member) diverge() {
	m.cluster.t.Helper()
	m.startAlone()
	m.append("other-history", bigEvent(700_000), bigEvent(700_001))
	m.stop()
}

// TestClusterCopyElsewhere runs a copy of the database elsewhere, as for trials, on as many nodes
// as the cluster has, and gives them the cluster's gossip seeds by mistake, while one of the
// members is away: nodes that are not members do not disturb the members.
func TestClusterCopyElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{hosts: 6})
	all, trials := c.members[:3], c.members[3:]
	for _, m := range all {
		m.start()
	}
	leader, followers := c.settled()
	leader.fill("filled", 40)
	c.level()
	away := followers[0]
	cluster := c.others(away)
	trials[0].restore(leader.backup())
	trials[0].diverge()
	for _, m := range trials[1:] {
		copyTree(t, trials[0].db(), m.db())
	}
	for _, m := range trials {
		remove(t, filepath.Join(m.db(), "raft"))
		if m != trials[0] {
			remove(t, filepath.Join(m.db(), "annals.format"))
		}
	}
	away.stop()
	c.settled(cluster...)
	for _, m := range trials {
		m.start()
	}
	t.Run("while they run", func(t *testing.T) {
		c.in(t)
		for _, m := range trials {
			c.undisturbed(t, cluster, m)
		}
	})
	for _, m := range trials {
		m.kill()
	}
	t.Run("when they are gone", func(t *testing.T) {
		c.in(t)
		c.settled(cluster...)
		for _, m := range cluster {
			testkit.Eventually(t, settleLimit, func() error {
				answer, err := m.ask(testkit.Request{Path: "/health/live"})
				if err == nil && answer.Status != http.StatusNoContent {
					err = fmt.Errorf("%s is not ready: %s", m, answer)
				}
				return err
			})
			m.append("after-all", bigEvent(720_000))
		}
	})
	away.start()
	c.settled()
	c.identical()
	c.members = all
	c.finish()
}
