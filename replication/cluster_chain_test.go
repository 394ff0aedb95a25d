package replication_test

import (
	"errors"
	"testing"

	"github.com/annalsdb/annals/event"
)

// Nodes compare the chains of their logs. One flipped byte raises the alarm at all of
// them, and the node that is alone with its history stops serving it: otherwise its
// clients would read what never happened.
func TestRule24ChainsAreCompared(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"follower", "leader"} {
		t.Run(who, func(t *testing.T) {
			h := startHouse(t, 3, inMemory)
			h.writes("s", 0, 5)
			h.alike()
			for _, n := range h.nodes {
				if alarm, serve := n.cluster.Load().Healthy(); alarm != nil || serve != nil {
					t.Errorf("node %s: %v, %v", n.name, alarm, serve)
				}
			}
			odd := h.leader()
			if who == "follower" {
				odd = h.others(odd)[0]
			}
			odd.data.mu.Lock()
			odd.data.sabotage = func(records []byte) []byte {
				changed := append([]byte(nil), records...)
				changed[len(changed)-1] ^= 1
				return changed
			}
			odd.data.mu.Unlock()
			h.write("s", 5)
			for _, n := range h.nodes {
				n.says("hold different histories")
			}
			eventually(t, "the odd node stops serving", func() bool { _, serve := odd.cluster.Load().Healthy(); return serve != nil })
			for _, n := range h.others(odd) {
				if _, serve := n.cluster.Load().Healthy(); serve != nil {
					t.Errorf("node %s, of the majority: %v", n.name, serve)
				}
			}
			eventually(t, "one of the others leads", func() bool { return h.leader() != odd })
			if err := odd.write("s", 6); err == nil || errors.Is(err, event.ErrOutcomeUnknown) {
				t.Errorf("write at the odd node: %v", err)
			}
			h.write("t", 0)
			h.alike(h.others(odd)...)
		})
	}
}
