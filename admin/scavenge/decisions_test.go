package scavenge_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// TestDecisionsAreTheSameEverywhere gives one history to three nodes. The first
// never scavenges, the others do at times of their own, and end and start again.
// What decisions about writes rest on has to be the same on all.
func TestDecisionsAreTheSameEverywhere(t *testing.T) {
	for _, seed := range seeds(t, 6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 3))
			m := newModel()
			var nodes [3]*house
			for i := range nodes {
				nodes[i] = newHouse(t, seed+uint64(i))
				nodes[i].m = m
				nodes[i].opts = func(o *scavenge.Options) { o.DisableMerging = i == 2 }
				nodes[i].open()
			}
			for range 15 {
				for range rng.IntN(30) {
					nodes[0].live()
				}
				i := 1 + rng.IntN(2)
				scavenging := nodes[i]
				scavenging.replay()
				if status := scavenging.run(scavenge.Request{Threshold: rng.IntN(9) - 1}); status.Result != scavenge.ResultSuccess {
					t.Fatalf("node %d: %+v", i, status)
				}
				for n, h := range nodes {
					h.replay()
					if n > 0 && rng.IntN(3) == 0 {
						h.close()
						h.open()
					}
				}
				for _, h := range nodes[1:] {
					sameDecisions(t, m, nodes[0], h)
				}
			}
			for _, h := range nodes {
				h.close()
			}
		})
	}
}

// sameDecisions compares everything that a decision about a write asks of a log.
func sameDecisions(t *testing.T, m *model, one, other *house) {
	t.Helper()
	for stream, records := range m.streams {
		var infos [2]event.StreamInfo
		for i, h := range []*house{one, other} {
			info := check.Value(h.log.Reads.StreamInfo(stream)).Must(t)
			if info.HardDeleted { // Nothing else is asked of it.
				info = event.StreamInfo{HardDeleted: true}
			}
			infos[i] = info
		}
		check.MustDeep(t, infos[0], infos[1], stream, "here and ... there")
		for _, r := range records {
			for _, number := range []int64{r.number, r.number + 1} {
				a, err1 := one.log.Reads.HasID(stream, number, r.id)
				b, err2 := other.log.Reads.HasID(stream, number, r.id)
				if a != b || err1 != nil || err2 != nil {
					t.Fatalf("event %d of %s: as %d known here: %v (%v), there: %v (%v)", r.number, stream, number, a, err1, b, err2)
				}
			}
			a, ok1, err1 := one.log.Reads.FindID(stream, r.id)
			b, ok2, err2 := other.log.Reads.FindID(stream, r.id)
			if a != b || ok1 != ok2 || err1 != nil || err2 != nil {
				t.Fatalf("id of event %d of %s: %d %v %v here, %d %v %v there", r.number, stream, a, ok1, err1, b, ok2, err2)
			}
		}
	}
	check.MustEqual(t, one.log.Tail(), other.log.Tail(), "ends differ ...")
}

// TestNodesThatScavengedForTheSamePointHoldTheSame scavenges two nodes for the
// same points, at other times and with other threads, merging or not.
func TestNodesThatScavengedForTheSamePointHoldTheSame(t *testing.T) {
	for _, seed := range seeds(t, 6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			m := newModel()
			var nodes [2]*house
			for i := range nodes {
				nodes[i] = newHouse(t, seed+uint64(i))
				nodes[i].m = m
				nodes[i].opts = func(o *scavenge.Options) { o.DisableMerging = i == 1 }
				nodes[i].open()
			}
			for range 8 {
				for range 1 + nodes[0].rng.IntN(40) {
					nodes[0].live()
				}
				if status := nodes[0].run(scavenge.Request{}); status.Result != scavenge.ResultSuccess {
					t.Fatalf("%+v", status)
				}
				nodes[1].replay()
				if status := nodes[1].run(scavenge.Request{Threads: 4, SyncOnly: true}); status.Result != scavenge.ResultSuccess {
					t.Fatalf("%+v", status)
				}
				a, b := m.checkAll(t, nodes[0].log), m.checkAll(t, nodes[1].log)
				check.MustDeep(t, a, b, "one holds ..., the other")
			}
			for _, h := range nodes {
				h.close()
			}
		})
	}
}
