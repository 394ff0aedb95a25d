package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fakeCluster is a cluster of nodes that run their scavenges at once and fully.
type fakeCluster struct {
	mu      sync.Mutex
	nodes   []string       // addresses, host:port
	leader  int            // that gossip tells of
	dead    map[int]bool   // as gossip tells
	silent  map[int]bool   // they do not answer
	results map[int]string // of the scavenge of a node, if not Success
	started []int          // nodes in the order in which they were asked to start
	moves   int            // the leader once a node has been started; below 0: as before
	points  int            // scavenge points in the log
	reached map[int]int    // points up to which nodes have scavenged
	ahead   map[int]bool   // their logs are longer than the leader's
	stuck   bool           // scavenges make no new point
}

func (c *fakeCluster) serve(t *testing.T) {
	t.Helper()
	for i := range c.nodes {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.answer(i, w, r) }))
		t.Cleanup(s.Close)
		c.nodes[i] = strings.TrimPrefix(s.URL, "http://")
	}
}

func (c *fakeCluster) answer(node int, w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent[node] {
		panic(http.ErrAbortHandler)
	}
	answer := ""
	switch r.Method + " " + r.URL.Path {
	case getGossip:
		var members []string
		for i, address := range c.nodes {
			u := url.URL{Host: address}
			state := "Follower"
			if i == c.leader {
				state = "Leader"
			}
			end := 1000*c.points + 500
			if c.ahead[i] {
				end *= 1000
			}
			members = append(members, fmt.Sprintf(`{"state":%q,"isAlive":%t,"httpEndPointIp":%q,"httpEndPointPort":%s,"writerCheckpoint":%d}`,
				state, !c.dead[i], u.Hostname(), u.Port(), end))
		}
		answer = `{"members":[` + strings.Join(members, ",") + `]}`
	case postRun:
		c.started = append(c.started, node)
		if c.moves >= 0 {
			c.leader = c.moves
		}
		if c.reached == nil {
			c.reached = map[int]int{}
		}
		if c.reached[node] == c.points && !c.stuck {
			c.points++
		}
		c.reached[node] = c.points
		answer = accepted
	case "POST " + redactPath:
		var asked struct{ DryRun bool }
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if !asked.DryRun {
			c.started = append(c.started, node)
		}
		answer = `{"events":[{"event":"0@s","position":1,"chunk":"chunk-000000.000000","status":"redacted"}]}`
	case getCurrent:
		answer = noRun
	case getLast:
		result := c.results[node]
		if result == "" {
			result = "Success"
		}
		point := fmt.Sprintf(`"point":{"position":%d}`, 1000*c.reached[node])
		answer = strings.Replace(ended(testRun, result, "why"), `"point":null`, point, 1)
	}
	_, _ = io.WriteString(w, answer)
}

func TestScavengeAll(t *testing.T) {
	t.Setenv(passwordVariable, "")
	for _, c := range []struct {
		name    string
		cluster *fakeCluster
		code    int
		started []int
		stderr  string
	}{
		{"leader last", &fakeCluster{leader: 0, moves: -1}, 0, []int{1, 2, 0}, "started on"},
		{"asked follower", &fakeCluster{leader: 1, moves: -1}, 0, []int{0, 2, 1}, "started on"},
		{"leadership moves", &fakeCluster{leader: 0, moves: 2}, 0, []int{1, 0, 2}, "started on"},
		{"one is stopped", &fakeCluster{leader: 0, moves: -1, results: map[int]string{1: "Stopped"}}, 3, []int{1}, "annals: not scavenged: 2 more nodes\n"},
		{"one fails", &fakeCluster{leader: 0, moves: -1, results: map[int]string{2: "Errored"}}, 1, []int{1, 2}, "annals: not scavenged: 1 more node\n"},
		{"the last fails", &fakeCluster{leader: 0, moves: -1, results: map[int]string{0: "Errored"}}, 1, []int{1, 2, 0}, "failed: why\n"},
		{"one is dead", &fakeCluster{leader: 0, moves: -1, dead: map[int]bool{2: true}, silent: map[int]bool{2: true}}, 1, nil, "is not alive as 127.0.0.1:1 sees it, and does not answer: "},
		{"one counts as dead", &fakeCluster{leader: 0, moves: -1, dead: map[int]bool{2: true}}, 0, []int{1, 2, 0}, "is not alive as 127.0.0.1:1 sees it, but answers: "},
		// What was hidden since would stay on the followers, whose first run is up to that point.
		{"a point that one node has reached", &fakeCluster{leader: 0, moves: -1, points: 1, reached: map[int]int{0: 1}}, 0, []int{1, 1, 2, 0}, "started on"},
		{"a point that no node has reached", &fakeCluster{leader: 0, moves: -1, points: 3}, 0, []int{1, 1, 2, 0}, "started on"},
		{"a longer log that is refused", &fakeCluster{leader: 0, moves: -1, ahead: map[int]bool{2: true}}, 0, []int{1, 2, 0}, "started on"},
		{"no new point", &fakeCluster{leader: 0, moves: -1, stuck: true}, 1, []int{1, 1, 1, 1}, "has scavenged 4 times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cluster.nodes = make([]string, 3)
			c.cluster.serve(t)
			code, stdout, stderr := runScavenge("start", "--all", "--node", c.cluster.nodes[0], "--interval", "1ms")
			if code != c.code || !slices.Equal(c.cluster.started, c.started) || strings.Count(stdout, "result ") != len(c.started) || !strings.Contains(stderr, c.stderr) {
				t.Errorf("code %d, started %v\nstdout:\n%s\nstderr:\n%s", code, c.cluster.started, stdout, stderr)
			}
		})
	}
	_, address := scavenger(t, map[string][]string{getGossip: {`{"members":[]}`}})
	expect(t, []string{"start", "--all", "--node", address}, 1, nil, []string{"does not say which nodes its cluster has"})
	_, address = scavenger(t, map[string][]string{getGossip: {"401 "}})
	expect(t, []string{"start", "--all", "--node", address}, 1, nil, []string{"asks for credentials"})
}

// TestRedactAllNodes: a member that gossip takes for dead is asked itself before anything is given
// up.
func TestRedactAllNodes(t *testing.T) {
	t.Setenv(passwordVariable, "")
	for _, c := range []struct {
		name    string
		cluster *fakeCluster
		code    int
		started []int
		stderr  string
	}{
		{"followers first", &fakeCluster{leader: 0}, 0, []int{1, 2, 0}, ""},
		{"one is dead", &fakeCluster{leader: 0, dead: map[int]bool{2: true}, silent: map[int]bool{2: true}}, 2, nil, "does not answer: "},
		{"one counts as dead", &fakeCluster{leader: 0, dead: map[int]bool{2: true}}, 0, []int{1, 2, 0}, "but answers: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cluster.nodes = make([]string, 3)
			c.cluster.serve(t)
			var stdout, stderr bytes.Buffer
			code := run([]string{"redact", "--node", "http://" + c.cluster.nodes[0], "--all-nodes", "--events", "0@s"}, &stdout, &stderr, nil)
			if code != c.code || !slices.Equal(c.cluster.started, c.started) || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("code %d, started %v\nstdout:\n%s\nstderr:\n%s", code, c.cluster.started, &stdout, &stderr)
			}
		})
	}
}
