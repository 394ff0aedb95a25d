package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// query is a projection of one node, or of a cluster by its leader.
type query struct {
	t    *testing.T
	name string
	do   func(testkit.Request) (testkit.Response, error)
}

// queryInfo is a projection as it is shown, as far as tests look at it.
type queryInfo struct {
	Status    string `json:"status"`
	Reason    string `json:"stateReason"`
	Processed int64  `json:"eventsProcessedAfterRestart"`
	Version   int64  `json:"version"`
	Epoch     int64  `json:"epoch"`
	Position  string `json:"position"`
}

// atNode asks a node, for as long as it loads its projections.
func atNode(t *testing.T, c *testkit.Client) func(testkit.Request) (testkit.Response, error) {
	return func(r testkit.Request) (answer testkit.Response, err error) {
		r.Admin = true
		testkit.Eventually(t, settleLimit, func() error {
			if answer, err = c.Do(t.Context(), r); err == nil && answer.Status == http.StatusServiceUnavailable {
				return fmt.Errorf("%s %s: %s", r.Method, r.Path, answer)
			}
			return nil
		})
		return answer, err
	}
}

// must sends a request that must be answered with a status.
func (q *query) must(status int, method, path, body string) testkit.Response {
	q.t.Helper()
	answer, err := q.do(testkit.Request{Method: method, Path: path, Body: []byte(body), Header: map[string]string{"Content-Type": testkit.MediaJSON}})
	check.Must(q.t, err)
	check.MustEqual(q.t, answer.Status, status, method, path, answer)
	return answer
}

func (q *query) path(more string) string { return "/projection/" + url.PathEscape(q.name) + more }

// create makes a continuous projection that emits.
func (q *query) create(script, parameters string) {
	q.t.Helper()
	q.must(http.StatusCreated, http.MethodPost, "/projections/continuous?name="+url.QueryEscape(q.name)+"&emit=yes"+parameters, script)
}

func (q *query) command(name string) {
	q.t.Helper()
	q.must(http.StatusOK, http.MethodPost, q.path("/command/"+name), "")
}

func (q *query) info() (i queryInfo) {
	q.t.Helper()
	answer := q.must(http.StatusOK, http.MethodGet, q.path(""), "")
	check.Must(q.t, json.Unmarshal(answer.Body, &i))
	return i
}

// awaitState waits for the state of the root. A projection that faults ends the test.
func (q *query) awaitState(want string) {
	q.t.Helper()
	testkit.Eventually(q.t, settleLimit, func() error {
		q.t.Helper()
		if got := string(q.must(http.StatusOK, http.MethodGet, q.path("/state"), "").Body); got != want {
			i := q.info()
			if strings.HasPrefix(i.Status, "Faulted") {
				q.t.Fatalf("%s: %s", i.Status, i.Reason)
			}
			return fmt.Errorf("the state of %s is %s, want %s; it is %s", q.name, got, want, i.Status)
		}
		return nil
	})
}

// copying is the script of a projection that writes what it reads, and counts it.
const copying = `
fromStream('in').when({
	$init: function() { return { n: 0 }; },
	$any: function(s, e) {
		s.n++;
		emit('out', 'copied', { of: e.sequenceNumber, id: e.eventId });
		linkTo(e.sequenceNumber % 2 ? 'odd' : 'even', e);
	}
})`

// copiedOnce demands of the streams that copying writes that they hold each event
// once, in order, when they hold as many as there are.
func copiedOnce(t *testing.T, c *testkit.Client, count int) {
	t.Helper()
	for stream, want := range map[string]int{"out": count, "even": (count + 1) / 2, "odd": count / 2} {
		// What is emitted is stored a moment later.
		testkit.Eventually(t, settleLimit, func() error {
			if n := len(rawEvents(t, c, stream)); n < want {
				return fmt.Errorf("%s has %d events, want %d", stream, n, want)
			}
			return nil
		})
	}
	copies := rawEvents(t, c, "out")
	check.Equal(t, len(copies), count, "copies events")
	for i, e := range copies {
		var of struct {
			Of int64
			ID string
		}
		check.Must(t, json.Unmarshal([]byte(e.Data), &of))
		if e.Number != int64(i) || of.Of != int64(i) {
			t.Fatalf("copy %d is that of event %d", e.Number, of.Of)
		}
	}
	for first, stream := range []string{"even", "odd"} {
		links := rawEvents(t, c, stream)
		check.Equal(t, len(links), (count+1-first)/2, stream, "has ... links")
		for i, l := range links {
			check.MustEqual(t, l.Data, fmt.Sprintf("%d@in", 2*i+first), "link", i, "of", stream)
		}
	}
}

// rawEvents reads a whole stream, links as they are.
func rawEvents(t *testing.T, c *testkit.Client, stream string) (all []testkit.Entry) {
	t.Helper()
	for {
		path := fmt.Sprintf("/streams/%s/%d/forward/%d?embed=tryharder", url.PathEscape(stream), len(all), testkit.PageLimit)
		feed, ok, err := c.ReadFeed(t.Context(), path, map[string]string{"ES-ResolveLinkTos": "false"})
		check.Must(t, err)
		if !ok || len(feed.Entries) == 0 {
			return all
		}
		for i := len(feed.Entries) - 1; i >= 0; i-- {
			all = append(all, feed.Entries[i])
		}
	}
}
