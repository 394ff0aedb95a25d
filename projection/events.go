package projection

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
	"github.com/annalsdb/annals/projection/source"
)

// eventsRequest is a request of the console's debugger. Names match in any case.
type eventsRequest struct {
	Query *struct {
		handler.Definition
		ByStreams bool `json:"byStreams"` // besides byStream
	} `json:"query"`
	Position  *json.RawMessage `json:"position"`
	MaxEvents *int             `json:"maxEvents"`
}

// defaultEvents is how many events are read when the request does not say.
const defaultEvents = 10

// parseEventsRequest reads a request. Errors are *BadInput.
func parseEventsRequest(data []byte) (d *handler.Definition, from position.Position, count int, err error) {
	var r eventsRequest
	bad := func(text string) (*handler.Definition, position.Position, int, error) {
		return nil, position.Position{}, 0, &BadInput{text}
	}
	if json.Unmarshal(data, &r) != nil {
		return bad("Failed to parse the request")
	}
	switch {
	case r.Query == nil:
		return bad("The query is required")
	case r.Position == nil:
		return bad("The position is required")
	case r.MaxEvents == nil:
		count = defaultEvents
	case *r.MaxEvents <= 0:
		return bad("maxEvents should be positive")
	default:
		count = *r.MaxEvents
	}
	d = &r.Query.Definition
	d.ByStreams = d.ByStreams || r.Query.ByStreams
	d.AllEvents = d.AllEvents || len(d.Events) == 0
	switch {
	case !d.AllStreams && len(d.Streams) == 0 && len(d.Categories) == 0:
		return bad("None of streams and categories are included")
	case d.AllStreams && len(d.Streams)+len(d.Categories) > 0:
		return bad("Both FromAll and specific categories/streams cannot be set")
	case len(d.Streams) > 0 && len(d.Categories) > 0:
		return bad("Streams and categories cannot be included in a filter at the same time")
	}
	at, err := position.Parse(*r.Position)
	if err == nil {
		at, err = position.Convert(at, source.Zero(d))
	}
	if err != nil {
		return bad("The position is not one of the query : " + err.Error())
	}
	return d, at, count, nil
}

// ReadEvents reads the events that a definition selects, without running a projection. The request
// is the JSON that the console's debugger sends. Errors are *BadInput, event.ErrNotAuthorized and
// those of reading.
func (s *Service) ReadEvents(ctx context.Context, request []byte, by Identity) (SourcePage, error) {
	if _, err := s.running(); err != nil {
		return SourcePage{}, err
	}
	d, from, count, err := parseEventsRequest(request)
	if err != nil {
		return SourcePage{}, err
	}
	events, at, err := source.Page(ctx, source.Options{
		Store: s.opts.Store, Definition: d, From: from, Links: s.opts.Links(ctx, by),
		May: func(ctx context.Context, stream string) error { return s.opts.May(ctx, by, stream, false) },
	}, count)
	var fault *handler.Fault
	switch {
	case errors.As(err, &fault):
		return SourcePage{}, &BadInput{fault.Message}
	case err != nil:
		return SourcePage{}, err
	}
	return SourcePage{events, at}, nil
}
