package schedule

import (
	"testing"
	"time"

	"github.com/annalsdb/annals/stats"
)

func TestMetrics(t *testing.T) {
	registry := new(stats.Registry)
	inWorld(t, 1, 0, "0 2 * * *", func(w *world) {
		w.stats = registry
		w.startAll()
		w.pass(2*time.Hour + time.Minute)
		during := values(registry)
		w.pass(time.Hour)
		after := values(registry)
		for _, c := range []struct {
			name          string
			during, after float64
		}{
			{"annals_scavenge_schedule_round", 1, 0},
			{"annals_scavenge_schedule_turn", 1, 0},
			{"annals_scavenge_schedule_turns_total Success", 0, 1},
			{"annals_scavenge_schedule_turns_total Lost", 0, 0},
			{"annals_scavenge_schedule_rounds_total Completed", 0, 1},
			{"annals_scavenge_schedule_next_due_seconds", 946778400, 946778400},
		} {
			if during[c.name] != c.during || after[c.name] != c.after {
				w.errorf("%s is %v in the round and %v after it, expected %v and %v", c.name, during[c.name], after[c.name], c.during, c.after)
			}
		}
	})
}

func values(r *stats.Registry) map[string]float64 {
	all := make(map[string]float64)
	r.Each(func(s stats.Sample) {
		name := s.Name
		for _, l := range s.Labels {
			name += " " + l.Value
		}
		all[name] = s.Value
	})
	return all
}
