package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// withProjections are the options of a node that runs all projections.
var withProjections = []string{"--run-projections", "All"}

// TestProjections runs projections on one node.
func TestProjections(t *testing.T) {
	t.Parallel()
	t.Run("life", projectionLife)
	t.Run("system projections", systemProjectionsOfOldEvents)
	t.Run("modes", projectionModes)
}

// projectionLife takes a projection from its creation to its end, and restarts the node in between.
func projectionLife(t *testing.T) {
	dir := t.TempDir()
	node := testkit.StartNode(t, dir, withProjections...)
	q := &query{t: t, name: "counts in all/the $streams", do: atNode(t, node.Client)}
	mustAppend(t, node, "in", -1, 10)
	q.create(copying, "&trackemittedstreams=yes")
	q.awaitState(`{"n":10}`)
	copiedOnce(t, node.Client, 10)
	node.Stop()

	node = testkit.StartNode(t, dir, withProjections...)
	q.do = atNode(t, node.Client)
	mustAppend(t, node, "in", 9, 5)
	q.awaitState(`{"n":15}`)
	copiedOnce(t, node.Client, 15)
	if i := q.info(); i.Status != "Running" {
		t.Errorf("after a restart: %+v", i)
	}
	q.command("disable")
	if i := q.info(); i.Status != "Stopped" {
		t.Errorf("disabled: %+v", i)
	}
	mustAppend(t, node, "in", 14, 1)
	q.must(http.StatusOK, http.MethodPost, "/projections/restart", "")
	q.awaitState(`{"n":15}`)
	q.command("enable")
	q.awaitState(`{"n":16}`)
	copiedOnce(t, node.Client, 16)
	if a := q.must(http.StatusInternalServerError, http.MethodDelete, q.path(""), ""); a.Reason != "Failed" || string(a.Body) != "Cannot delete a projection that hasn't been stopped or faulted." {
		t.Errorf("delete a running projection: %s", a)
	}
	q.command("disable")
	q.must(http.StatusNoContent, http.MethodDelete, q.path("?deleteCheckpointStream=yes&deleteEmittedStreams=yes"), "")
	testkit.Eventually(t, settleLimit, func() error {
		for _, stream := range []string{"out", "odd", "even", "$projections-" + q.name + "-checkpoint"} {
			if left := rawEvents(t, node.Client, stream); len(left) > 0 {
				return fmt.Errorf("%d events are left of %s", len(left), stream)
			}
		}
		return nil
	})
	q.must(http.StatusNotFound, http.MethodGet, q.path(""), "")
	node.Stop()
	verifyClean(t, dir)
}

// systemProjections are enabled one by one, or at start.
var systemProjections = []string{"$streams", "$stream_by_category", "$by_category", "$by_event_type", "$by_correlation_id"}

// systemProjectionsOfOldEvents: over a database that was written before they were
// enabled they write what they do over one that was written after.
func systemProjectionsOfOldEvents(t *testing.T) {
	before := testkit.StartNode(t, t.TempDir(), withProjections...)
	after := testkit.StartNode(t, t.TempDir(), append([]string{"--start-standard-projections"}, withProjections...)...)
	for _, node := range []*testkit.Process{before, after} {
		writeAllKinds(t, node)
	}
	for _, name := range systemProjections {
		(&query{t: t, name: name, do: atNode(t, before.Client)}).command("enable")
	}
	want := linkStreams(t, after)
	if got := linkStreams(t, before); !slices.Equal(got, want) {
		t.Errorf("written before:\n%s\nwritten after:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, link := range []string{
		"$ce-a: 0@a-1", "$ce-b: 0@a-1", "$category-a: a-1", "$streams: 0@a-1", "$et-T: 0@a-1", "$bc-c1: 0@a-1", "$et-$deleted: ",
	} {
		if !slices.ContainsFunc(want, func(line string) bool { return strings.Contains(line, link) }) {
			t.Errorf("there is no %s in\n%s", link, strings.Join(want, "\n"))
		}
	}
}

// writeAllKinds writes events of all kinds that system projections tell apart.
func writeAllKinds(t *testing.T, node *testkit.Process) {
	t.Helper()
	id := 0
	write := func(stream, typ, data, metadata string) {
		t.Helper()
		id++
		body := fmt.Sprintf(`[{"eventId":%q,"eventType":%q,"data":%s,"metadata":%s}]`, uuidOf(id), typ, data, metadata)
		answer, err := node.Do(t.Context(), testkit.Request{
			Path: "/streams/" + url.PathEscape(stream), Body: []byte(body), Admin: true, Header: map[string]string{"Content-Type": testkit.MediaEvents},
		})
		if err != nil || answer.Status != http.StatusCreated {
			t.Fatalf("%s: %s, %v", stream, answer, err)
		}
	}
	write("a-1", "T", `{"v":1}`, `{"$correlationId":"c1"}`)
	write("a-1", "U", `{"v":2}`, `{"$correlationId":"c2","x":1}`)
	write("a-2", "T", `"text"`, `{}`)
	write("b-7", "$>", `"0@a-1"`, `{}`)
	write("none", "T", `{}`, `{"$correlationId":null}`)
	write("-none", "T", `{}`, `{}`)
	write("$own-1", "T", `{}`, `{"$correlationId":"c1"}`)
	write("c-soft", "T", `{}`, `{}`)
	write("c-hard", "T", `{}`, `{}`)
	setMetadata(t, node.Client, "a-1", `{"mark":1}`)
	deleteStream(t, node.Client, "c-soft", false)
	deleteStream(t, node.Client, "c-hard", true)
	write("a-1", "T", `{"v":3}`, `{"$correlationId":"c1"}`)
	write("end-1", "End", `{}`, `{}`)
}

// linkStreams waits until the system projections are done, stops them, and tells all that
// they wrote, by stream.
func linkStreams(t *testing.T, node *testkit.Process) (lines []string) {
	t.Helper()
	for _, stream := range []string{"$ce-end", "$category-end", "$et-End"} {
		testkit.Eventually(t, settleLimit, func() error {
			if len(rawEvents(t, node.Client, stream)) == 0 {
				return fmt.Errorf("there is nothing in %s", stream)
			}
			return nil
		})
	}
	// The others have no link to the last event: they are done when they have read all.
	for _, name := range systemProjections {
		q := &query{t: t, name: name, do: atNode(t, node.Client)}
		testkit.Eventually(t, settleLimit, func() error {
			var i struct{ Progress float64 }
			answer := q.must(http.StatusOK, http.MethodGet, q.path(""), "")
			if err := json.Unmarshal(answer.Body, &i); err != nil || i.Progress < 100 {
				return fmt.Errorf("%s: progress %v, %w", name, i.Progress, err)
			}
			return nil
		})
		q.command("disable") // It answers when all that was emitted is written.
	}
	known := map[string]bool{}
	if _, err := node.ReadAll(t.Context(), testkit.AllStart, func(e testkit.Entry) error {
		for _, prefix := range []string{"$ce-", "$category-", "$et-", "$bc-", "$streams"} {
			if strings.HasPrefix(e.Stream, prefix) {
				known[e.Stream] = true
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for stream := range known {
		for _, e := range rawEvents(t, node.Client, stream) {
			lines = append(lines, fmt.Sprintf("%s: %s, %s %d", stream, e.Data, e.Type, e.Number))
		}
	}
	slices.Sort(lines)
	return lines
}

// projectionModes: which projections run by which options.
func projectionModes(t *testing.T) {
	type info struct {
		ProjectionsMode string
		Features        struct{ Projections bool }
	}
	for _, c := range []struct {
		options []string
		mode    string
		own     string // status of a projection of a user
		system  string // of a system projection
	}{
		{nil, "None", "", ""},
		{[]string{"--run-projections", "system"}, "System", "Stopped (Enabled)", "Stopped"},
		{[]string{"--run-projections", "system", "--start-standard-projections"}, "System", "Stopped (Enabled)", "Running"},
		{withProjections, "All", "Running", "Stopped"},
	} {
		node := testkit.StartNode(t, t.TempDir(), append([]string{"--mem-db"}, c.options...)...)
		ask := func(path string, into any) {
			t.Helper()
			answer := must(t, node, testkit.Request{Path: path, Admin: true}, http.StatusOK)
			check.Must(t, json.Unmarshal(answer.Body, into))
		}
		var i info
		var subsystems []string
		ask("/info", &i)
		ask("/sys/subsystems", &subsystems)
		if i.ProjectionsMode != c.mode || i.Features.Projections != (c.own != "") || slices.Contains(subsystems, "Projections") != (c.own != "") {
			t.Errorf("%v: %+v, subsystems %v", c.options, i, subsystems)
		}
		if c.own == "" {
			must(t, node, testkit.Request{Path: "/projections/any", Admin: true}, http.StatusNotFound)
			continue
		}
		q := &query{t: t, name: "own", do: atNode(t, node.Client)}
		q.create(`fromStream('in').when({})`, "")
		for name, want := range map[string]string{"own": c.own, "$by_category": c.system} {
			q.name = name
			testkit.Eventually(t, settleLimit, func() error {
				if got := q.info().Status; got != want {
					return fmt.Errorf("%v: %s is %s, want %s", c.options, name, got, want)
				}
				return nil
			})
		}
	}
}
