package integration_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// spoil changes a byte of a file that a node has open. at counts from the end when it is negative.
func spoil(t *testing.T, path string, at int64) {
	t.Helper()
	f := check.Value(os.OpenFile(path, os.O_RDWR, 0)).Must(t)
	defer func() { _ = f.Close() }()
	if at < 0 {
		at += fileSize(t, path)
	}
	b := make([]byte, 1)
	check.Must(t, check.Err(f.ReadAt(b, at)))
	b[0] ^= 0x40
	check.Must(t, check.Err(f.WriteAt(b, at)))
}

// chunkNames are the chunk files of a folder, by chunk.
func chunkNames(t *testing.T, db string) []string {
	t.Helper()
	names := matches(t, db, "chunk-*")
	slices.Sort(names)
	return names
}

// ready returns why the member should not be sent requests.
func (m *member) ready() error {
	answer, err := m.Do(m.cluster.t.Context(), testkit.Request{Path: "/health/ready"})
	if err == nil && answer.Status != http.StatusNoContent {
		err = fmt.Errorf("%s: %s", m, answer)
	}
	return err
}

// TestLongClusterHeals: bytes of complete chunks rot on a follower and on the leader, which have
// merged differently, while clients write. Only reads of damaged data fail, and only until the node
// has fetched them again.
func TestLongClusterHeals(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	for range 3 {
		c.leader().append("early", c.small(40)...)
		// It completes a chunk everywhere, and merges the leader's.
		c.leader().scavenge("?threshold=-1")
	}
	c.quiet()
	leader, follower := c.leader(), c.others(c.leader())[0]
	if a, b := len(chunkNames(t, leader.db())), len(chunkNames(t, follower.db())); a >= b {
		t.Fatalf("the leader has %d chunk files, a follower %d", a, b)
	}
	before := check.Value(contents(t.Context(), leader.Client)).Must(t)
	load := c.startLoad(7, 4, loadPatience)
	load.more(t, 20)
	for _, victim := range []*member{follower, leader} {
		file := chunkNames(t, victim.db())[0]
		spoil(t, file, 1500)
		if _, err := contents(t.Context(), victim.Client); err == nil || !strings.Contains(err.Error(), "500") || !strings.Contains(err.Error(), filepath.Base(file)+" at offset ") {
			t.Errorf("%s: what is damaged was read: %v", victim, err)
		}
		load.more(t, 20)
		victim.awaitLine("a damaged chunk was replaced by a copy from another node")
		testkit.Eventually(t, settleLimit, victim.ready)
	}
	load.finish(t)
	check.NoError(t, c.identical().holds(load.ledger.acknowledgedSoFar()))
	for _, m := range c.members {
		after, err := contents(t.Context(), m.Client)
		if err != nil || len(after) < len(before) || !slices.Equal(after[:len(before)], before) {
			t.Errorf("%s shows other events than before: %v", m, err)
		}
	}
	// Two of three copies, found by a start.
	pair := c.others(c.leader())
	for _, m := range pair {
		m.stop()
		spoil(t, chunkNames(t, m.db())[0], 1500)
	}
	for _, m := range pair {
		m.start()
	}
	for _, m := range pair {
		m.awaitLine("a damaged chunk was replaced by a copy from another node")
	}
	c.settled()
	for _, m := range c.members {
		testkit.Eventually(t, settleLimit, m.ready)
	}
	c.quiet()
	c.same()
	// The same file on all three, at three places: no copy is whole, together they are.
	for i, m := range c.members {
		spoil(t, chunkNames(t, m.db())[0], 1500+int64(i)*2000)
	}
	for _, m := range c.members {
		// It fails, or a node that was read before this one has healed both.
		if after, err := contents(t.Context(), m.Client); err == nil && !slices.Equal(after[:min(len(before), len(after))], before) {
			t.Errorf("%s shows other events than before", m)
		}
	}
	// The first that heals has a whole copy, which others may fetch.
	testkit.Eventually(t, settleLimit, func() error {
		if c.said("a damaged chunk was put together of what is whole here and elsewhere") == 0 {
			return errors.New("no node has put a chunk together")
		}
		return nil
	})
	for _, m := range c.members {
		testkit.Eventually(t, settleLimit, m.ready)
	}
	c.same()
	// What no start gets over: a file with a damaged header, and one that is gone.
	victim := pair[0]
	victim.stop()
	files := chunkNames(t, victim.db())
	spoil(t, files[0], 20)
	remove(t, files[1])
	repair := []string{"verify", "--db", victim.db(), "--repair-from"}
	if p, code := testkit.Run(t, testkit.Command{Args: append(repair, "http://127.0.0.1:1"), Quiet: true}); code != 2 {
		t.Errorf("no node to repair from: exit code %d\n%s", code, p.Output())
	}
	if p, code := testkit.Run(t, testkit.Command{Args: append(repair, c.leader().URL()), Quiet: true}); code != 0 || !strings.Contains(p.Output(), "repaired chunk-") {
		t.Errorf("repair: exit code %d\n%s", code, p.Output())
	}
	victim.start()
	c.settled()
	c.same()
	c.finish()
}

// TestDamageAlone: a single node says what is damaged, keeps serving the rest, and stays so.
func TestDamageAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := testkit.StartNode(t, dir)
	mustAppend(t, node, "early", -1, 30)
	must(t, node, testkit.Request{Method: http.MethodPost, Path: "/admin/scavenge", Admin: true}, http.StatusOK)
	testkit.Eventually(t, settleLimit, func() error {
		answer, err := node.Do(t.Context(), testkit.Request{Path: "/admin/scavenge/last", Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
		if err == nil && !strings.Contains(string(answer.Body), "Success") {
			err = fmt.Errorf("%s", answer)
		}
		return err
	})
	mustAppend(t, node, "late", -1, 3)
	file := chunkNames(t, dir)[0]
	spoil(t, file, 1500)
	check.Says(t, check.Err(contents(t.Context(), node.Client)), filepath.Base(file)+" at offset ", "what is damaged was read")
	notReady := func() {
		t.Helper()
		testkit.Eventually(t, settleLimit, func() error {
			answer, err := node.Do(t.Context(), testkit.Request{Method: http.MethodGet, Path: "/health/ready"})
			if err == nil && (answer.Status != http.StatusServiceUnavailable || !strings.Contains(answer.Reason+string(answer.Body), filepath.Base(file))) {
				err = fmt.Errorf("%s", answer)
			}
			return err
		})
	}
	notReady()
	mustAppend(t, node, "late", 2, 3)
	testkit.Eventually(t, settleLimit, func() error {
		if !strings.Contains(node.Output(), "a damaged chunk could not be replaced") {
			return fmt.Errorf("it does not say that it stays damaged")
		}
		return nil
	})
	node.Stop()
	node = testkit.StartNode(t, dir) // It is live, for a restart would mend nothing.
	notReady()
	mustAppend(t, node, "after", -1, 3)
	node.Stop()
}
