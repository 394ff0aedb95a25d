package node_test

import (
	"strings"
	"testing"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/check"
)

const asAdmin = "Basic YWRtaW46Y2hhbmdlaXQ="

// TestProjectionsAreLoaded: a node on its own that is ready, or open, answers
// requests about projections. Its health says so as soon as that is true.
func TestProjectionsAreLoaded(t *testing.T) {
	dir := t.TempDir()
	for _, round := range []string{"first start", "second start"} {
		o := options(dir)
		o.Config.RunProjections = config.ProjectionsAll
		n := open(t, o)
		if status, body := call(t, n, "GET", "/health/live", ""); status != 204 {
			t.Fatalf("%s: %d %s", round, status, body)
		}
		status, body := call(t, n, "GET", "/projections/continuous", "", "Authorization", asAdmin)
		check.MustEqual(t, status, 200, round, body)
		check.MustEqual(t, strings.Count(body, `"name": "$`), 5, round, body)
		if status, body := call(t, n, "GET", "/stats/es/queue/projections%20leader", "", "Authorization", asAdmin); status != 200 {
			t.Fatalf("%s: %d %s", round, status, body)
		}
		check.Must(t, n.Close())
	}
}

// TestNoProjections: by default there are none.
func TestNoProjections(t *testing.T) {
	n := open(t, options(t.TempDir()))
	for _, path := range []string{"/projections/any", "/projection/$by_category", "/stats/es/queue/projections%20leader"} {
		if status, body := call(t, n, "GET", path, "", "Authorization", asAdmin); status != 404 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
