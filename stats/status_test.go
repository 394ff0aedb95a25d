package stats_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/stats"
)

// metric returns the value of the first metric that has these labels.
func metric(r *stats.Registry, name string, labels ...stats.Label) float64 {
	value := math.NaN()
	r.Each(func(s stats.Sample) {
		if s.Name == name && math.IsNaN(value) && containsAll(s.Labels, labels) {
			value = s.Value
		}
	})
	return value
}

func containsAll(have, want []stats.Label) bool {
	for _, w := range want {
		found := false
		for _, h := range have {
			found = found || h == w
		}
		if !found {
			return false
		}
	}
	return true
}

func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r stats.Registry
		current := "Follower"
		r.Status("Node", []string{"Leader", "Follower", "Leader"}, func() string { return current })
		of := func(status string) float64 {
			return metric(&r, "eventstore_statuses", stats.Label{Name: "name", Value: "Node"}, stats.Label{Name: "status", Value: status})
		}
		check := func(when string, want map[string]float64) {
			t.Helper()
			for status, value := range want {
				if got := of(status); got != value && !(math.IsNaN(got) && math.IsNaN(value)) {
					t.Errorf("%s: %s is %v, want %v", when, status, got, value)
				}
			}
		}
		now := func() float64 { return float64(time.Now().UnixMicro()) / 1e6 }
		begin := now()
		check("at first", map[string]float64{"Follower": begin, "Leader": 0, "Clone": math.NaN()})
		time.Sleep(1500 * time.Millisecond)
		check("later", map[string]float64{"Follower": begin + 1.5, "Leader": 0})
		current = "Leader"
		time.Sleep(time.Second)
		check("changed", map[string]float64{"Follower": begin + 1.5, "Leader": begin + 2.5})
		current = "Clone"
		time.Sleep(time.Second)
		of("") // An unknown status is met, and shows from then on.
		check("unknown", map[string]float64{"Follower": begin + 1.5, "Leader": begin + 2.5, "Clone": begin + 3.5})
		current = ""
		time.Sleep(time.Second)
		check("none", map[string]float64{"Follower": begin + 1.5, "Leader": begin + 2.5, "Clone": begin + 3.5})
		var none *stats.Registry
		none.Status("Node", []string{"Leader"}, func() string { return "Leader" })
	})
}
