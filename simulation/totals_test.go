package simulation

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/torture"
)

func TestTotals(t *testing.T) {
	all := Totals{seeds: 3, failed: []uint64{7}}
	for _, one := range []struct {
		summary string
		hours   float64
	}{
		{`{"nodes": 1, "writes": {"eventsAcknowledged": 5}, "leaderChanges": 2, "outages": [{"fault": "kill", "times": 3}]}`, 10},
		{`{"nodes": 3, "writes": {"eventsAcknowledged": 6}, "transfers": {"eventsAcknowledged": 7}, "outages": [{"fault": "kill", "times": 1}, {"fault": "reset", "times": 2}]}`, 2},
		{`{"nodes": 3, "violationCounts": {"stuck": 2}}`, 2},
	} {
		s := &torture.Summary{}
		check.Must(t, json.Unmarshal([]byte(one.summary), s))
		all.add(Result{Summary: s, Virtual: time.Duration(one.hours * float64(time.Hour)), Crashes: 4}, 6*time.Second)
	}
	check.Equal(t, all.String(), `3 seeds lived 14.0 hours
nodes 1: 10.0 hours, 0.6 seconds of a processor for each
nodes 3: 4.0 hours, 3.0 seconds of a processor for each
18 events acknowledged, 2 leader changes, 12 power cuts
6 faults: 4 kill, 2 reset
2 violations: 2 stuck
seeds that failed: [7]
`)
}
