package integration_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// orders is how often the long test starts clusters unless it is asked for more.
const orders = 3

// TestClusterBootstrap starts the nodes of a cluster in random order, with delays, and kills one of
// them meanwhile: the result is always one cluster.
func TestClusterBootstrap(t *testing.T) {
	t.Parallel()
	bootstrap(t, 1)
}

// TestLongClusterBootstrap does so several times.
func TestLongClusterBootstrap(t *testing.T) {
	t.Parallel()
	n := orders
	if text := os.Getenv("ANNALS_BOOTSTRAP_ORDERS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("ANNALS_BOOTSTRAP_ORDERS: %v", err)
		}
	}
	bootstrap(t, n)
}

func bootstrap(t *testing.T, n int) {
	t.Helper()
	base := seed(t)
	for i := range n {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(base, uint64(i)))
			c := newCluster(t, clusterOptions{})
			begun := time.Now()
			moment := func(most int) {
				check.Must(t, pause(t.Context(), time.Duration(rng.IntN(most))*time.Millisecond))
			}
			for _, k := range rng.Perm(len(c.members)) {
				c.members[k].start()
				moment(700)
			}
			again := c.members[rng.IntN(len(c.members))]
			moment(700)
			again.kill()
			moment(300)
			again.start()
			leader, _ := c.settled()
			t.Logf("one cluster after %s", time.Since(begun).Round(time.Millisecond))

			leader.append("first", bigEvent(1))
			c.level()
			for _, m := range c.members {
				// The last one gets its vote when it has caught up, which is not to be waited for
				// by writers.
				testkit.Eventually(t, settleLimit, func() error {
					voters, err := m.voters()
					if err == nil && len(voters) != 3 {
						err = fmt.Errorf("to %s the voters are %v", m, voters)
					}
					return err
				})
			}
			sameEpoch(t, c)
			c.identical()
			c.finish()
		})
	}
}

// sameEpoch waits until all nodes know all to be in the same epoch, whose id is
// made of the cluster's id and the term.
func sameEpoch(t *testing.T, c *cluster) {
	t.Helper()
	testkit.Eventually(t, settleLimit, func() error {
		epoch := ""
		for _, m := range c.members {
			view, err := m.gossip()
			if err != nil {
				return err
			}
			if len(view) != len(c.members) {
				return fmt.Errorf("%s sees %d nodes", m, len(view))
			}
			for _, g := range view {
				if epoch == "" {
					epoch = g.EpochID
				}
				if g.EpochID != epoch {
					return fmt.Errorf("to %s the node at %s is in epoch %s, and the first in %s", m, g.IP, g.EpochID, epoch)
				}
			}
		}
		return nil
	})
}

// TestLongClusterStartsWithoutWarning: warnings are for what someone must look at, and
// that is nothing when three nodes are started for the first time, one after the
// other, restarted in turn and stopped. Elections have time, so that a busy machine
// causes none that a calm one would not see.
func TestLongClusterStartsWithoutWarning(t *testing.T) {
	c := newCluster(t, clusterOptions{options: []string{"--leader-election-timeout-ms", "5000"}})
	for _, m := range c.members {
		m.start()
	}
	c.settled()
	for _, m := range c.members {
		m.stop()
		m.start()
		c.settled()
	}
	for _, m := range c.members {
		m.stop()
	}
	// A node that restarts is missing for a while, and the last one that stops misses all others.
	allowed := regexp.MustCompile(`this node is INSECURE|a node does not answer the leader|fewer than half of the nodes answer`)
	for _, p := range c.started {
		for line := range strings.SplitSeq(p.Output(), "\n") {
			if (strings.Contains(line, "[WARN]") || strings.Contains(line, "[ERROR]")) && !allowed.MatchString(line) {
				t.Error(line)
			}
		}
	}
}
