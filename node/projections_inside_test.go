package node

import (
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// TestCorrelationsWithoutProjections: without projections the member is the one that all know.
func TestCorrelationsWithoutProjections(t *testing.T) {
	check.Equal(t, (&correlations{}).member(), event.CorrelationMember)
}
