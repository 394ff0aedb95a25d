package replication

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestSilence(t *testing.T) {
	const patience, look = 700 * time.Millisecond, 20 * time.Millisecond
	begun := time.Now()
	var l listener
	at := func(now, heard time.Duration) bool {
		return l.silent(begun.Add(heard), begun.Add(now), func() time.Duration { return patience })
	}
	for now := time.Duration(0); now <= time.Second; now += look {
		if at(now, now/100*100) {
			t.Fatalf("silent after %s, with a sign every time", now)
		}
	}
	first := time.Duration(0)
	for now := time.Second + look; first == 0; now += look {
		if at(now, time.Second) {
			first = now - time.Second
		}
	}
	if first < patience || first > patience+look {
		t.Errorf("silent after %s", first)
	}
	// Who stood still looks again before it judges.
	at(2*time.Second, 2*time.Second)
	for i := range silentLooks - 1 {
		if at(time.Minute+time.Duration(i)*look, 2*time.Second) {
			t.Fatalf("silent after %d looks, the node itself stood still", i)
		}
	}
	if !at(2*time.Minute, 2*time.Second) {
		t.Error("not silent at all")
	}
}

// Followers stand for election one after the other, whatever their ranks: those that stand together
// have half of the votes each.
func TestFollowersStandInTurns(t *testing.T) {
	const timeout = time.Second
	servers := []raft.Server{{ID: "d"}, {ID: "a"}, {ID: "e"}, {ID: "b"}, {ID: "c"}, {ID: "aa", Suffrage: raft.Nonvoter}}
	turns := map[time.Duration]raft.ServerID{}
	for _, leader := range []raft.ServerID{"a", "c", "e"} {
		clear(turns)
		for i, server := range servers[:5] {
			if server.ID == leader {
				continue
			}
			wait := turn(servers, leader, server.ID, i%2 == 0, timeout)
			if other, taken := turns[wait]; taken {
				t.Errorf("led by %s, %s and %s stand together, after %s", leader, other, server.ID, wait)
			}
			turns[wait] = server.ID
			if wait < timeout*650/1000 || wait > timeout*875/1000 {
				t.Errorf("led by %s, %s stands after %s", leader, server.ID, wait)
			}
			if first, last := turn(servers, leader, server.ID, true, timeout), turn(servers, leader, server.ID, false, timeout); first >= last {
				t.Errorf("led by %s, %s stands after %s outranked, after %s otherwise", leader, server.ID, first, last)
			}
		}
	}
}
