package scavenge

import (
	"time"

	"github.com/annalsdb/annals/stats"
)

// phaseBounds are buckets for the time that a phase takes, in seconds.
var phaseBounds = []float64{0.1, 1, 10, 60, 300, 1800, 3600, 4 * 3600, 12 * 3600, 24 * 3600}

// metrics are the numbers of scavenging since the process started.
type metrics struct {
	results    map[Result]*stats.Counter
	phases     map[Phase]*stats.Histogram
	lastEnd    *stats.Gauge
	chunks     *stats.Counter
	merged     *stats.Counter
	removed    *stats.Counter
	savedBytes *stats.Gauge
	entries    *stats.Counter
	erasing    *stats.Gauge
}

func newMetrics(r *stats.Registry, phase func() Phase) metrics {
	m := metrics{results: map[Result]*stats.Counter{}, phases: map[Phase]*stats.Histogram{}}
	for _, result := range []Result{ResultSuccess, ResultStopped, ResultErrored} {
		m.results[result] = r.Counter("annals_scavenge_runs_total", "Scavenges that have ended, by result.", stats.Label{Name: "result", Value: string(result)})
	}
	names := make([]string, len(Phases))
	for i, p := range Phases {
		names[i] = string(p)
		if p != PhaseIdle {
			m.phases[p] = r.Histogram("annals_scavenge_phase_seconds", "Time taken by the phases of scavenges.", phaseBounds, stats.Label{Name: "phase", Value: string(p)})
		}
	}
	m.lastEnd = r.Gauge("annals_scavenge_last_success_seconds", "Unix time at which the last successful scavenge ended, 0 if none has since the process started.")
	m.chunks = r.Counter("annals_scavenge_chunks_executed_total", "Chunk files that scavenges have rewritten.")
	m.merged = r.Counter("annals_scavenge_chunks_merged_total", "Chunk files that scavenges have merged with others.")
	m.removed = r.Counter("annals_scavenge_events_removed_total", "Events that scavenges have removed from chunk files.")
	m.savedBytes = r.Gauge("annals_scavenge_chunk_bytes_saved", "Bytes by which scavenges have made chunk files smaller since the process started.")
	m.entries = r.Counter("annals_scavenge_index_entries_removed_total", "Entries that scavenges have removed from the index.")
	m.erasing = r.Gauge("annals_scavenge_erase_pending", "1 while the Raft log may still hold events that a scavenge has removed.")
	r.Status("Scavenge", names, func() string { return string(phase()) })
	return m
}

func (m *metrics) phase(p Phase, took time.Duration) {
	if h := m.phases[p]; h != nil {
		h.Observe(took.Seconds())
	}
}

func (m *metrics) ended(s Status) {
	m.results[s.Result].Inc()
	if s.Result == ResultSuccess {
		m.lastEnd.Set(s.Ended.Unix())
	}
}
