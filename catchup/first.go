package catchup

import (
	"context"

	"github.com/annalsdb/annals/event"
)

// First returns the first event of a stream, as its readers see it, that is past some point; nil
// when none is. All events after one that is past the point are past it too, as with times and
// positions: it halves the numbers of the stream. The error of a stream that is not there is that
// of reading it.
func First(ctx context.Context, store Store, stream string, isPast func(*event.Record) bool) (*event.Record, error) {
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
		case !isPast(&page.Events[0].Record):
			low = middle + 1
		default:
			found, high = &page.Events[0].Record, middle
		}
	}
}
