package replication_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/replication"
)

// clockOf gives a node a clock that can be set.
func clockOf(ahead *atomic.Int64) func(*replication.ClusterOptions) {
	return func(o *replication.ClusterOptions) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}
}

// A leader whose clock is not that of the others says so and hands over, once; it is not
// ready until its clock is right again.
func TestLeaderWithAWrongClock(t *testing.T) {
	t.Parallel()
	var clocks [3]atomic.Int64
	h := newHouse(t, 3, 3, inMemory)
	for i, n := range h.nodes {
		n.setup = append(n.setup, clockOf(&clocks[i]))
	}
	h.start()
	h.settled()
	odd := h.leader()
	for i, n := range h.nodes {
		if n == odd {
			clocks[i].Store(int64(time.Hour))
		}
	}
	eventually(t, "the clock is found to be wrong", func() bool { return odd.cluster.Load().Clock.Wrong() != nil })
	check.Contains(t, odd.cluster.Load().Clock.Wrong().Error(), "1h0m0s ahead of")
	if off := time.Since(odd.cluster.Load().Clock.Now()).Abs(); off > time.Minute {
		t.Errorf("the clock that ages are judged by is off by %v", off)
	}
	eventually(t, "another node leads", func() bool { return h.leader() != odd })
	h.writes("s", 0, 10)
	for _, n := range h.others(odd) {
		check.NoError(t, n.cluster.Load().Clock.Wrong(), "node", n.name)
	}
	for i := range clocks {
		clocks[i].Store(0)
	}
	eventually(t, "the clock is right again", func() bool { return odd.cluster.Load().Clock.Wrong() == nil })
	odd.says("this node's clock is right again")
	if lines := strings.Count(odd.lines.String(), "set the clock"); lines != 1 {
		t.Errorf("it was said %d times that the clock is wrong", lines)
	}
	h.alike()
}

// With two nodes it is not known which clock is wrong: both log it and continue.
func TestTwoClocksThatDiffer(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	ahead.Store(int64(time.Hour))
	h := newHouse(t, 2, 2, inMemory)
	h.nodes[0].setup = append(h.nodes[0].setup, clockOf(&ahead))
	h.start()
	h.settled()
	for _, n := range h.nodes {
		n.says("the clocks of the members differ")
		check.NoError(t, n.cluster.Load().Clock.Wrong(), "node", n.name)
	}
	h.writes("s", 0, 1)
	ahead.Store(0)
	for _, n := range h.nodes {
		n.says("this node's clock is right again")
		if lines := strings.Count(n.lines.String(), "the clocks of the members differ"); lines != 1 {
			t.Errorf("node %s said it %d times", n.name, lines)
		}
	}
}
