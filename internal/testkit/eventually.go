package testkit

import (
	"testing"
	"time"
)

// Eventually tries until nothing is wrong any more, and fails the test with the
// last complaint if that takes longer than the limit. It is for what can only be
// observed by asking again.
func Eventually(t testing.TB, limit time.Duration, try func() error) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %v", limit, err)
		}
	}
}
