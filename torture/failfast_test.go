package torture

import (
	"testing"
	"time"
)

// TestFailFast shows that the first violation is announced, and that no later one is taken.
func TestFailFast(t *testing.T) {
	f := newFindings(time.Now())
	told := 0
	f.first = func() { told++ }
	for range 3 {
		f.add(kindLost, "an event")
	}
	if told != 1 || f.total() != 1 {
		t.Errorf("told %d times, %d violations taken, want 1 and 1", told, f.total())
	}
}
