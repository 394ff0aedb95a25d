package eventlog

import (
	"math"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// The first record of a time is found wherever the chunks end, and where they were merged.
func TestPositionAt(t *testing.T) {
	m := newModel()
	for i := range 23 {
		if i%4 != 3 { // Records that follow one another may have the same time.
			m.now += 10
		}
		m.someFrames(1, false)
		if i%5 == 4 {
			m.frame(true, ev("last", "of its chunk"))
		}
	}
	l := mustOpen(t, testOptions(vfs.NewMem()))
	write(t, l, m.frames...)
	looked := func(when string) {
		t.Helper()
		page := check.Value(l.Reads.ReadAll(event.AllRead{Count: 10_000})).Must(t)
		for _, time := range []int64{math.MinInt64, 0, 10, 11, 49, 50, 51, 100, 101, 180, 1000, math.MaxInt64} {
			want := m.tail.End
			for i := len(page.Events) - 1; i >= 0 && page.Events[i].Time >= time; i-- {
				want = page.Events[i].Position
			}
			if got, err := l.Reads.PositionAt(time); err != nil || got != want {
				t.Errorf("%s, time %d: %d, %v, want %d", when, time, got, err, want)
			}
		}
	}
	looked("as written")
	_, err := l.Chunks.Rewrite(background, Rewrite{First: 1, Last: 3, Keep: func(s *Stored) bool { return s.Position%3 != 0 }})
	check.Must(t, err)
	looked("chunks merged")
	empty := mustOpen(t, testOptions(vfs.NewMem()))
	if got, err := empty.Reads.PositionAt(5); err != nil || got != 0 {
		t.Errorf("an empty log: %d, %v", got, err)
	}
}
