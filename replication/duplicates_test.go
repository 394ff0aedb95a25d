package replication

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/throttle"
)

// A duplicate node id that was refused here is passed on for a minute; others are only logged.
func TestDuplicatesThatWereMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := selfOf(1)
		tw := &duplicates{self: own, peers: heardOf(own, follower(2, 3, 0)), said: throttle.Lines[Duplicate]{Every: sayEvery}, refused: make(map[Duplicate]time.Time)}
		met, heard := Duplicate{Node: event.ID{2}, Copy: "x:1"}, Duplicate{Node: event.ID{3}, Copy: "y:1"}
		tw.note(met, true)
		tw.note(heard, false)
		if list := tw.met(); len(list) != 1 || list[0] != met {
			t.Errorf("met %+v", list)
		}
		time.Sleep(3 * sayEvery) // of the bubble
		tw.note(heard, false)
		if len(tw.met()) != 0 || len(tw.refused) != 0 {
			t.Errorf("met %+v, remembered %+v", tw.met(), tw.refused)
		}
		node := event.ID{2}.String()
		if tw.candidate(node, "10.0.0.1:1112") != nil || tw.candidate(node, "10.0.0.9:1112") == nil || tw.candidate(event.ID{9}.String(), "z:1") != nil {
			t.Error("only a known node at another address is refused")
		}
	})
}
