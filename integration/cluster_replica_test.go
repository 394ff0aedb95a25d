package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestClusterReadOnlyReplica: a read-only replica has all data, takes no writes, and does not help
// when a majority is missing.
func TestClusterReadOnlyReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{hosts: 4})
	replica := c.members[3]
	replica.options = []string{"--read-only-replica"}
	for _, m := range c.members {
		m.start()
	}
	leader, followers := c.settled()
	if state, err := replica.state(); err != nil || state != "readonlyreplica" {
		t.Fatalf("the replica is %s, %v", state, err)
	}
	if voters, err := leader.voters(); err != nil || len(voters) != 3 {
		t.Errorf("the voters are %v, %v", voters, err)
	}
	eventuallyGossiped(t, leader, replica, "that it is read-only", func(g gossiped) bool { return g.ReadOnly && g.State == "ReadOnlyReplica" })
	leader.fill("filled", 40)
	c.identical()

	answer, err := replica.Append(t.Context(), "through-the-replica", -2, false, bigEvent(800_000))
	if want := leader.URL() + "/streams/through-the-replica"; err != nil || answer.Status != http.StatusInternalServerError || answer.Header.Get("Location") != want {
		t.Errorf("a write to the replica: %s, Location %q, %v, want 500 with %s", answer, answer.Header.Get("Location"), err, want)
	}
	must(t, replica, testkit.Request{Path: "/streams/filled", Header: map[string]string{testkit.HeaderRequireLeader: "True"}}, http.StatusTemporaryRedirect)
	replica.order("/admin/node/resign") // Nothing happens.

	// One voter and the replica are two of four, and no majority.
	replica.serves("filled")
	victims := append([]*member{leader}, followers...)
	var left *member
	for _, m := range victims {
		if m != replica && m != leader {
			left = m
		}
	}
	for _, m := range victims {
		if m != replica && m != left {
			m.kill()
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
	defer cancel()
	tried, leaderless := 0, false
	for n := 0; (n < 20 || !leaderless) && ctx.Err() == nil; n++ {
		for _, m := range []*member{left, replica} {
			short, done := context.WithTimeout(ctx, time.Second)
			answer, err := m.Append(short, "without-majority", -2, false, bigEvent(810_000+n))
			done()
			if err != nil {
				continue
			}
			tried++
			if answer.Status == http.StatusCreated {
				t.Fatalf("%s took a write without a majority", m)
			}
			leaderless = leaderless || answer.Status == http.StatusServiceUnavailable
			m.serves("filled")
		}
	}
	if tried == 0 || !leaderless {
		t.Errorf("%d attempts to write, none of which was answered 503", tried)
	}
	for _, m := range c.members {
		if m.process == nil {
			m.start()
		}
	}
	c.settled()
	left.append("majority-again", bigEvent(820_000))
	c.identical()

	// The replica that was away catches up as any other.
	replica.stop()
	leader, _ = c.settled()
	leader.fill("filled", 20)
	replica.start()
	c.settled()
	c.identical()
	c.finish()
}

// TestClusterMembers changes the members with the command, as an operator does
// who replaces a dead machine by another one.
func TestClusterMembers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{hosts: 4})
	fourth := c.members[3]
	for _, m := range c.members[:3] {
		m.start()
	}
	leader, followers := c.settled()
	leader.fill("filled", 20)
	dead, other := followers[0], followers[1]
	command := func(code int, args ...string) string {
		t.Helper()
		return other.command(t, code, args...)
	}
	id := leader.id(dead)
	// What a node knows of others may be a second old.
	testkit.Eventually(t, settleLimit, func() error {
		if out := command(0, "list"); strings.Count(out, "Follower") != 2 || !strings.Contains(out, id) || !strings.Contains(out, leader.replication()) {
			return fmt.Errorf("the list is\n%s", out)
		}
		return nil
	})
	if out := command(1, "remove", "10.0.0.1:1"); !strings.Contains(out, "not a member") {
		t.Errorf("an unknown node was removed:\n%s", out)
	}
	if out := command(1, "add", "10.0.0.1:1"); !strings.Contains(out, "no running node") {
		t.Errorf("an unknown node was added:\n%s", out)
	}

	dead.kill()
	c.settled(leader, other)
	// The remedy of doctor works as it is pasted, and is not repeated when it was done.
	doctor := func(node *member) string {
		p, _ := testkit.Run(t, testkit.Command{Quiet: true, Args: []string{"doctor", "--node", node.URL()}})
		return p.Output()
	}
	var remedy string
	testkit.Eventually(t, settleLimit, func() error {
		out := doctor(other)
		_, after, _ := strings.Cut(out, "annals cluster remove "+dead.replication())
		if remedy, _, _ = strings.Cut(after, "\n"); remedy == "" {
			return fmt.Errorf("doctor says\n%s", out)
		}
		return nil
	})
	p, code := testkit.Run(t, testkit.Command{Quiet: true, Args: append([]string{"cluster", "remove", "--yes", dead.replication()}, strings.Fields(remedy)...)})
	if out := p.Output(); code != 0 || !strings.Contains(out, "Once it is stopped it stays in the list for") {
		t.Errorf("remove%s: code %d\n%s", remedy, code, out)
	}
	if voters, err := leader.voters(); err != nil || len(voters) != 2 {
		t.Errorf("the voters are %v, %v", voters, err)
	}
	testkit.Eventually(t, settleLimit, func() error {
		if out := doctor(other); strings.Contains(out, dead.replication()+" is not alive") || !strings.Contains(out, "ok    members: all 2 are alive") {
			return fmt.Errorf("doctor says\n%s", out)
		}
		return nil
	})
	fourth.start()
	c.settled()
	c.identical()

	// The removed one comes back, and is not wanted.
	dead.start()
	line := dead.awaitLine("was removed from the cluster")
	t.Log(line)
	must(t, dead, testkit.Request{Path: "/health/live"}, http.StatusServiceUnavailable)
	if answer, err := dead.ask(testkit.Request{Path: "/health/ready"}); err != nil || !strings.HasPrefix(string(answer.Body), "this node was removed from the cluster: ") {
		t.Errorf("/health/ready of the removed node: %s, %v", answer, err)
	}
	knows := func(node *member) {
		t.Helper()
		testkit.Eventually(t, settleLimit, func() error { // It may learn of it a moment later.
			if out := doctor(node); !strings.Contains(out, "this node was removed from the cluster: ") {
				return fmt.Errorf("doctor on the removed node:\n%s", out)
			}
			return nil
		})
	}
	knows(dead)
	if voters, err := leader.voters(); err != nil || len(voters) != 3 {
		t.Errorf("the voters are %v, %v", voters, err)
	}
	testkit.Eventually(t, settleLimit, func() error { // Until gossip has brought it to all.
		p, code := testkit.Run(t, testkit.Command{Args: []string{"cluster", "add", id, "--node", leader.URL()}, Quiet: true})
		if code != 0 {
			return fmt.Errorf("annals cluster add: %s", p.Output())
		}
		return nil
	})
	c.settled()
	c.identical()
	if voters, err := leader.voters(); err != nil || len(voters) != 4 {
		t.Errorf("the voters are %v, %v", voters, err)
	}
	// The leader removes itself by handing over first.
	leader, _ = c.settled()
	command(0, "remove", leader.replication())
	c.settled(c.others(leader)...)
	knows(leader) // It has served.
	c.others(leader)[0].append("after-all", bigEvent(900_000))
	c.identical(c.others(leader)...)
	c.finish()
}

// command runs annals cluster against the node, and returns what it printed.
func (m *member) command(t *testing.T, code int, args ...string) string {
	t.Helper()
	p, got := testkit.Run(t, testkit.Command{Args: append(append([]string{"cluster"}, args...), "--node", m.URL()), Quiet: true})
	if got != code {
		t.Errorf("annals cluster %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, p.Output())
	}
	return p.Output()
}

// TestClusterRemoveTooMany: one voter is not a majority of three. Removing the last but one is
// refused, for the cluster would take no more writes.
func TestClusterRemoveTooMany(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	leader, followers := c.settled()
	dead, other := followers[0], followers[1]
	id := leader.id(dead)
	dead.kill()
	c.settled(leader, other)
	leader.command(t, 0, "remove", id)
	leader.append("with-two", bigEvent(1))
	if out := leader.command(t, 1, "remove", other.replication()); !strings.Contains(out, "majority") {
		t.Errorf("the refusal says\n%s", out)
	}
	if answer, err := leader.Append(t.Context(), "with-two", -2, false, bigEvent(2)); err != nil || answer.Status != http.StatusCreated {
		t.Errorf("a write after that: %s, %v", answer, err)
	}
}

// TestClusterGrows makes a cluster of three out of a node that was alone.
func TestClusterGrows(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{})
	first := c.members[0]
	first.startAlone()
	first.fill("filled", 20)
	first.stop()
	for _, m := range c.members {
		m.start()
	}
	c.settled()
	first.fill("filled", 20)
	check.Equal(t, len(c.identical().streams["filled"]), 40, "events")
	c.finish()
}
