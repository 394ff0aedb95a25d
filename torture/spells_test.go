package torture

import (
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

func TestSpells(t *testing.T) {
	const minute = int64(time.Minute)
	s := spells{busy: 2 * time.Minute, quiet: 58 * time.Minute}
	for _, c := range []struct {
		name             string
		of               spells
		now, began, left int64
	}{
		{"without quiet", spells{busy: time.Minute}, 90 * minute, 0, 0},
		{"the first spell", s, minute, 0, 0},
		{"its end", s, 2 * minute, 0, 58 * minute},
		{"quiet", s, 59 * minute, 0, minute},
		{"the next spell", s, 61 * minute, 60 * minute, 0},
	} {
		began, left := c.of.at(c.now)
		check.Deep(t, []int64{began, left}, []int64{c.began, c.left}, c.name)
	}
	check.Equal(t, s.after(minute, 30*time.Second), 30*time.Second, "a pause within a spell")
	check.Equal(t, s.after(minute, 2*time.Minute), 59*time.Minute, "a pause into the quiet")
}

// TestGapsLeaveOutTheQuiet: no client writes then.
func TestGapsLeaveOutTheQuiet(t *testing.T) {
	const s = int64(time.Second)
	g := newGapRecorder(0)
	g.spells = spells{busy: 10 * time.Second, quiet: 90 * time.Second}
	for _, at := range []int64{1, 9, 103, 112, 190} {
		g.success(at * s)
	}
	check.Deep(t, g.known(), []gap{{0, s}, {s, 9 * s}, {100 * s, 103 * s}, {103 * s, 110 * s}})
}
