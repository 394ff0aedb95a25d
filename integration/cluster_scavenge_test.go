package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// scavengeRun is what a node tells of a run.
type scavengeRun struct {
	ID      string `json:"scavengeId"`
	Result  string `json:"scavengeResult"`
	Error   string `json:"error"`
	Phase   string `json:"phase"`
	Removed int64  `json:"eventsRemoved"`
	Resumed bool   `json:"resumed"`
	Point   *struct {
		Number int64 `json:"number"`
	} `json:"point"`
}

// scavengeRequest asks for something about scavenges, as an administrator.
func (m *member) scavengeRequest(method, path string) testkit.Response {
	t := m.cluster.t
	t.Helper()
	answer, err := m.Do(t.Context(), testkit.Request{Method: method, Path: "/admin/scavenge" + path, Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
	if err != nil {
		t.Fatalf("%s /admin/scavenge%s on %s: %v", method, path, m, err)
	}
	return answer
}

// startScavenge starts a run and returns its id.
func (m *member) startScavenge(query string) string {
	t := m.cluster.t
	t.Helper()
	answer := m.scavengeRequest(http.MethodPost, query)
	var run scavengeRun
	if answer.Status != http.StatusOK || json.Unmarshal(answer.Body, &run) != nil || run.ID == "" {
		t.Fatalf("start of a scavenge on %s: %s", m, answer)
	}
	return run.ID
}

// lastScavenge returns the run that was started last.
func (m *member) lastScavenge() (run scavengeRun, err error) {
	err = m.askJSON("/admin/scavenge/last", &run)
	return run, err
}

// scavengeEnds waits for the end of a run.
func (m *member) scavengeEnds(id string) (run scavengeRun) {
	t := m.cluster.t
	t.Helper()
	testkit.Eventually(t, settleLimit, func() (err error) {
		if run, err = m.lastScavenge(); err != nil {
			return err
		}
		check.MustEqual(t, run.ID, id, m, "the last run is", run)
		if run.Result == "InProgress" {
			return fmt.Errorf("%s: run %+v", m, run)
		}
		return nil
	})
	return run
}

// scavenge runs one to its end, which must be a success.
func (m *member) scavenge(query string) scavengeRun {
	m.cluster.t.Helper()
	run := m.scavengeEnds(m.startScavenge(query))
	if run.Result != "Success" || run.Error != "" {
		m.cluster.t.Fatalf("scavenge %s on %s: %+v", query, m, run)
	}
	return run
}

// slowScavenge starts a run that takes very long, and returns when it has begun its work.
func (m *member) slowScavenge() string {
	t := m.cluster.t
	t.Helper()
	id := m.startScavenge("?threshold=-1&throttlePercent=1")
	testkit.Eventually(t, settleLimit, func() error {
		run, err := m.lastScavenge()
		switch {
		case err != nil:
			return err
		case run.ID != id || run.Result != "InProgress":
			t.Fatalf("%s: the run ended before it was disturbed: %+v", m, run)
		case run.Point == nil || run.Phase == "Idle":
			return fmt.Errorf("%s: run %+v", m, run)
		}
		return nil
	})
	return id
}

// scavengeCluster scavenges all nodes up to the same new point.
func (c *cluster) scavengeCluster() {
	c.t.Helper()
	leader := c.leader()
	points := check.Value(leader.ReadStream(c.t.Context(), "$scavengePoints", 0)).Must(c.t)
	for { // What was begun, and points that this node does not know yet, come first.
		if run := leader.scavenge("?threshold=-1"); run.Point.Number == int64(len(points)) {
			break
		}
	}
	c.level()
	for _, m := range c.others(leader) {
		for m.scavenge("?syncOnly=true").Point != nil {
		}
	}
}

// listed waits until the list of scavenges has a run: no other node knows the run if its node is
// killed earlier.
func (c *cluster) listed(id string) {
	c.t.Helper()
	testkit.Eventually(c.t, settleLimit, func() error {
		entries, err := c.leader().ReadStream(c.t.Context(), "$scavenges", 0)
		for _, e := range entries {
			if strings.Contains(e.Data, id) {
				return nil
			}
		}
		return fmt.Errorf("run %s is none of %d events, %v", id, len(entries), err)
	})
}

// recorded waits until the history of scavenges has the end of a run.
func (c *cluster) recorded(id string) (result, reason string) {
	c.t.Helper()
	testkit.Eventually(c.t, settleLimit, func() error {
		entries, err := c.leader().ReadStream(c.t.Context(), "$scavenges-"+id, 0)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Type == "$scavengeCompleted" {
				var end struct {
					Result string `json:"result"`
					Error  string `json:"error"`
				}
				if err := json.Unmarshal([]byte(e.Data), &end); err != nil {
					return err
				}
				result, reason = end.Result, end.Error
				return nil
			}
		}
		return fmt.Errorf("run %s has no end, %d events", id, len(entries))
	})
	return result, reason
}

// command sends what writes to the leader, until it is answered as it should be.
func (c *cluster) command(r testkit.Request, status int) {
	c.t.Helper()
	r.Admin = true
	testkit.Eventually(c.t, settleLimit, func() error {
		answer, err := c.leader().ask(r)
		if err != nil || answer.Status != status {
			return fmt.Errorf("%s %s: %s, %v", r.Method, r.Path, answer, err)
		}
		return nil
	})
}

func (c *cluster) setMetadata(stream, document string) {
	c.t.Helper()
	c.command(testkit.Request{Method: http.MethodPost, Path: "/streams/" + stream + "/metadata", Body: []byte(document), Header: map[string]string{
		"Content-Type": testkit.MediaJSON, testkit.HeaderExpectedVersion: "-2", testkit.HeaderEventID: fmt.Sprintf("10000000-0000-4000-8000-%012d", c.number()),
	}}, http.StatusCreated)
}

func (c *cluster) deleteStream(stream string, hard bool) {
	c.t.Helper()
	c.command(testkit.Request{Method: http.MethodDelete, Path: "/streams/" + stream, Header: map[string]string{
		testkit.HeaderExpectedVersion: "-2", testkit.HeaderHardDelete: fmt.Sprint(hard),
	}}, http.StatusNoContent)
}

// number counts what this cluster was given, so that ids differ.
func (c *cluster) number() int {
	c.filled++
	return c.filled
}

// small makes events of about a hundred bytes.
func (c *cluster) small(count int) (events []testkit.Event) {
	for range count {
		id := fmt.Sprintf("20000000-0000-4000-8000-%012d", c.number())
		events = append(events, testkit.Event{ID: id, Type: "Small", Data: []byte(`{"id":"` + id + `"}`)})
	}
	return events
}

// TestLongClusterScavenge scavenges nodes of every role at different times, and disturbs
// runs: by stops, kill -9, changes of leader and orderly ends.
func TestLongClusterScavenge(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{hosts: 4})
	replica := c.members[3]
	replica.options = []string{"--read-only-replica"}
	for _, m := range c.members {
		m.start()
	}
	c.settled()
	leader := c.leader()
	leader.fill("filled", 400) // some 13 MB, so that a throttled run does not end by itself
	c.setMetadata("filled", `{"$maxCount":100}`)
	c.level()
	var voters []*member
	for _, m := range c.members[:3] {
		if m != leader {
			voters = append(voters, m)
		}
	}

	// A follower makes the point, through the leader.
	first := voters[0].slowScavenge()
	if answer := voters[0].scavengeRequest(http.MethodPost, ""); answer.Status != http.StatusBadRequest {
		t.Errorf("a second run beside the first: %s", answer)
	}
	if points, err := c.leader().ReadStream(t.Context(), "$scavengePoints", 0); err != nil || len(points) != 1 {
		t.Errorf("scavenge points: %v, %v", points, err)
	}
	// Stopping is answered when it has stopped, so the next one begins at once.
	if answer := voters[0].scavengeRequest(http.MethodDelete, "/"+first); answer.Status != http.StatusOK {
		t.Errorf("stop: %s", answer)
	}
	second := voters[0].slowScavenge()
	c.listed(second)
	if answer := voters[0].scavengeRequest(http.MethodDelete, "/"+first); answer.Status != http.StatusNotFound {
		t.Errorf("stop of the run before: %s", answer)
	}
	if result, reason := c.recorded(first); result != "Stopped" {
		t.Errorf("the stopped run is recorded as %s: %s", result, reason)
	}

	// Killed in the middle, and the leader changes meanwhile. The replica begins on its own.
	voters[0].kill()
	run := replica.scavenge("?threads=3")
	if run.Point == nil || run.Point.Number != 0 || run.Removed == 0 {
		t.Errorf("the replica: %+v", run)
	}
	c.leader().order("/admin/node/resign")
	voters[0].start()
	c.settled()
	if result, reason := c.recorded(second); result != "Failed" || reason != "The node was restarted." {
		t.Errorf("the killed run is recorded as %s: %s", result, reason)
	}
	if run, err := voters[0].lastScavenge(); err != nil || run.Result != "Unknown" {
		t.Errorf("the last run of a new process: %+v, %v", run, err)
	}
	if run := voters[0].scavenge(""); !run.Resumed || run.Point.Number != 0 {
		t.Errorf("after kill -9: %+v", run)
	}

	// A leader that runs a scavenge resigns and continues it; another node is ended.
	leader = c.leader()
	slow := leader.startScavenge("?threshold=-1&throttlePercent=10")
	leader.order("/admin/node/resign")
	c.settled()
	if run := leader.scavengeEnds(slow); run.Result != "Success" {
		t.Errorf("a run that outlived leadership: %+v", run)
	}
	ending := voters[1]
	third := ending.slowScavenge()
	c.listed(third)
	ending.order("/admin/shutdown")
	within(t, settleLimit, "end after POST /admin/shutdown during a run", ending.process.Done())
	if code := ending.process.ExitCode(); code != 0 {
		t.Errorf("exit code %d after POST /admin/shutdown during a run", code)
	}
	ending.process = nil
	ending.CloseIdle()
	ending.start()
	c.settled()
	if result, reason := c.recorded(third); result != "Stopped" && reason != "The node was restarted." {
		t.Errorf("the run during shutdown is recorded as %s: %s", result, reason)
	}
	if run := ending.scavenge(""); !run.Resumed {
		t.Errorf("after a shutdown: %+v", run)
	}
	c.scavengeCluster()
	c.quiet()
	c.same()
	c.finish()
}

// quiet waits until the history of all runs is written: nothing changes the log any more.
func (c *cluster) quiet() {
	c.t.Helper()
	for _, m := range c.running() {
		run := check.Value(m.lastScavenge()).Must(c.t)
		if run.ID != "" && run.Result != "Unknown" {
			c.recorded(run.ID)
		}
	}
	c.level()
}

// TestLongClusterScavengeWithoutLeader: a run with a known point needs no leader; one that must
// make a point fails with the reason, and does not block the next.
func TestLongClusterScavengeWithoutLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{})
	c.leader().append("filled", c.small(40)...)
	leader, followers := c.settled()
	leader.scavenge("")
	c.level()
	left := followers[0]
	for _, m := range c.others(left) {
		m.kill()
	}
	if run := left.scavenge(""); run.Point == nil || run.Point.Number != 0 {
		t.Errorf("without a leader, up to a point that is known: %+v", run)
	}
	begun := time.Now()
	waiting := left.startScavenge("")
	run := left.scavengeEnds(waiting)
	t.Logf("without a leader a point is given up after %s: %s", time.Since(begun).Round(time.Millisecond), run.Error)
	if run.Result != "Errored" || run.Error == "" || run.Point != nil {
		t.Errorf("without a leader, to a new point: %+v", run)
	}
	for _, m := range c.members {
		if m.process == nil {
			m.start()
		}
	}
	if run := left.scavenge(""); run.Point.Number != 1 {
		t.Errorf("with a leader again: %+v", run)
	}
	c.finish()
}

// TestClusterScavengeErases: what is hidden is nowhere on any disk after a scavenge of every node.
func TestClusterScavengeErases(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"Wal", "BoltDB"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, clusterOptions{options: []string{"--raft-log-store", store}})
			needle := "needle-" + strings.Repeat("x", 9) + fmt.Sprint(time.Now().UnixNano())
			sting := func() testkit.Event {
				id := fmt.Sprintf("30000000-0000-4000-8000-%012d", c.number())
				return testkit.Event{ID: id, Type: "Secret", Data: []byte(`{"secret":"` + needle + `"}`)}
			}
			for _, stream := range []string{"counted", "before", "deleted", "ended"} {
				c.leader().append(stream, sting(), sting())
				c.leader().append(stream, c.small(1)...)
			}
			c.leader().append("last-ended", sting()) // Also the last event goes with a stream.
			c.setMetadata("described", `{"secret":"`+needle+`"}`)
			c.setMetadata("described", `{"secret":"no more"}`)
			c.setMetadata("counted", `{"$maxCount":1}`)
			c.setMetadata("before", `{"$tb":2}`)
			c.deleteStream("deleted", false)
			c.deleteStream("ended", true)
			c.deleteStream("last-ended", true)
			c.level()
			for _, m := range c.members {
				if found := holding(t, m.db(), needle); len(found) == 0 {
					t.Fatalf("%s: the needle is nowhere, so nothing can be shown", m)
				}
			}
			c.scavengeCluster()
			gone := func() {
				t.Helper()
				for _, m := range c.members {
					if found := holding(t, m.db(), needle); len(found) > 0 {
						t.Errorf("%s: what was deleted is still in %v", m, found)
					}
				}
			}
			gone()
			c.quiet()
			for _, m := range c.members {
				m.stop()
			}
			gone()
			for _, m := range c.members {
				m.start()
			}
			c.settled()
			c.leader().append("after", c.small(3)...)
			c.quiet()
			gone()
			c.same()
			c.finish()
			gone()
		})
	}
}

// holding lists the files below a folder that contain a text.
func holding(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // It went meanwhile.
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(data, []byte(text)) {
			found = append(found, strings.TrimPrefix(path, dir))
		}
		return err
	})
	check.Must(t, err)
	return found
}
