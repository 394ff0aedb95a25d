package integration_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestScavengeGoesOnAfterKill kills a node in the middle of a run, before it has written a table of
// its index: the next start still resumes the run.
func TestScavengeGoesOnAfterKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := testkit.StartNode(t, dir, "--insecure")
	var events []testkit.Event
	for n := range 400 { // Some 13 MB, so that a throttled run does not end by itself.
		events = append(events, bigEvent(n))
	}
	for n := 0; n < len(events); n += 20 {
		if answer, err := node.Append(t.Context(), "s", -2, false, events[n:n+20]...); err != nil || answer.Status != http.StatusCreated {
			t.Fatalf("append: %s, %v", answer, err)
		}
	}
	start := func(query string) {
		t.Helper()
		must(t, node, testkit.Request{Method: http.MethodPost, Path: "/admin/scavenge" + query}, http.StatusOK)
	}
	start("?throttlePercent=1&threshold=-1")
	node.AwaitLog("scavenge phase started")
	// The stop makes sure that what is known of the run is in the file.
	must(t, node, testkit.Request{Method: http.MethodDelete, Path: "/admin/scavenge/current"}, http.StatusOK)
	node.AwaitLog("scavenge stopped")
	node.Kill()

	node = testkit.StartNode(t, dir, "--insecure")
	start("")
	check.Contains(t, node.AwaitLog("scavenge completed"), "executed=1", "the run ended with")
	if out := node.Output(); !strings.Contains(out, "scavenge resumes where the last one stopped") {
		t.Errorf("the run was begun anew:\n%s", out)
	}
	node.Stop()
	verifyClean(t, dir)
}
