package activity

import "github.com/annalsdb/annals/stats"

type metrics struct {
	written, anonymous, dropped, failed *stats.Counter
}

const (
	leftOutName = "annals_activity_left_out_total"
	leftOutHelp = "Requests that asked for a change and have no event in $operations: refused ones of callers without a login beyond what is recorded of them, " +
		"refused ones while too many waited, all when the node ended without a leader, and those whose events can never be written."
)

func newMetrics(r *stats.Registry) metrics {
	reason := func(value string) stats.Label { return stats.Label{Name: "reason", Value: value} }
	return metrics{
		written:   r.Counter("annals_activity_written_total", "Events that were written into $operations."),
		anonymous: r.Counter(leftOutName, leftOutHelp, reason("anonymous")),
		dropped:   r.Counter(leftOutName, leftOutHelp, reason("queue")),
		failed:    r.Counter(leftOutName, leftOutHelp, reason("failed")),
	}
}
