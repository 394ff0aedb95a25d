package node_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/node"
)

// waited is a client of a cluster that reads what it wrote.
type waited struct {
	*testing.T
	client http.Client
}

// do sends a request, again while a busy machine has lost its leader.
func (w *waited) do(n *node.Node, method, path, body string, headers ...string) (answer *http.Response, text string) {
	w.Helper()
	testkit.Eventually(w, time.Minute, func() error {
		if answer, text = w.try(n, method, path, body, headers...); answer.StatusCode == http.StatusServiceUnavailable {
			return errors.New(text)
		}
		return nil
	})
	return answer, text
}

func (w *waited) try(n *node.Node, method, path, body string, headers ...string) (*http.Response, string) {
	w.Helper()
	r := check.Value(http.NewRequestWithContext(w.Context(), method, n.URL()+path, strings.NewReader(body))).Must(w)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := w.client.Do(r)
	if err != nil {
		w.Error(err)
		return &http.Response{Header: http.Header{}}, ""
	}
	defer func() { check.NoError(w, answer.Body.Close()) }()
	return answer, string(check.Value(io.ReadAll(answer.Body)).Must(w))
}

// append writes an event and returns its position.
func (w *waited) append(n *node.Node, stream, data string) string {
	w.Helper()
	answer, _ := w.do(n, http.MethodPost, "/streams/"+stream, data, "Content-Type", "application/json", "ES-EventType", "t", "ES-EventId", uuid.NewString())
	check.MustEqual(w, answer.StatusCode, http.StatusCreated, "status")
	return answer.Header.Get("ES-Position")
}

// leaderOf returns the leader of a cluster, and a follower.
func leaderOf(t *testing.T, nodes []*node.Node) (leader, follower *node.Node) {
	t.Helper()
	at := slices.IndexFunc(nodes, node.Leads)
	if at < 0 {
		t.Fatal("no node leads")
	}
	return nodes[at], nodes[(at+1)%len(nodes)]
}

// TestWaitFor: what the leader has acknowledged is read at once on a follower. A thousand waiters
// get their answers together.
func TestWaitFor(t *testing.T) {
	nodes := openCluster(t, 3, func(_ int, o *node.Options) { o.Config.RunProjections = config.ProjectionsAll })
	leader, follower := leaderOf(t, nodes)
	w := &waited{T: t}
	w.client.Transport = &http.Transport{MaxIdleConnsPerHost: 2000}
	defer w.client.CloseIdleConnections()

	var took []time.Duration
	for i := range 100 {
		data := fmt.Sprintf(`{"n":%d}`, i)
		at := w.append(leader, "s", data)
		begun := time.Now()
		answer, body := w.do(follower, http.MethodGet, fmt.Sprint("/streams/s/", i), "", "Accept", "application/json", "ES-WaitFor", at)
		took = append(took, time.Since(begun))
		check.Equal(t, [2]any{answer.StatusCode, body}, [2]any{http.StatusOK, data})
	}
	slices.Sort(took)
	t.Logf("a follower answered %s after the leader, %s in 99 of 100 cases", took[50], took[98])

	// Projections and groups run on the leader: a follower passes the question on.
	query := "fromCategory('c').foreachStream().when({$init: () => ({n: 0}), t: (s, e) => { s.n++ }})"
	answer, body := w.do(leader, http.MethodPost, "/projection/$by_category/command/enable", "")
	check.MustEqual(t, answer.StatusCode, http.StatusOK, body)
	answer, body = w.do(leader, http.MethodPost, "/projections/continuous?name=p&type=js&enabled=true", query, "Content-Type", "application/json")
	check.MustEqual(t, answer.StatusCode, http.StatusCreated, body)
	answer, body = w.do(leader, http.MethodPut, "/subscriptions/c-1/g", "{}", "Content-Type", "application/json")
	check.MustEqual(t, answer.StatusCode, http.StatusOK, body)
	for i := range 20 {
		at := w.append(leader, "c-1", "{}")
		_, body := w.do(follower, http.MethodGet, "/projection/p/state?partition=c-1", "", "ES-WaitFor", at, "ES-WaitAtMost", "30s")
		check.Equal(t, body, fmt.Sprintf(`{"n":%d}`, i+1), "state")
		answer, _ := w.do(follower, http.MethodGet, "/subscriptions/c-1/g/info", "", "ES-WaitFor", at, "ES-WaitAtMost", "0s")
		check.Equal(t, answer.StatusCode, http.StatusGatewayTimeout, "no message is answered")
	}

	var end int64
	_, err := fmt.Sscan(w.append(leader, "s", "{}"), &end)
	check.Must(t, err)
	w.do(follower, http.MethodGet, "/streams/s", "", "ES-WaitFor", fmt.Sprint(end))
	at := make([]time.Time, 1000)
	var all sync.WaitGroup
	for i := range at {
		all.Go(func() {
			answer, _ := w.do(follower, http.MethodGet, "/streams/s/0", "", "ES-WaitFor", fmt.Sprint(end+10_000), "ES-WaitAtMost", "60s")
			at[i] = time.Now()
			check.Equal(t, answer.StatusCode, http.StatusOK, "status")
		})
	}
	testkit.Eventually(t, time.Minute, func() error {
		_, metrics := w.do(follower, http.MethodGet, "/metrics", "")
		_, held, _ := strings.Cut(metrics, `annals_shares_held{kind="wait"} `)
		if held, _, _ = strings.Cut(held, "\n"); held != "1000" {
			return fmt.Errorf("%s wait", held)
		}
		return nil
	})
	w.append(leader, "s", `"`+strings.Repeat("x", 20_000)+`"`)
	written := time.Now()
	all.Wait()
	t.Logf("the last of %d waiters was answered %s after the leader", len(at), slices.MaxFunc(at, time.Time.Compare).Sub(written))
}
