package manager

import (
	"time"

	"github.com/annalsdb/annals/stats"
)

// metrics of the node's own backups.
type metrics struct {
	lastEnd, lastSuccess, lastResult *stats.Gauge
}

func newMetrics(r *stats.Registry, configured bool, last Status, success time.Time) *metrics {
	m := &metrics{
		lastEnd:     r.Gauge("annals_backup_last_end_timestamp_seconds", "Unix time at which the last backup that this node made of itself ended, however it did; 0: none yet."),
		lastSuccess: r.Gauge("annals_backup_last_success_timestamp_seconds", "Unix time at which the last successful backup that this node made of itself ended; 0: none is known of."),
		lastResult:  r.Gauge("annals_backup_last_result", "How the last backup that this node made of itself ended: 1 success, 0 failed or stopped, -1 none yet."),
	}
	set := r.Gauge("annals_backup_configured", "1 when the node is to back itself up.")
	if configured {
		set.Set(1)
	}
	m.lastResult.Set(-1)
	if !success.IsZero() {
		m.lastSuccess.Set(success.Unix())
	}
	if last.ID != "" {
		m.ended(last)
	}
	return m
}

func (m *metrics) ended(s Status) {
	m.lastEnd.Set(s.Ended.Unix())
	m.lastResult.Set(0)
	if s.Result == Success {
		m.lastResult.Set(1)
		m.lastSuccess.Set(s.Ended.Unix())
	}
}
