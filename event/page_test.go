package event_test

import (
	"math"
	"testing"

	"github.com/annalsdb/annals/event"
)

// TestPagesSayWhereToContinue: the next page begins after what this one looked at, past what is
// hidden, and never past what may yet be appended.
func TestPagesSayWhereToContinue(t *testing.T) {
	some, at30 := make([]event.Resolved, 1), []event.Resolved{{Record: event.Record{Number: 30}}}
	for _, test := range []struct {
		name string
		read event.StreamRead
		page event.StreamPage
		next int64
	}{
		{"forward", event.StreamRead{Count: 10}, event.StreamPage{From: 5, Last: 99, Events: some}, 15},
		{"to the end", event.StreamRead{Count: 10}, event.StreamPage{From: 95, Last: 99, End: true, Events: some}, 100},
		{"beyond the end", event.StreamRead{Count: 10}, event.StreamPage{From: 200, Last: 99, End: true}, 200},
		{"all is hidden", event.StreamRead{Count: 10}, event.StreamPage{From: 5, Last: 99, Min: 50}, 50},
		{"some is hidden", event.StreamRead{Count: 10}, event.StreamPage{From: 45, Last: 99, Min: 50, Events: some}, 55},
		{"truncated beyond the end", event.StreamRead{Count: 10}, event.StreamPage{From: 5, Last: 99, Min: 1000}, 100},
		{"the rest has expired", event.StreamRead{Count: 10}, event.StreamPage{From: 5, Last: 99, End: true}, 100},
		{"a count without bound", event.StreamRead{Count: math.MaxInt64}, event.StreamPage{From: 5, Last: 99, End: true, Events: some}, 100},
		{"backward", event.StreamRead{Count: 10, Backward: true}, event.StreamPage{From: 50, Last: 99, Events: some}, 40},
		{"to the start", event.StreamRead{Count: 10, Backward: true}, event.StreamPage{From: 9, Last: 99, End: true, Events: some}, -1},
		{"from beyond the end", event.StreamRead{Count: 10, Backward: true}, event.StreamPage{From: 200, Last: 99}, 190},
		{"through gaps", event.StreamRead{Count: 10, MaxScan: 50}, event.StreamPage{From: 5, Last: 99, Events: some}, 55},
		{"as many as asked for", event.StreamRead{Count: 1, MaxScan: 50}, event.StreamPage{From: 5, Last: 99, Events: at30}, 31},
		{"backward through gaps", event.StreamRead{Count: 10, MaxScan: 50, Backward: true}, event.StreamPage{From: 90, Last: 99, Events: some}, 40},
		{"backward, as many as asked for", event.StreamRead{Count: 1, MaxScan: 50, Backward: true}, event.StreamPage{From: 90, Last: 99, Events: at30}, 29},
	} {
		if test.page.SetNext(&test.read); test.page.Next != test.next {
			t.Errorf("%s: %d, want %d", test.name, test.page.Next, test.next)
		}
	}
}
