package subscription

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/annalsdb/annals/event"
)

// maxRecord bounds the record of settled messages and notes: each change writes all of it.
const maxRecord = 512 << 10

// ErrDeskFull says that so much was settled in between, or noted, that no more can be kept.
var ErrDeskFull = errors.New("the desk is full")

// Note is a text that a user left at a parked message for others.
type Note struct {
	Text string    `json:"text"`
	By   string    `json:"by"`
	At   time.Time `json:"at"`
}

// settled lists the parked messages of a group that were settled, and has the notes of others. It
// never changes. Its names are stored: do not change.
type settled struct {
	version int64 // number of the event that holds it, -1: none
	// of numbers, in order, with gaps between them
	Runs []run `json:"settled"`
	// those of them that are still to be copied to the stream of replays, in order
	Replaying []int64        `json:"replaying,omitempty"`
	Notes     map[int64]Note `json:"notes,omitempty"`
	Forward   *forwarding    `json:"forward,omitempty"` // nil: none was begun
	Paced     *paced         `json:"paced,omitempty"`   // nil: there is none
}

// run is a first and a last number.
type run [2]int64

// parseSettled reads a record.
func parseSettled(e *event.Record) (*settled, error) {
	s := &settled{version: e.Number}
	if e.Type != typeDesk {
		return nil, fmt.Errorf("event %d of stream %s is not a record of settled messages, its type is %s", e.Number, e.Stream, e.Type)
	}
	if err := json.Unmarshal(e.Data, s); err != nil {
		return nil, fmt.Errorf("event %d of stream %s is not a valid record of settled messages: %w", e.Number, e.Stream, err)
	}
	s.Runs = joined(s.Runs)
	return s, nil
}

// SettledIn returns what says of the numbers of parked messages whether they are settled by
// a record, the last event of a group's DeskStream.
func SettledIn(record *event.Record) (func(number int64) bool, error) {
	s, err := parseSettled(record)
	if err != nil {
		return nil, err
	}
	return s.has, nil
}

// joined sorts runs, and makes one of those that touch each other.
func joined(runs []run) (all []run) {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a[0], b[0]) })
	for _, r := range runs {
		if n := len(all); n > 0 && r[0]-1 <= all[n-1][1] {
			all[n-1][1] = max(all[n-1][1], r[1])
		} else {
			all = append(all, r)
		}
	}
	return all
}

// next returns the first number from n on that is not settled.
func (s *settled) next(n int64) int64 {
	at, found := slices.BinarySearchFunc(s.Runs, n, func(r run, n int64) int { return cmp.Compare(r[1], n) })
	if at < len(s.Runs) && (found || s.Runs[at][0] <= n) && s.Runs[at][1] < math.MaxInt64 {
		return s.Runs[at][1] + 1
	}
	return n
}

func (s *settled) has(n int64) bool { return s.next(n) != n }

// count returns how many numbers from one on and below another are settled.
func (s *settled) count(from, end int64) (n int64) {
	for _, r := range s.Runs {
		n += max(0, min(r[1]+1, end)-max(r[0], from))
	}
	return n
}

// with returns what is settled when some more are, without what is said of numbers below low.
func (s *settled) with(numbers []int64, low int64) *settled {
	runs := slices.Clone(s.Runs)
	for _, n := range numbers {
		runs = append(runs, run{n, n})
	}
	runs = joined(slices.DeleteFunc(runs, func(r run) bool { return r[1] < low }))
	more := &settled{version: s.version, Runs: runs, Replaying: s.Replaying, Notes: maps.Clone(s.Notes), Forward: s.Forward, Paced: s.Paced}
	maps.DeleteFunc(more.Notes, func(n int64, _ Note) bool { return n < low || more.has(n) })
	return more
}

// setNote sets the note of a message, before other goroutines see s. An empty text removes the
// note.
func (s *settled) setNote(number int64, n Note) {
	if s.Notes == nil {
		s.Notes = map[int64]Note{}
	}
	if s.Notes[number] = n; n.Text == "" {
		delete(s.Notes, number)
	}
}

// hasRoom reports whether there is room for what was settled with the last numbers. What lies
// before the first that is not settled is not kept for long.
func (s *settled) hasRoom(numbers []int64, low int64) bool {
	return numbers[len(numbers)-1] < s.next(low) || s.fits()
}

// fits reports whether there is room for so much.
func (s *settled) fits() bool {
	data, err := json.Marshal(s)
	return err == nil && len(data) <= maxRecord
}
