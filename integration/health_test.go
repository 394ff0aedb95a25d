package integration_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/internal/testkit"
)

// health asks one of the probes, without credentials, and returns an error unless it answers with
// the status.
func (m *member) health(path string, status int) error {
	answer, err := m.ask(testkit.Request{Path: path})
	if err != nil || answer.Status != status {
		return fmt.Errorf("%s on %s: %s, %v, want %d", path, m, answer, err, status)
	}
	return nil
}

// slowStartEvents is how many events make a node that has lost its index, and
// makes it in small tables, start slowly.
const slowStartEvents = 600_000

// TestHealthFromTheFirstMoment: a node that starts for long says so wherever it is asked.
func TestHealthFromTheFirstMoment(t *testing.T) {
	dir := t.TempDir()
	node := testkit.StartNode(t, dir, "--raft-log-store", "Wal")
	if p, code := testkit.Run(t, testkit.Command{Args: []string{"bench", "fill", "--node", node.URL(), "--quiet",
		"--events", fmt.Sprint(slowStartEvents), "--streams", "40", "--size", "16", "--batch", "3000", "--workers", "2"}}); code != 0 {
		t.Fatalf("fill: exit code %d\n%s", code, p.Output())
	}
	node.Stop()
	remove(t, filepath.Join(dir, "index"))

	host, port := ownAddress(t)
	launched := time.Now()
	node = testkit.Launch(t, testkit.Command{Args: []string{"node", "--db", dir, "--node-ip", host, "--node-port", port, "--raft-log-store", "Wal", "--max-mem-table-size", "300"}})
	w := &startWatch{t: t, client: testkit.NewClient("http://"+net.JoinHostPort(host, port), nil)}
	t.Cleanup(w.client.CloseIdle)
	testkit.Eventually(t, settleLimit, func() error {
		_, err := w.client.Do(t.Context(), testkit.Request{Path: "/ping"})
		return err
	})
	t.Logf("answers from %s on", time.Since(launched).Round(time.Millisecond))
	begun, rounds := time.Now(), 0
	for w.round() {
		rounds++
	}
	t.Logf("started after %s: %d rounds of questions, %d of them while files were opened, %d percentages seen",
		time.Since(begun).Round(time.Millisecond), rounds, w.opening, w.percents)
	if w.opening < 5 || w.percents < 3 {
		t.Error("the start was too quick to tell")
	}
	w.want("/health/startup", http.StatusOK, testkit.Request{})
	w.want("/health/live", http.StatusNoContent, testkit.Request{})
	w.want("/health/ready", http.StatusNoContent, testkit.Request{})
	w.want("a write", http.StatusCreated, withID(appendOf("after", ""), 600_001))
	w.want("/info", http.StatusOK, testkit.Request{Admin: true})
	node.AwaitServing()
	node.Stop()
}

// ownAddress is the address for a node that is asked before it says where it listens. If every
// loopback address works, it is one that no one else uses: another program may have taken a port
// that was free a moment ago.
func ownAddress(t *testing.T) (host, port string) {
	t.Helper()
	host = "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.77", 192+os.Getpid()/256%32, os.Getpid()%256)
	}
	l := check.Value(net.Listen("tcp", net.JoinHostPort(host, "0"))).Must(t)
	defer func() { check.NoError(t, l.Close()) }()
	return host, portOf(l.Addr().String())
}

// startWatch asks a node that starts, and judges what it answers.
type startWatch struct {
	t      *testing.T
	client *testkit.Client

	last     starting // that had a percentage
	opening  int      // rounds while files were opened
	percents int      // different ones
	number   int      // of the last write
}

// starting is how far a node says that it is.
type starting struct {
	Started bool
	Doing   string
	Percent *float64
}

// round asks everything once. Answers count if the node had not started when the
// last of them came. It returns false once the node has started.
func (w *startWatch) round() bool {
	before, ok := w.progress()
	if !ok {
		return false
	}
	w.number++
	type question struct {
		what   string
		status int
		r      testkit.Request
	}
	questions := []question{
		{"/health/live", http.StatusServiceUnavailable, testkit.Request{}},
		{"/health/ready", http.StatusServiceUnavailable, testkit.Request{}},
		{"/ping", http.StatusOK, testkit.Request{}},
		{"/gossip", http.StatusOK, testkit.Request{Header: map[string]string{"Accept": testkit.MediaJSON}}},
		{"a write", http.StatusServiceUnavailable, withID(appendOf("early", ""), 600_100+w.number)},
		{"/info with credentials", http.StatusServiceUnavailable, testkit.Request{Path: "/info", Admin: true}},
	}
	answers := make([]testkit.Response, len(questions))
	for i, q := range questions {
		if q.r.Path == "" {
			q.r.Path = q.what
		}
		var err error
		if answers[i], err = w.client.Do(w.t.Context(), q.r); err != nil {
			w.t.Fatalf("%s: %v", q.what, err)
		}
	}
	after, ok := w.progress()
	if !ok {
		return false
	}
	if before.Doing != after.Doing || !opensFiles(before) {
		questions = questions[:3] // The rest may be answered already.
	} else {
		w.opening++
	}
	for i, q := range questions {
		answer := answers[i]
		check.Equal(w.t, answer.Status, q.status, "while", before.Doing, q.what, answer)
		switch q.what {
		case "/health/ready":
			if len(answer.Body) == 0 {
				w.t.Errorf("while %q, %s gives no reason", before.Doing, q.what)
			}
		case "/info with credentials":
			if got := answer.Header.Get("Retry-After"); got != "5" {
				w.t.Errorf("while %q, %s: Retry-After %q", before.Doing, q.what, got)
			}
		case "/gossip":
			var view struct{ Members []gossiped }
			if err := json.Unmarshal(answer.Body, &view); err != nil || len(view.Members) != 1 || view.Members[0].State != "Initializing" {
				w.t.Errorf("while %q, %s: %v %s", before.Doing, q.what, err, answer)
			}
		}
	}
	return true
}

// opensFiles says that the node works on its own files and knows nothing of a cluster yet.
func opensFiles(s starting) bool {
	return s.Doing == "opening files" || s.Doing == "reading the log" || s.Doing == "rebuilding the index"
}

// progress asks how far the start is; the percentage of one activity only grows. ok is false at its
// end.
func (w *startWatch) progress() (s starting, ok bool) {
	answer, err := w.client.Do(w.t.Context(), testkit.Request{Path: "/health/startup"})
	if err == nil {
		err = json.Unmarshal(answer.Body, &s)
	}
	switch {
	case err != nil:
		w.t.Fatalf("/health/startup: %s, %v", answer, err)
	case s.Started && answer.Status == http.StatusOK:
		return s, false
	case s.Started || answer.Status != http.StatusServiceUnavailable || s.Doing == "":
		w.t.Fatalf("/health/startup: %s", answer)
	case s.Percent == nil:
		return s, true
	case *s.Percent < 0 || *s.Percent > 100:
		w.t.Errorf("%q is done to %v percent", s.Doing, *s.Percent)
	case w.last.Doing == s.Doing && *s.Percent < *w.last.Percent:
		w.t.Errorf("%q fell from %v to %v percent", s.Doing, *w.last.Percent, *s.Percent)
	}
	if w.last.Percent == nil || *w.last.Percent != *s.Percent || w.last.Doing != s.Doing {
		w.percents++
	}
	w.last = s
	return s, true
}

// want asks once more.
func (w *startWatch) want(what string, status int, r testkit.Request) {
	w.t.Helper()
	if r.Path == "" {
		r.Path = what
	}
	testkit.Eventually(w.t, settleLimit, func() error {
		answer, err := w.client.Do(w.t.Context(), r)
		if err != nil || answer.Status != status {
			return fmt.Errorf("%s: %s, %v, want %d", what, answer, err, status)
		}
		return nil
	})
}

// Of the follower that is behind: what it misses, and what its link carries.
const (
	missedEvents  = 200 // of 32 KiB
	slowBandwidth = 2 << 20
)

// TestLongClusterHealth: a node that lacks events of the others is not ready, and neither is a node
// without a majority, which has no leader.
func TestLongClusterHealth(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{links: true})
	for _, m := range c.members {
		testkit.Eventually(t, settleLimit, func() error { return m.health("/health/ready", http.StatusNoContent) })
	}
	leader, followers := c.settled()
	away := followers[0]
	away.stop()
	leader.fill("filled", missedEvents)
	missed := check.Value(leader.end()).Must(t)
	for _, m := range c.others(away) {
		check.Must(t, c.lab.Link(m.host, away.host).Set(lab.Rule{BytesPerSecond: slowBandwidth}))
	}
	away.start()
	early := away.readyWith(missed)
	t.Logf("not ready for %d questions", early)
	if early < 20 {
		t.Error("the follower was ready too soon to tell")
	}
	check.Must(t, c.lab.HealAll())
	leader, _ = c.settled()
	c.identical()

	alone := c.others(leader)[0]
	for _, m := range c.others(alone) {
		m.kill()
	}
	testkit.Eventually(t, settleLimit, func() error { return alone.health("/health/ready", http.StatusServiceUnavailable) })
	// It serves reads, so no supervisor is to restart it.
	for path, status := range map[string]int{"/health/live": http.StatusNoContent, "/health/startup": http.StatusOK} {
		check.NoError(t, alone.health(path, status))
	}
	alone.serves("filled")
	for _, m := range c.members {
		if m != alone {
			m.start()
		}
	}
	c.settled()
	for _, m := range c.members {
		testkit.Eventually(t, settleLimit, func() error { return m.health("/health/ready", http.StatusNoContent) })
	}
	c.finish()
}

// readyWith waits until the node is ready, which it must not be before its log
// reaches a position, and returns how often it said that it was not.
func (m *member) readyWith(position int64) (early int) {
	t := m.cluster.t
	t.Helper()
	testkit.Eventually(t, settleLimit, func() error {
		answer, err := m.ask(testkit.Request{Path: "/health/ready"})
		switch {
		case err != nil: // It does not listen yet.
			return err
		case answer.Status == http.StatusServiceUnavailable && len(answer.Body) > 0:
			early++
			return fmt.Errorf("%s", answer)
		case answer.Status != http.StatusNoContent:
			t.Fatalf("ready: %s", answer)
		}
		if end, err := m.end(); err != nil || end < position {
			t.Errorf("%s is ready at %d, %v, and the others were at %d", m, end, err, position)
		}
		return nil
	})
	return early
}
