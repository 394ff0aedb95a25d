package schedule

import (
	"testing"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

// TestWire holds the events as they are stored: later versions must read them.
func TestWire(t *testing.T) {
	node, other := event.ID{15: 1}, event.ID{15: 2}
	cases := []struct {
		p    proposal
		kind string
		data string
	}{
		{proposal{TypeJoined, note{Node: node, Endpoint: "a:2113", Schedule: "@daily", Since: noon}}, "$scavengeScheduleJoined",
			`{"schedule":"@daily","node":"00000000-0000-0000-0000-000000000001","endpoint":"a:2113","since":"2026-03-01T12:00:00Z"}`},
		{proposal{TypeLeft, note{Node: node, Endpoint: "a:2113"}}, "$scavengeScheduleLeft",
			`{"node":"00000000-0000-0000-0000-000000000001","endpoint":"a:2113"}`},
		{proposal{TypeStarted, note{Round: noon, Schedule: "@daily", Node: node, Endpoint: "a:2113"}}, "$scavengeRoundStarted",
			`{"round":"2026-03-01T12:00:00Z","schedule":"@daily","node":"00000000-0000-0000-0000-000000000001","endpoint":"a:2113"}`},
		{proposal{TypeTaken, note{Round: noon, Node: node, Endpoint: "a:2113", Session: other, Attempt: 1}}, "$scavengeTurnTaken",
			`{"round":"2026-03-01T12:00:00Z","node":"00000000-0000-0000-0000-000000000001","endpoint":"a:2113","session":"00000000-0000-0000-0000-000000000002","attempt":1}`},
		{proposal{TypeTurnEnded, note{Round: noon, Node: node, Endpoint: "a:2113", Result: TurnLost, Error: "away", By: other, Scavenge: other}}, "$scavengeTurnEnded",
			`{"round":"2026-03-01T12:00:00Z","node":"00000000-0000-0000-0000-000000000001","endpoint":"a:2113","result":"Lost","scavengeId":"00000000-0000-0000-0000-000000000002","error":"away","by":"00000000-0000-0000-0000-000000000002"}`},
		{proposal{TypeRoundEnded, note{Round: noon, Node: node, Endpoint: "a:2113", Result: RoundComplete, Through: noon.Add(time.Hour), Turns: 3}}, "$scavengeRoundEnded",
			`{"round":"2026-03-01T12:00:00Z","node":"00000000-0000-0000-0000-000000000001","endpoint":"a:2113","result":"Completed","through":"2026-03-01T13:00:00Z","turns":3}`},
	}
	for _, c := range cases {
		e := check.Value(c.p.event()).Must(t)
		if e.Type != c.kind || string(e.Data) != c.data || e.Flags != event.FlagJSON || e.ID.IsZero() {
			t.Errorf("%s\n%s, expected %s\n%s", e.Type, e.Data, c.kind, c.data)
		}
	}
	if m := event.ParseMetadata(metadataOf(7)); m.MaxCount != keptEvents || m.TruncateBefore != 7 || m.ACL.Write == nil {
		t.Errorf("%+v", m)
	}
}

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
