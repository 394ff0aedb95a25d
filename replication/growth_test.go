package replication

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestGrowth: fetching is throttled by how fast the cluster's log grows, as far as that is known.
func TestGrowth(t *testing.T) {
	type step struct {
		after time.Duration
		end   int64
	}
	for _, c := range []struct {
		name  string
		steps []step
		later time.Duration
		speed float64
		known bool
	}{
		{name: "nothing seen"},
		{name: "seen once", steps: []step{{0, 1000}}},
		{"at rest", []step{{0, 1000}, {time.Second, 1000}}, 0, 0, true},
		{"growing", []step{{0, 1000}, {time.Second, 1000}, {2 * time.Second, 5000}}, 0, 2000, true},
		{"too soon to tell", []step{{0, 1000}, {100 * time.Millisecond, 9000}}, 0, 0, false},
		{"a node ahead has gone", []step{{0, 9000}, {time.Second, 1000}}, 0, 0, true},
		{"long ago", []step{{0, 1000}, {time.Second, 2000}}, time.Minute, 1000, false},
		{"seen again after long", []step{{0, 1000}, {time.Hour, 2000}}, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var g growth
				for _, s := range c.steps {
					time.Sleep(s.after)
					g.saw(s.end, time.Now())
				}
				time.Sleep(c.later)
				if speed, known := g.rate(); speed != c.speed || known != c.known {
					t.Errorf("%v bytes a second, known %t; want %v, %t", speed, known, c.speed, c.known)
				}
			})
		})
	}
}
