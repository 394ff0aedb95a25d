package fsm_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/annalsdb/annals/event"
)

// TestPositions: what a write is answered says where its last event lies, for every kind of
// write to a stream in every state. flush compares it with the log; what is given here is which
// record of the log it is, counted from the end as it is after the write.
func TestPositions(t *testing.T) {
	const refused = -1
	soft, hard := deleting(event.SoftDelete, "s", -2), deleting(event.HardDelete, "s", -2)
	describe, hide := describing("s", -2, 70, `{"k":2}`), describing("s", -2, 71, softDeleted)
	one, three, again, part := appending("s", -2, 50), appending("s", -2, 50, 51, 52), appending("s", -2, 1, 2, 3), appending("s", -1, 1, 2)
	for state, want := range map[string]map[*event.Write]int{
		"never written": {one: 0, three: 0, again: 0, part: 0, describe: 0, hide: 0, soft: refused, hard: 0},
		"events":        {one: 0, three: 0, again: 0, part: 1, describe: 0, hide: 0, soft: 0, hard: 0},
		"only metadata": {one: 0, three: 0, again: 0, part: 0, describe: 0, hide: 0, soft: 0, hard: 0},
		// A write that revives a stream writes the metadata after its events.
		"soft-deleted":                {one: 1, three: 1, again: 1, part: 2, describe: 1, hide: 0, soft: 0, hard: 0},
		"soft-deleted by metadata":    {one: 1, three: 1, again: 1, part: 2, describe: 1, hide: 0, soft: 0, hard: 0},
		"only metadata, soft-deleted": {one: 1, three: 1, again: 1, part: 1, describe: 1, hide: 0, soft: 0, hard: 0},
		"hard-deleted":                {one: refused, again: refused, describe: refused, soft: refused, hard: refused},
	} {
		for w, back := range want {
			t.Run(fmt.Sprintf("%s/%d to %s, %d events, expected %d", state, w.Kind, w.Stream, len(w.Events), w.ExpectedVersion), func(t *testing.T) {
				inState(t, state, func(t *testing.T, l *leader) {
					done, err := l.decide(w)
					l.flush()
					if refusal := err != nil; refusal != (back == refused) || refusal && !reflect.DeepEqual(done, event.Written{}) {
						t.Fatalf("%+v, %v", done, err)
					}
					if back == refused {
						return
					}
					records := l.all()
					if got := records[len(records)-1-back]; got.Position != done.Position {
						t.Errorf("at %d, want %d, which is event %d of %s", done.Position, got.Position, got.Number, got.Stream)
					}
				})
			})
		}
	}
}

// TestNothingToAppend: an append of no events is held against the expected version and writes
// nothing.
func TestNothingToAppend(t *testing.T) {
	gone := func(current int64) event.Written {
		return event.Written{First: current + 1, Last: current, Idempotent: true, Position: -1}
	}
	for _, c := range []struct {
		state   string
		stream  string
		current int64
		ok      []int64
		deleted []int64 // event.ErrStreamDeleted; what is in neither conflicts
	}{
		{"never written", "s", -1, []int64{-2, -1}, nil},
		{"events", "s", 2, []int64{-4, -2, 2}, nil},
		{"only metadata", "s", -1, []int64{-4, -2, -1}, nil},
		{"soft-deleted", "s", 2, []int64{-2, -1, 2}, []int64{-4}},
		{"only metadata, soft-deleted", "s", -1, []int64{-2, -1}, []int64{-4}},
		{"hard-deleted", "s", 2, nil, []int64{-4, -3, -2, -1, 0, 1, 2, 3}},
		{"only metadata", "$$s", 0, []int64{-4, -2, 0}, nil},
		{"hard-deleted", "$$s", -1, nil, []int64{-4, -3, -2, -1, 0, 1, 2, 3}},
	} {
		for _, expected := range []int64{-4, -3, -2, -1, 0, 1, 2, 3} {
			want, done := conflict(c.current), event.Written{}
			for _, v := range c.ok {
				if v == expected {
					done = gone(c.current)
					want = outcomeOf(done, nil)
				}
			}
			for _, v := range c.deleted {
				if v == expected {
					want = outcomeOf(done, event.ErrStreamDeleted)
				}
			}
			t.Run(fmt.Sprint(c.state, "/", c.stream, "/", expected), func(t *testing.T) {
				inState(t, c.state, func(t *testing.T, l *leader) {
					l.seal()
					got, err := l.decide(appending(c.stream, expected))
					if !reflect.DeepEqual(got, done) || outcomeOf(got, err) != want {
						t.Errorf("%+v, %v; want %+v", got, err, want)
					}
					if e := l.d.Seal(); e != nil {
						t.Errorf("an entry of %d bytes", len(e))
					}
				})
			})
		}
	}
}
