package node

import (
	"testing"

	"github.com/annalsdb/annals/event"
)

// TestCorrelationsWithoutProjections: without projections the member is the one that all know.
func TestCorrelationsWithoutProjections(t *testing.T) {
	if got := (&correlations{}).member(); got != event.CorrelationMember {
		t.Error(got)
	}
}
