package schedule

import (
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/stats"
)

// metrics are the metrics of a node's schedule.
type metrics struct {
	round  *stats.Gauge
	turn   *stats.Gauge
	lost   *stats.Counter // races for an event
	turns  map[string]*stats.Counter
	rounds map[string]*stats.Counter
}

func newMetrics(r *stats.Registry, nextDue func() float64) metrics {
	r.GaugeFunc("annals_scavenge_schedule_next_due_seconds", "Unix time at which scavenges are due next by this node's schedule, 0 for never.", nextDue)
	m := metrics{
		round:  r.Gauge("annals_scavenge_schedule_round", "1 while a round of scheduled scavenges is running."),
		turn:   r.Gauge("annals_scavenge_schedule_turn", "1 while it is this node's turn to be scavenged."),
		lost:   r.Counter("annals_scavenge_schedule_races_lost_total", "Steps that another node took first."),
		turns:  make(map[string]*stats.Counter),
		rounds: make(map[string]*stats.Counter),
	}
	for _, result := range []string{
		string(scavenge.ResultSuccess), string(scavenge.ResultStopped), string(scavenge.ResultErrored), TurnLost, TurnWithdrawn,
	} {
		m.turns[result] = r.Counter("annals_scavenge_schedule_turns_total", "Turns of this node that ended since it started.", stats.Label{Name: "result", Value: result})
	}
	for _, result := range []string{RoundComplete, RoundAbandon} {
		m.rounds[result] = r.Counter("annals_scavenge_schedule_rounds_total", "Rounds of the cluster that ended since this node started.", stats.Label{Name: "result", Value: result})
	}
	return m
}

// count adds one to the counter of a result; an unknown result is not counted.
func count(counters map[string]*stats.Counter, result string) {
	if c := counters[result]; c != nil {
		c.Inc()
	}
}
