package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

const pageBytes = 16 << 20 // of data and metadata of a page; one event may be larger alone

// Page reads at most so many of the events that a definition selects, and returns the position at
// which the next page begins. A page ends before that where the input does, and where its events
// have become many megabytes.
func Page(ctx context.Context, o Options, maxEvents int) ([]PageEvent, position.Position, error) {
	o.Once, o.Order = true, nil
	r, err := Open(ctx, o)
	if err != nil {
		return nil, position.Position{}, err
	}
	defer r.Close()
	var events []PageEvent
	for size := 0; len(events) < maxEvents && size < pageBytes; {
		if err := r.Fill(ctx); errors.Is(err, ErrEnd) {
			break
		} else if err != nil {
			return nil, position.Position{}, err
		}
		for len(events) < maxEvents && size < pageBytes {
			e, ok := r.Next()
			if !ok {
				break
			}
			if e.GoneOnly {
				continue
			}
			size += len(e.Data) + len(e.Metadata)
			page := PageEvent{Position: r.Position()}
			if e.Link != nil {
				page.Resolved = event.Resolved{Record: *e.Link, Link: event.LinkResolved, Target: e.Record}
			} else {
				page.Record = *e.Record
			}
			events = append(events, page)
		}
	}
	return events, r.Position(), nil
}

// systemStreams are the streams of the system projections, with the projection that writes each.
var systemStreams = []struct{ prefix, projection string }{
	{categoryPrefix, "$by_category"},
	{"$et-", "$by_event_type"},
	{"$bc-", "$by_correlation_id"},
	{"$category-", "$stream_by_category"},
}

// Writers are the system projections that write what a definition reads.
func Writers(d *handler.Definition) (names []string) {
	if d.AllStreams {
		return nil
	}
	for _, sys := range systemStreams {
		if slices.ContainsFunc(streamsOf(d), func(name string) bool { return strings.HasPrefix(name, sys.prefix) }) {
			names = append(names, sys.projection)
		}
	}
	return names
}

// StateReason tells why no events come: the definition waits for a stream that only a system
// projection writes and that does not exist. Empty: it does not wait.
func StateReason(ctx context.Context, s Store, d *handler.Definition) (string, error) {
	if d.AllStreams {
		return "", nil
	}
	var reasons []string
	for _, name := range streamsOf(d) {
		for _, sys := range systemStreams {
			if !strings.HasPrefix(name, sys.prefix) {
				continue
			}
			info, err := s.StreamInfo(ctx, name)
			if err != nil {
				return "", fmt.Errorf("look at stream %s: %w", name, err)
			}
			if !info.Exists() {
				reasons = append(reasons, fmt.Sprintf("Waiting for the stream '%s', which the projection %s writes when it is enabled.", name, sys.projection))
			}
		}
	}
	return strings.Join(reasons, " "), nil
}
