package integration_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestLongClusterReplace takes from a follower its data, but not its votes. Torture takes
// everything, and the consensus state.
func TestLongClusterReplace(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	leader, followers := c.settled()
	leader.fill("filled", 200)
	c.identical()
	m := followers[0]
	m.kill()
	for _, path := range append(matches(t, m.db(), "chunk-*"), matches(t, m.db(), "*.chk")...) {
		remove(t, path)
	}
	remove(t, filepath.Join(m.db(), "index"))
	leader.append("meanwhile", bigEvent(500_000+c.filled))
	c.filled++
	m.start()
	refusedOrWhole(t, c, m)
	c.finish()
}

// newMember waits until the node is a voter under a new id, and its old one is not.
func (c *cluster) newMember(m *member, before string) {
	c.t.Helper()
	testkit.Eventually(c.t, settleLimit, func() error {
		select {
		case <-m.process.Done():
			c.t.Fatalf("%s ended with code %d", m, m.process.ExitCode())
		default:
		}
		for _, at := range c.running() {
			voters, err := at.voters()
			switch {
			case err != nil:
				return err
			case len(voters) != c.o.size || slices.Contains(voters, before):
				return fmt.Errorf("to %s the voters are %v, before the node at %s was %s", at, voters, m, before)
			}
		}
		return nil
	})
	leader, _ := c.settled()
	if now := leader.id(m); now == before && leader != m {
		c.t.Errorf("%s has its old id %s", m, now)
	}
}

// refusedOrWhole: a node that lost its data, but not its votes, either says so and ends, or becomes
// a member that holds everything. In the first case the test replaces it.
func refusedOrWhole(t *testing.T, c *cluster, m *member) {
	t.Helper()
	whole := func() error {
		if state, err := m.state(); err != nil || state != "follower" {
			return fmt.Errorf("%s is %s, %v", m, state, err)
		}
		return nil
	}
	testkit.Eventually(t, settleLimit, func() error {
		select {
		case <-m.process.Done():
			return nil
		default:
			return whole()
		}
	})
	select {
	case <-m.process.Done():
		t.Logf("refused: %s", lastLine(m.process))
		check.Equal(t, m.process.ExitCode(), 1, "exit code")
		m.wipe()
		m.start()
	default:
	}
	c.settled()
	c.identical()
}

// TestLongClusterRestoreNode restores one node from an older copy of its files: it fetches the data
// that it lacks, and no others.
func TestLongClusterRestoreNode(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{links: true})
	leader, followers := c.settled()
	m := followers[0]
	leader.fill("filled", 400) // some 13 MB
	c.level()
	copied := m.backup()
	leader.fill("filled", 60) // some 2 MB
	before := leader.id(m)
	m.wipe()
	m.restore(copied)
	received := func() (sum uint64) {
		for _, o := range c.others(m) {
			traffic := check.Value(c.lab.Link(o.host, m.host).Traffic()).Must(t)
			sum += traffic.Bytes
		}
		return sum
	}
	start := received()
	begun := time.Now()
	m.start()
	c.newMember(m, before)
	c.level()
	got := received() - start
	t.Logf("a member again after %s, fetched %d bytes", time.Since(begun).Round(time.Millisecond), got)
	if got > 8<<20 {
		t.Errorf("%d bytes were fetched, the copy lacked some 2 MB", got)
	}
	c.identical()
	c.finish()
}

// TestLongClusterRestoreInPlace restores a follower without removing what is in its
// folder: by the documented steps over the files that are there, and with a copy of
// its whole volume. Consensus state of a later life, or of an earlier one, does not count then.
func TestLongClusterRestoreInPlace(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	leader, _ := c.settled()
	leader.fill("filled", 40)
	c.level()
	for name, restore := range map[string]func(m *member) (from func()){
		"files": func(m *member) func() {
			copied := m.backup()
			return func() {
				for _, path := range append(matches(t, m.db(), "chunk-*"), matches(t, m.db(), "*.chk")...) {
					remove(t, path)
				}
				remove(t, filepath.Join(m.db(), "index"))
				m.restore(copied)
			}
		},
		"volume": func(m *member) func() {
			copied := t.TempDir()
			check.Must(t, m.process.Pause())
			copyTree(t, m.db(), copied)
			check.Must(t, m.process.Resume())
			check.Must(t, copyFile(filepath.Join(copied, "chaser.chk"), filepath.Join(copied, "truncate.chk")))
			return func() {
				remove(t, m.db())
				m.restore(copied)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.in(t)
			leader, followers := c.settled()
			m := followers[0]
			before := leader.id(m)
			put := restore(m)
			leader.fill("filled", 30)
			c.level()
			m.kill()
			put()
			m.start()
			c.newMember(m, before)
			if kept := matches(t, m.db(), "raft.before-restore-*"); len(kept) != 1 || lineWith(m.process, "[WARN]", kept[0]) == "" {
				t.Errorf("set aside are %v, and the log does not name them", kept)
			}
			c.level()
			c.identical()
			remove(t, matches(t, m.db(), "raft.before-restore-*")[0])
		})
	}
	c.finish()
}

// TestLongClusterRecover restores a whole cluster from copies of its nodes, of
// which each is of another moment.
func TestLongClusterRecover(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	leader, _ := c.settled()
	leader.fill("filled", 100)
	c.level()
	var copies []string
	for _, m := range c.members {
		copies = append(copies, m.backup())
		leader.fill("filled", 60)
		c.level()
	}
	newest := c.members[len(c.members)-1]
	kept := check.Value(contents(t.Context(), newest.Client)).Must(t)
	for i, m := range c.members {
		m.wipe()
		m.restore(copies[i])
	}
	// No node begins before an operator has said which copy counts.
	p := newest.run(append([]string{"cluster", "recover"}, newest.arguments()...)...)
	exited(t, p, 0)
	t.Logf("recover: %s", p.Output())
	p = newest.run(append([]string{"cluster", "recover"}, newest.arguments()...)...)
	exited(t, p, 1)
	t.Logf("recover again: %s", p.Output())
	begun := time.Now()
	for _, m := range c.members {
		m.start()
	}
	leader, _ = c.settled()
	t.Logf("a cluster again after %s", time.Since(begun).Round(time.Millisecond))
	c.identical()
	now := check.Value(contents(t.Context(), leader.Client)).Must(t)
	// The last 60 events came after the newest copy.
	if want := len(kept) - 60; len(now) < want || !slices.Equal(now[:want], kept[:want]) {
		t.Errorf("there are %d events, the newest copy had %d", len(now), want)
	}
	leader.fill("filled", 20)
	c.identical()
	c.finish()
}

// exited waits for a command and checks its code.
func exited(t *testing.T, p *lab.Process, code int) {
	t.Helper()
	within(t, settleLimit, "the end of a command", p.Done())
	if p.ExitCode() != code {
		t.Fatalf("exit code %d, want %d\n%s", p.ExitCode(), code, p.Output())
	}
}
