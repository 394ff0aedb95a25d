package ui_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/internal/testkit"
)

// startCluster starts three nodes and returns where they serve, the leader first.
func startCluster(t *testing.T) (bases []string) {
	t.Helper()
	p := testkit.Launch(t, testkit.Command{Args: []string{"dev", "--port", "0", "--db", t.TempDir()}})
	p.AwaitOutput("data are in")
	for _, m := range regexp.MustCompile(`serves (http://\S+)\s+(\w+)`).FindAllStringSubmatch(p.Stdout(), -1) {
		if m[2] == "Leader" {
			bases = append([]string{m[1]}, bases...)
		} else {
			bases = append(bases, m[1])
		}
	}
	if len(bases) != 3 {
		t.Fatalf("three nodes are wanted: %s", p.Stdout())
	}
	return bases
}

// TestCluster follows a stream on a follower while the leader resigns, and acts on all
// nodes through that follower.
func TestCluster(t *testing.T) {
	bases := startCluster(t)
	b := newBrowser(t)
	follower := testkit.NewClient(bases[1], nil)
	defer follower.CloseIdle()
	append1 := func(i int) {
		t.Helper()
		ask(t, follower, "POST", "/streams/s", fmt.Sprintf(`{"i":%d}`, i), "ES-EventType", "T", "ES-EventId", uuid.NewString(), "Annals-Node", "leader")
	}
	append1(0)
	p := b.open(t, bases[1], "admin", "#/")
	p.sees("This node follows " + strings.TrimPrefix(bases[0], "http://") + ".")
	p.goTo("#/streams/s")
	p.find("link", "0@s")
	p.click("button", "Live")
	p.sees("Live 0 events")
	for i := range 5 {
		append1(i + 1)
	}
	p.find("link", "5@s")

	q := b.open(t, bases[2], "admin", "#/cluster").mayRefuse(503)
	q.find("table", "Nodes")
	q.find("image", "Cluster map")
	// Leadership goes to the node with the highest priority, and stays there.
	next := strings.TrimPrefix(bases[2], "http://")
	q.fill("spinbutton", "Priority of "+next, "3")
	q.click("button", "Set priority of "+next)
	q.await("the priority", func() error {
		if got := value[string](q, "fetch('../gossip').then((r) => r.text())"); !strings.Contains(got, `"nodePriority": 3`) {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	acts := q.acts
	q.click("button", "Resign")
	q.find("dialog", "Resign")
	q.click("button", "Resign")
	q.none("dialog", "Resign")
	if q.acts -= acts; q.acts > 2 {
		t.Errorf("it took %d acts to take a node out of service", q.acts)
	}
	q.await("another leader", func() error {
		got := value[string](q, "document.querySelector('table').innerText")
		if !regexp.MustCompile(regexp.QuoteMeta(next) + `[^\n]*\s+Leader`).MatchString(got) {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	for i := range 5 {
		append1(i + 6)
	}
	for i := 1; i <= 10; i++ {
		p.find("link", fmt.Sprintf("%d@s", i))
		if n := len(p.all("link", fmt.Sprintf("%d@s", i))); n != 1 {
			t.Errorf("%d@s is there %d times", i, n)
		}
	}
	// A write and the read after it go to the leader: the follower's page shows it at once.
	p.goTo("#/streams/s/metadata")
	p.h1("Access and limits")
	p.fill("textbox", "Keep at most", "3")
	p.click("button", "Save")
	p.sees("Saved.")
	// So do the parked messages of a group.
	ask(t, follower, "PUT", "/subscriptions/s/mail", `{"startFrom":0}`, "Annals-Node", "leader")
	park(t, follower, "/subscriptions/s/mail", "3", "Annals-Node", "leader")
	p.goTo("#/subscriptions/s/mail/parked")
	p.sees("3 messages are parked.")
	p.click("button", "Look at 0")
	p.find("tree", "Data")
	for i, act := range []string{"Replay", "Drop"} {
		name := fmt.Sprintf("%s %d", act, i)
		p.click("button", name)
		p.find("dialog", name)
		p.click("button", act)
		p.none("button", name)
	}
	p.sees("1 message is parked.")
	// What concerns one node is asked of that one.
	p.goTo("#/stats")
	p.h1("Statistics")
	p.goTo("#/scavenge")
	p.h1("Scavenge")
	p.click("button", "Dry run")
	p.find("region", "Estimate")
	p.goTo("#/options")
	p.h1("Options")
}
