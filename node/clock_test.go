package node_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/node"
)

// TestLoneNodeWithAWrongClock: one write with a clock that is ten years ahead. After that events
// that a maximum age leaves stay through a scavenge, the node says what to do, and does not want to
// be asked unless an option says that its clock is right.
func TestLoneNodeWithAWrongClock(t *testing.T) {
	dir := t.TempDir()
	var ahead atomic.Int64
	start := func(tolerance time.Duration) *node.Node {
		o := options(dir)
		o.Config.Insecure, o.Config.ClockTolerance = true, tolerance
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		return open(t, o)
	}
	ready := func(n *node.Node, want int, text string) {
		t.Helper()
		testkit.Eventually(t, 3*time.Minute, func() error {
			if status, body := call(t, n, "GET", "/health/ready", ""); status != want || !strings.Contains(body, text) {
				return fmt.Errorf("%d %s", status, body)
			}
			return nil
		})
		if why := n.Unready(); (why == "") != (text == "") || !strings.Contains(why, text) {
			t.Errorf("/health/ready is %d, and the node says %q", want, why)
		}
	}
	n := start(time.Minute)
	if status, body := call(t, n, "POST", "/streams/s/metadata", `{"$maxAge":3600}`, "Content-Type", "application/json",
		"ES-EventType", "$metadata", "ES-EventId", "7a3d6c0e-0000-4000-8000-000000000001"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	for i := range 5 {
		write(t, n, "s", i)
	}
	ahead.Store(int64(10 * 365 * 24 * time.Hour))
	write(t, n, "other", 0)
	ahead.Store(0)
	ready(n, http.StatusServiceUnavailable, "behind the newest event of its log by ")
	if status, body := call(t, n, "POST", "/admin/scavenge", ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	testkit.Eventually(t, 3*time.Minute, func() error {
		if _, body := call(t, n, "GET", "/admin/scavenge/last", "", "Accept", "application/json"); !strings.Contains(body, `"Success"`) {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
	for i := range 5 {
		if status, body := call(t, n, "GET", fmt.Sprint("/streams/s/", i), "", "Accept", "application/json"); status != 200 {
			t.Errorf("event %d: %d %s", i, status, body)
		}
	}
	check.Must(t, n.Close())
	ready(start(0), http.StatusNoContent, "")
}
