package fsm

import (
	"time"

	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/stats"
)

// conditionMetrics count the conditions that a decider judges. A nil one counts nothing.
type conditionMetrics struct {
	held, failed, repeated *stats.Counter
	took                   *stats.Histogram
}

// Watch registers metrics of what the decider judges from now on.
func (d *Decider) Watch(r *stats.Registry) {
	result := func(name string) *stats.Counter {
		return r.Counter(eventlog.Conditions, eventlog.ConditionsHelp, stats.Label{Name: "result", Value: name})
	}
	d.metrics = &conditionMetrics{result("held"), result("failed"), result("repeated"), r.Histogram("annals_condition_decide_seconds",
		"Time that the conditions of a write took in the decider.", []float64{0.000001, 0.000003, 0.00001, 0.00003, 0.0001, 0.001, 0.01, 0.1, 1})}
}

// repeat counts the conditions of a write that was done before.
func (m *conditionMetrics) repeat(w *event.Write) {
	if m != nil {
		m.repeated.Add(uint64(len(w.Many.Conditions)))
	}
}

// judge counts so many conditions that were judged, of which some failed.
func (m *conditionMetrics) judge(conditions, failed int, took time.Duration) {
	if m != nil {
		m.held.Add(uint64(conditions - failed))
		m.failed.Add(uint64(failed))
		m.took.Observe(took.Seconds())
	}
}
