package simulation

import (
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/torture"
)

// TestDrifted: a clock is never off by more than the limit, however long it drifts.
func TestDrifted(t *testing.T) {
	const rate = 1.0 / (1 << 14)
	turn := torture.DriftLimit << 14
	for _, c := range []struct {
		name  string
		rate  float64
		after time.Duration
		want  time.Duration
	}{
		{"begin", rate, 0, 0},
		{"ahead", rate, turn / 2, torture.DriftLimit / 2},
		{"behind", -rate, turn / 2, -torture.DriftLimit / 2},
		{"turns", rate, turn, torture.DriftLimit},
		{"back", rate, 2 * turn, 0},
		{"other side", rate, 3 * turn, -torture.DriftLimit},
		{"long after", rate, 4001 * turn, torture.DriftLimit},
		{"none", 0, turn, 0},
	} {
		t.Run(c.name, func(t *testing.T) { check.Equal(t, drifted(c.rate, c.after), c.want) })
	}
}
