package subscription

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
)

func TestHash32(t *testing.T) {
	for text, want := range map[string]uint32{
		"": 0x02CC5D05, "a": 0x550D7456, "abc": 0x32D153FF, "Nobody inspects the spammish repetition": 0xE2293B2F,
	} {
		if got := hash32([]byte(text)); got != want {
			t.Errorf("%q: %#x, want %#x", text, got, want)
		}
	}
}

func TestPinnedShares(t *testing.T) {
	g := &group{}
	p := &pinned{g: g}
	join := func() *Connection {
		c := &Connection{g: g}
		g.connections = append(g.connections, c)
		p.joined(c)
		return c
	}
	one := join()
	for b := range 10 {
		p.give(b, one)
	}
	p.inFlight[0], p.inFlight[1] = 1, 1
	two := join()
	if one.buckets != 5 || two.buckets != 5 || p.owner[0] != one || p.owner[1] != one {
		t.Errorf("%d and %d", one.buckets, two.buckets)
	}
	three := join()
	if three.buckets != 3 {
		t.Errorf("the third has %d", three.buckets)
	}
	p.left(one)
	if one.buckets != 0 || p.owner[0] != nil {
		t.Errorf("who left has %d", one.buckets)
	}
}

// The map of unanswered messages stays for the next page, and goes when no consumer reads for a
// while.
func TestMapOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		g := newGroup(newTerm(t.Context(), s.opts, s.metrics), &definition{Settings: DefaultSettings()})
		defer g.stop(event.ErrNotReady)
		g.loaded = true
		g.add(&batch{events: make([]event.Resolved, 1)})
		for _, m := range g.read(t.Context(), 1) {
			g.ack([]event.ID{m.ID})
		}
		g.mu.Lock()
		if g.tracked == nil || len(g.tracked) > 0 {
			t.Errorf("after an answer: %v", g.tracked)
		}
		g.mu.Unlock()
		time.Sleep(g.Settings.MessageTimeout + tick)
		synctest.Wait()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.tracked != nil {
			t.Error("an idle group keeps the map")
		}
	})
}
