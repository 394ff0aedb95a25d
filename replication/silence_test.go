package replication

import (
	"testing"
	"time"
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
