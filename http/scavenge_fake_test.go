package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// memScavenges remembers what it was asked for and answers what a test sets.
type memScavenges struct {
	fail          error
	calls         []string
	ids           byte
	current, last scavenge.Status
	estimate      scavenge.Estimate
	// waiting, when it is set, is what Stop and Estimate do before they answer.
	waiting func(context.Context) error
	// announcing, when it is set, is what Announced does.
	announcing func(context.Context, event.ID)
}

func (s *memScavenges) note(format string, a ...any) {
	s.calls = append(s.calls, fmt.Sprintf(format, a...))
}

// called returns what was called since it was asked last.
func (s *memScavenges) called() string {
	defer func() { s.calls = nil }()
	return strings.Join(s.calls, ", ")
}

func (s *memScavenges) Start(r scavenge.Request) (event.ID, error) {
	s.note("start %+v", r)
	if s.fail != nil {
		return event.ID{}, s.fail
	}
	s.ids++
	return event.ID{0x5c, 15: s.ids}, nil
}

func (s *memScavenges) Announced(ctx context.Context, id event.ID) {
	if s.announcing != nil {
		s.announcing(ctx, id)
	}
}

func (s *memScavenges) Stop(ctx context.Context, id event.ID) (event.ID, error) {
	s.note("stop %s", id)
	if s.waiting != nil {
		if err := s.waiting(ctx); err != nil {
			return event.ID{}, err
		}
	}
	switch {
	case s.fail != nil:
		return event.ID{}, s.fail
	case s.current.ID.IsZero() || !id.IsZero() && id != s.current.ID:
		return event.ID{}, fmt.Errorf("stop: %w", scavenge.ErrNoSuchRun)
	}
	return s.current.ID, nil
}

func (s *memScavenges) Current() scavenge.Status { return s.current }

func (s *memScavenges) Last() scavenge.Status {
	if s.last.ID.IsZero() {
		return scavenge.Status{Result: scavenge.ResultUnknown}
	}
	return s.last
}

func (s *memScavenges) Estimate(ctx context.Context, o scavenge.EstimateOptions) (*scavenge.Estimate, error) {
	s.note("estimate %+v", o)
	if s.waiting != nil {
		if err := s.waiting(ctx); err != nil {
			return nil, err
		}
	}
	return &s.estimate, s.fail
}

func runID(t testing.TB) event.ID {
	t.Helper()
	id := check.Value(event.ParseID("5c9fad5b-d9cb-469f-a165-70867728950e")).Must(t)
	return id
}

var runBegan = time.Date(2024, 2, 3, 11, 11, 12, 345678900, time.FixedZone("CET", 3600))

// someRun is a running scavenge whose numbers all differ.
func someRun(t testing.TB) scavenge.Status {
	return scavenge.Status{
		ID: runID(t), Result: scavenge.ResultInProgress, Started: runBegan, Request: scavenge.Request{Threads: 9, Threshold: 5, ThrottlePercent: 100},
		Resumed: true, Point: &scavenge.Point{Position: 1234567890123, Number: 3, EffectiveNow: runBegan.Add(-time.Hour), Threshold: -1},
		Phase: scavenge.PhaseExecution, Done: 7, Total: 40, Unit: "chunks", Saved: -12, Removed: 4711, Executed: 5, Skipped: 2, Merged: 1,
	}
}

// youngRun is a run of which next to nothing is known.
func youngRun(t testing.TB) scavenge.Status {
	return scavenge.Status{
		ID: runID(t), Result: scavenge.ResultInProgress, Started: runBegan, Phase: scavenge.PhaseIdle,
		Request: scavenge.Request{Threads: 1, Threshold: 5, ThrottlePercent: 50, SyncOnly: true},
	}
}

func someEstimate() scavenge.Estimate {
	return scavenge.Estimate{
		End: 1234567890123, Threshold: 10, Bytes: 300_000_000, Events: 1_500_000, Took: 1234567890,
		Chunks: []scavenge.ChunkEstimate{
			{File: "chunk-000000.000000", First: 0, Last: 0, FileBytes: 268_443_648, Bytes: 200_000_000, Events: 1_000_000, Weight: 2_000_000, Executed: true},
			{File: "chunk-000001.000002", First: 1, Last: 12, FileBytes: 250_000_000, Bytes: 0, Events: 0, Weight: 0},
			{File: "chunk-000013.000000", First: 13, Last: 13, FileBytes: 9_000, Bytes: 100, Events: 3, Weight: 6},
		},
		Streams: []scavenge.StreamEstimate{
			{Stream: "orders-<1> & \"é\"\n", Events: 1_000_000, Bytes: 200_000_000, Why: "$maxCount"},
			{Stream: "$stats-0", Events: 3, Bytes: 100, Why: "$maxAge"},
		},
		Kept: []scavenge.StreamEstimate{
			{Stream: strings.Repeat("long-", 30), Events: 12, Bytes: 3456, Why: "no metadata limits it"},
			{Stream: "short", Events: 1, Bytes: 2, Why: "$maxCount 100 is not reached"},
		},
	}
}
