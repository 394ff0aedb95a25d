package streams

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// momentOf is where in a stream, or in the log, a time lies. Its names are part of the wire: do not
// change.
type momentOf struct {
	EventNumber int64  `json:"eventNumber"`
	Position    string `json:"position"`
	Updated     string `json:"updated"`
}

// At answers with the first event of a stream that is not before a time.
func (s *Handlers) At(_ context.Context, x *request.Request) error {
	return answerMoment(x, func(ctx context.Context, when int64) (*event.Record, error) {
		if event.IsIndexStream(x.Route.Stream) {
			return s.Finder.indexSince(ctx, x, when)
		}
		return firstSince(ctx, s.Store, x.Route.Stream, when)
	})
}

// AllAt answers with the first event of the log that is not before a time.
func (s *Handlers) AllAt(_ context.Context, x *request.Request) error {
	return answerMoment(x, func(ctx context.Context, when int64) (*event.Record, error) {
		from, err := s.Store.PositionAt(ctx, when)
		if err != nil {
			return nil, err
		}
		page, err := s.Store.ReadAll(ctx, event.AllRead{From: from, Count: 1, MaxPayload: 1})
		if err != nil || len(page.Events) == 0 {
			return nil, err
		}
		return &page.Events[0].Record, nil
	})
}

func answerMoment(x *request.Request, find func(ctx context.Context, when int64) (*event.Record, error)) error {
	when, err := moment(x.Route.From)
	if err != nil {
		return err
	}
	r, err := find(x.Reads(), when)
	if err != nil {
		return err
	}
	if r == nil {
		return problem.NotFound
	}
	return x.SendFreshJSON(momentOf{r.Number, string(atom.AppendPosition(nil, r.Position)), string(atom.AppendTime(nil, r.Time))})
}

// moment reads a time, as nanoseconds since 1970. One that 64 bits of them cannot tell, before 1678
// or after 2261, is as the first or the last that they can: no event is older or newer.
func moment(s string) (int64, error) {
	// In a query + is a space.
	t, err := time.Parse(time.RFC3339Nano, strings.ReplaceAll(strings.ToUpper(s), " ", "+"))
	switch {
	case err != nil:
		return 0, problem.Bad("'" + s + "' is not valid time. Should be RFC 3339")
	case t.UTC().Year() < 1678:
		return math.MinInt64, nil
	case t.UTC().Year() > 2261:
		return math.MaxInt64, nil
	}
	return t.UnixNano(), nil
}

// firstSince returns the first event of a stream, as its readers see it, that is not before a time;
// nil when there is none. The times of a stream never fall: it halves its numbers.
func firstSince(ctx context.Context, store api.Store, stream string, when int64) (*event.Record, error) {
	info, err := store.StreamInfo(ctx, stream)
	if err != nil {
		return nil, err
	}
	low, high := int64(0), info.Last+1 // It is among them, or high.
	var found *event.Record
	for {
		middle := low + (high-low)/2
		page, err := store.ReadStream(ctx, event.StreamRead{Stream: stream, From: middle, Count: 1, MaxPayload: 1})
		switch {
		case err != nil:
			return nil, err // Also of a stream that is not there.
		case low >= high:
			return found, nil
		case len(page.Events) == 0: // Hidden, or expired: with all before it.
			low = max(middle+1, min(page.Min, high))
		case page.Events[0].Time < when:
			low = middle + 1
		default:
			found, high = &page.Events[0].Record, middle
		}
	}
}

// numberSince is firstSince for a stream that need not be there, as a number: the next one when
// there is none.
func numberSince(ctx context.Context, store api.Store, stream string, when int64) (int64, error) {
	r, err := firstSince(ctx, store, stream, when)
	switch {
	case errors.Is(err, event.ErrStreamNotFound) || err == nil && r == nil:
		info, err := store.StreamInfo(ctx, stream)
		return info.Last + 1, err
	case err != nil:
		return math.MaxInt64, err
	}
	return r.Number, nil
}
