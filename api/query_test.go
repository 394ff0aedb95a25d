package api_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// TestTake: a page ends where the part of the log ends, after so many events, and at its bytes; the
// next one begins after it.
func TestTake(t *testing.T) {
	at := func(positions ...int64) (events []event.Resolved) {
		for _, p := range positions {
			events = append(events, event.Resolved{Record: event.Record{Position: p, Data: make([]byte, 10)}})
		}
		return events
	}
	for _, test := range []struct {
		name           string
		read           api.QueryRead
		page           []event.Resolved
		next           int64
		more           bool
		count, payload int
		want           string
	}{
		{"forward, the end", api.QueryRead{After: -1, Until: 90}, at(10, 20), 91, false, 5, 1000, "2 false"},
		{"forward, more to look at", api.QueryRead{After: 5, Until: 90}, at(10, 20), 50, true, 5, 1000, "2 true 50"},
		{"forward, one more than asked for", api.QueryRead{After: 5, Until: 90}, at(10, 20, 30), 31, true, 2, 1000, "2 true 21"},
		{"forward, beyond the part", api.QueryRead{After: 5, Until: 25}, at(10, 20, 30), 31, true, 5, 1000, "2 false"},
		{"forward, looked beyond the part", api.QueryRead{After: 5, Until: 25}, at(10), 31, true, 5, 1000, "1 false"},
		{"forward, enough bytes", api.QueryRead{After: 5, Until: 90}, at(10, 20, 30), 31, false, 5, 15, "1 true 11"},
		{"one is always taken", api.QueryRead{After: 5, Until: 90}, at(10), 31, false, 5, 1, "1 false"},
		{"backward", api.QueryRead{After: 5, Until: 90, Backward: true}, at(30, 20), 20, true, 5, 1000, "2 true 20"},
		{"backward, one more than asked for", api.QueryRead{After: 5, Until: 90, Backward: true}, at(30, 20, 10), 10, true, 2, 1000, "2 true 20"},
		{"backward, beyond the part", api.QueryRead{After: 20, Until: 90, Backward: true}, at(30, 20), 20, true, 5, 1000, "1 false"},
		{"backward, the beginning", api.QueryRead{After: -1, Until: 90, Backward: true}, at(30), 0, false, 5, 1000, "1 false"},
	} {
		t.Run(test.name, func(t *testing.T) {
			events, more := test.read.Take(test.page, test.next, test.more, test.count, test.payload)
			got := fmt.Sprint(len(events), more)
			if more {
				got += fmt.Sprint(" ", test.read.From())
			}
			check.Equal(t, got, test.want)
		})
	}
	last := api.QueryRead{After: math.MaxInt64, Until: 90}
	check.Equal(t, last.From(), math.MaxInt64, "after the last position there is")
}
