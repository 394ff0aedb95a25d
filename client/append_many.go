package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// StreamEvent is an event with the stream that it is for.
type StreamEvent struct {
	Stream string
	Event
}

// Check says what a stream must be like: its expected version is the number of its last event,
// NoStream, StreamExists, SoftDeleted or Tombstoned.
type Check struct {
	Stream   string `json:"stream"`
	Expected int64  `json:"expectedVersion"`
}

// Condition says that no event matches a query after a position: the Position of the QueryPage that
// was decided on, or nil, which is the whole log. Only events that readers can see count, and none
// of the same AppendMany.
type Condition struct {
	Query Query  `json:"failIfEventsMatch"`
	After *int64 `json:"after,omitempty"`
}

// Requirement is a Check or a Condition.
type Requirement interface{ addTo(*requirements) }

type requirements struct {
	Checks     []Check     `json:"checks"`
	Conditions []Condition `json:"conditions,omitempty"`
}

func (k Check) addTo(r *requirements)     { r.Checks = append(r.Checks, k) }
func (k Condition) addTo(r *requirements) { r.Conditions = append(r.Conditions, k) }

// Appended is what AppendMany wrote.
type Appended struct {
	Position int64 // of the last event
	// Repeated says that an earlier call wrote the events, with the same ids.
	Repeated bool
	Streams  []AppendedStream // in the order of their first events
}

// AppendedStream has the numbers of the events that one stream got.
type AppendedStream struct {
	Stream      string
	First, Last int64
}

// AppendMany writes events to one stream or several, all or none. Each check and each condition
// must hold when they are written, a check on a stream that gets events or on another one; else the
// error is a *ViolationError. Like Append it is repeated with the same ids when it gets no answer,
// and written once; such a repetition succeeds whatever is required by then.
func (c *Client) AppendMany(ctx context.Context, events []StreamEvent, required ...Requirement) (Appended, error) {
	done, err := c.appendMany(ctx, events, required)
	if err != nil {
		return done, fmt.Errorf("append %d events: %w", len(events), err)
	}
	return done, nil
}

func (c *Client) appendMany(ctx context.Context, events []StreamEvent, required []Requirement) (done Appended, err error) {
	b, err := ManyBody(events, required...)
	if err != nil {
		return done, err
	}
	a, err := c.Repeat(ctx, ManyRequest(b))
	if err != nil {
		return done, violated(a, err)
	}
	return a.Appended()
}

// ManyBody is the body of what AppendMany sends. An event without an id gets one.
func ManyBody(events []StreamEvent, required ...Requirement) (b []byte, err error) {
	b = append(b, `{"events":[`...)
	for i := range events {
		e := events[i]
		e.ID = cmp.Or(e.ID, NewID())
		if b, err = e.appendTo(b, &e.Stream); err != nil {
			return nil, fmt.Errorf("event %d of %d: %w", i+1, len(events), err)
		}
		b = append(b, ',')
	}
	if len(events) > 0 {
		b = b[:len(b)-1]
	}
	all := requirements{Checks: []Check{}}
	for _, r := range required {
		r.addTo(&all)
	}
	members, err := encode(all)
	if err != nil {
		return nil, err
	}
	return append(append(b, "],"...), members[1:]...), nil
}

// Appended reads the answer to a ManyRequest. The error of a refusal is that of AppendMany.
func (a Response) Appended() (done Appended, err error) {
	if err := a.Err(); err != nil {
		return done, violated(a, err)
	}
	return done, a.Decode(&done)
}

// ManyRequest is what AppendMany sends, with a body in the form that nodes take.
func ManyRequest(body []byte) Request {
	return Request{Method: http.MethodPost, Path: manyPath, Body: body, Header: map[string]string{"Content-Type": MediaJSON}}
}

const manyPath = "/streams"

// ViolationError says which checks and conditions of an AppendMany do not hold. Nothing was
// written. It is an ErrWrongVersion.
type ViolationError struct {
	Violations []Violation // of checks
	Conflicts  []Conflict  // of conditions
	Position   int64       // the log up to it was looked at

	refusal error
}

// Violation is a check that does not hold.
type Violation struct {
	// Check is its index among the checks; -1: events are for the stream, which takes none.
	Check    int
	Stream   string
	Expected int64
	Actual   int64 // number of the last event, NoStream, SoftDeleted or Tombstoned
}

// Conflict is a condition that does not hold: the first event after its position that matches. Of
// an event that the user may not read only the position is known.
type Conflict struct {
	Condition int // its index among the conditions
	Position  int64
	Stream    string
	Number    int64
	ID        string
	Type      string
}

func (e *ViolationError) Error() string {
	var wrong []string
	for _, v := range e.Violations {
		wrong = append(wrong, fmt.Sprintf("stream %q: expected %s, is %s", v.Stream, versionText(v.Expected), versionText(v.Actual)))
	}
	for _, k := range e.Conflicts {
		text := fmt.Sprintf("condition %d: an event matches at position %d", k.Condition, k.Position)
		if k.Stream != "" {
			text += fmt.Sprintf(", %s, event %d of stream %q", k.Type, k.Number, k.Stream)
		}
		wrong = append(wrong, text)
	}
	what := "checks"
	if len(e.Conflicts) > 0 {
		what = "conditions"
	}
	return "the " + what + " do not hold: " + strings.Join(wrong, ", ")
}

func (e *ViolationError) Unwrap() error { return e.refusal }

// versions are the words of versions that are not numbers of events.
var versions = map[string]int64{"any": AnyVersion, "none": NoStream, "exists": StreamExists, "deleted": SoftDeleted, "tombstoned": Tombstoned}

func versionText(version int64) string {
	for text, v := range versions {
		if v == version {
			return text
		}
	}
	return fmt.Sprint(version)
}

// version is an expected or actual version as nodes write it: a number or a word.
type version int64

func (v *version) UnmarshalJSON(b []byte) error {
	var word string
	if json.Unmarshal(b, &word) != nil {
		return json.Unmarshal(b, (*int64)(v))
	}
	n, ok := versions[word]
	if !ok {
		return fmt.Errorf("the version %q is not known", word)
	}
	*v = version(n)
	return nil
}

// violated is the error of an AppendMany that was refused.
func violated(a Response, err error) error {
	if !errors.Is(err, ErrWrongVersion) {
		return err
	}
	var told struct {
		Checks []struct {
			Index            *int
			Stream           string
			Expected, Actual version
		}
		Conditions []struct {
			Index int
			Event Found
		}
		Position int64
	}
	if decoding := a.Decode(&told); decoding != nil {
		return errors.Join(err, decoding)
	}
	e := &ViolationError{Position: told.Position, refusal: err}
	for _, c := range told.Checks {
		v := Violation{Check: -1, Stream: c.Stream, Expected: int64(c.Expected), Actual: int64(c.Actual)}
		if c.Index != nil {
			v.Check = *c.Index
		}
		e.Violations = append(e.Violations, v)
	}
	for _, k := range told.Conditions {
		e.Conflicts = append(e.Conflicts, Conflict{k.Index, k.Event.Position, k.Event.Stream, k.Event.Number, k.Event.ID, k.Event.Type})
	}
	return e
}
