package api

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Limits of a write to several streams.
const (
	MaxManyStreams = 1000 // written ones
	MaxManyChecks  = 1000
	MaxConditions  = 8
)

// TextTooWide is the answer to event.ErrTooWide.
const TextTooWide = "The condition is too wide to be judged in time; read again and use a later position."

// TextEarlierLeader is the answer to event.ErrEarlierLeader.
const TextEarlierLeader = "The leader is of an earlier version, which does not know this write; nothing was written."

// LargeEvent is an event of a write to several streams that is larger than one may be.
type LargeEvent struct {
	Stream    string
	ID        event.ID
	Size, Max int // bytes
}

// Is makes errors.Is(err, event.ErrTooLarge) hold.
func (e *LargeEvent) Is(target error) bool { return target == event.ErrTooLarge }

func (e *LargeEvent) Error() string {
	return fmt.Sprintf("event %s of stream %q has %d bytes, at most %d are allowed", e.ID, e.Stream, e.Size, e.Max)
}

// LargeMany says that the events of a write to several streams are too large together.
type LargeMany struct{ Size, Max int64 } // bytes

// Is makes errors.Is(err, ErrLargeAppend) hold.
func (e *LargeMany) Is(target error) bool { return target == ErrLargeAppend }

func (e *LargeMany) Error() string {
	return fmt.Sprintf("the events of one write have %d bytes together, at most %d are allowed", e.Size, e.Max)
}

// Gathering is a write to several streams under construction. It must not be written once Add or
// Check returned an error, but Streams still tells which streams were named.
type Gathering struct {
	node    *Node
	write   event.Write
	many    event.Many
	places  map[string]int32
	ids     map[placedID]struct{}
	checked map[string]struct{}
	payload int64
}

type placedID struct {
	place int32
	id    event.ID
}

// Gather begins a write to several streams.
func (n *Node) Gather() *Gathering {
	return &Gathering{node: n, places: map[string]int32{}, ids: map[placedID]struct{}{}, checked: map[string]struct{}{}}
}

// Grow makes room for so many events, which is not a limit.
func (g *Gathering) Grow(events int) {
	g.write.Events = slices.Grow(g.write.Events, events)
	g.many.Of = slices.Grow(g.many.Of, events)
	if len(g.ids) == 0 {
		g.ids, g.places = make(map[placedID]struct{}, events), make(map[string]int32, min(events, MaxManyStreams))
	}
}

// Add adds the next event, for a stream. It returns *event.BadRequest, ErrLongName, *LargeEvent or
// *LargeMany.
func (g *Gathering) Add(stream string, e event.Proposed) error {
	if err := named(stream); err != nil {
		return err
	}
	place, ok := g.places[stream]
	if !ok {
		place = int32(len(g.many.Streams))
		if place == MaxManyStreams {
			return &event.BadRequest{Text: fmt.Sprintf("at most %d streams are written to at once", MaxManyStreams)}
		}
		g.places[stream] = place
		g.many.Streams = append(g.many.Streams, stream)
	}
	switch {
	case e.Type == "":
		return &event.BadRequest{Text: "the type of an event is empty"}
	case e.ID.IsZero():
		return &event.BadRequest{Text: "the id of an event is zero"}
	}
	payload := len(e.Data) + len(e.Metadata)
	if size := payload + len(e.Type); size > g.node.MaxEventBytes {
		return &LargeEvent{stream, e.ID, size, g.node.MaxEventBytes}
	}
	if err := g.node.CheckEvent(len(e.Type), payload, &g.payload); err == ErrLargeAppend {
		return &LargeMany{g.payload, g.node.MaxAppendBytes}
	} else if err != nil {
		return err
	}
	id := placedID{place, e.ID}
	if _, twice := g.ids[id]; twice {
		return &event.BadRequest{Text: fmt.Sprintf("stream %q gets the event id %s twice", stream, e.ID)}
	}
	g.ids[id] = struct{}{}
	g.many.Of = append(g.many.Of, place)
	g.write.Events = append(g.write.Events, e)
	return nil
}

// Check adds what a stream must be like. It returns *event.BadRequest or ErrLongName.
func (g *Gathering) Check(stream string, expected int64) error {
	if err := named(stream); err != nil {
		return err
	}
	if _, twice := g.checked[stream]; twice {
		return &event.BadRequest{Text: "Each stream can only appear once in consistency checks."}
	}
	if len(g.many.Checks) == MaxManyChecks {
		return &event.BadRequest{Text: fmt.Sprintf("at most %d checks are made at once", MaxManyChecks)}
	}
	g.checked[stream] = struct{}{}
	g.many.Checks = append(g.many.Checks, event.Check{Stream: stream, Expected: expected})
	known := []int64{event.NoStream, event.StreamExists, event.SoftDeleted, event.Tombstoned}
	if expected < 0 && !slices.Contains(known, expected) || expected >= event.TombstoneNumber {
		return &event.BadRequest{Text: fmt.Sprintf("stream %q: the version %d cannot be checked", stream, expected)}
	}
	return nil
}

// Condition adds what must not have happened, by a query that was checked. It returns
// *event.BadRequest.
func (g *Gathering) Condition(q event.Query, after int64) error {
	switch {
	case len(g.many.Conditions) == MaxConditions:
		return &event.BadRequest{Text: fmt.Sprintf("at most %d conditions are possible", MaxConditions)}
	case after < -1:
		return &event.BadRequest{Text: fmt.Sprintf("%d is not a position", after)}
	}
	g.many.Conditions = append(g.many.Conditions, event.Condition{Query: q, After: after})
	return nil
}

func named(stream string) error {
	if stream == "" {
		return &event.BadRequest{Text: "the name of a stream is empty"}
	}
	return CheckName(len(stream))
}

// Streams are the written ones so far, and then those whose reading is needed: that are only
// checked, and that of indexes where there is a condition.
func (g *Gathering) Streams() (written, checked []string) {
	for i := range g.many.Checks {
		if _, ok := g.places[g.many.Checks[i].Stream]; !ok {
			checked = append(checked, g.many.Checks[i].Stream)
		}
	}
	if len(g.many.Conditions) > 0 {
		checked = append(checked, event.IndexStream)
	}
	return g.many.Streams, checked
}

// Write is what was gathered. It returns *event.BadRequest where there is no event.
func (g *Gathering) Write() (*event.Write, error) {
	if len(g.write.Events) == 0 {
		return nil, &event.BadRequest{Text: "Append records request must contain at least one record."}
	}
	g.write.Kind, g.write.Many = event.AppendMany, &g.many
	return &g.write, nil
}

// Shown tells of each conflict whether the caller may read its event: of others it learns the
// position alone.
func (n *Node) Shown(ctx context.Context, who *access.Principal, v *event.Violations) (shown []bool) {
	for _, c := range v.Conditions {
		shown = append(shown, n.Authorize(ctx, who, c.Event.Stream, access.ReadRight) == nil)
	}
	return shown
}

// ManyMetrics count writes to several streams. A nil one counts nothing.
type ManyMetrics struct {
	appends map[[2]string]*stats.Counter // by door and result
	streams *stats.Histogram
	checks  *stats.Histogram
}

// Doors of writes to several streams.
const (
	DoorSession = "session"
	DoorRecords = "records"
	DoorQuery   = "query"
	DoorHTTP    = "http"
)

// NewManyMetrics registers them.
func NewManyMetrics(r *stats.Registry) *ManyMetrics {
	bounds := []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}
	m := &ManyMetrics{
		appends: map[[2]string]*stats.Counter{},
		streams: r.Histogram("annals_multistream_streams", "Streams that a write to several streams writes to.", bounds[1:]),
		checks:  r.Histogram("annals_multistream_checks", "Checks of a write to several streams.", bounds),
	}
	for _, door := range []string{DoorSession, DoorRecords, DoorQuery, DoorHTTP} {
		for _, result := range []string{"written", "repeated", "violated", "refused"} {
			m.appends[[2]string{door, result}] = r.Counter("annals_multistream_appends_total",
				"Writes to several streams, by the door they came through and what became of them.",
				stats.Label{Name: "door", Value: door}, stats.Label{Name: "result", Value: result})
		}
	}
	return m
}

// Count counts a write by its door and what became of it; nil: it was refused before it was one.
func (m *ManyMetrics) Count(door string, w *event.Write, written event.Written, err error) {
	if m == nil {
		return
	}
	result := "refused"
	switch _, violated := errors.AsType[*event.Violations](err); {
	case err == nil && written.Idempotent:
		result = "repeated"
	case err == nil:
		result = "written"
	case violated:
		result = "violated"
	}
	m.appends[[2]string{door, result}].Inc()
	if w == nil {
		return
	}
	m.streams.Observe(float64(len(w.Many.Streams)))
	m.checks.Observe(float64(len(w.Many.Checks)))
}
