package streams

import (
	"context"
	"errors"
	"math"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/leader"
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
	when, ok := args.Moment(x.Route.From)
	if !ok {
		return problem.Bad("'" + x.Route.From + "' is not valid time. Should be RFC 3339")
	}
	ctx, err := leader.Reads(x, false)
	if err != nil {
		return err
	}
	r, err := find(ctx, when)
	if err != nil {
		return err
	}
	if r == nil {
		return problem.NotFound
	}
	return x.SendFreshJSON(momentOf{r.Number, string(atom.AppendPosition(nil, r.Position)), string(atom.AppendTime(nil, r.Time))})
}

// firstSince returns the first event of a stream, as its readers see it, that is not before a time;
// nil when there is none.
func firstSince(ctx context.Context, store api.Store, stream string, when int64) (*event.Record, error) {
	return catchup.First(ctx, store, stream, func(r *event.Record) bool { return r.Time >= when })
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
