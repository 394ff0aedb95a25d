package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// The statistics stream of a node. Names and metadata are those of the reference: do not change.
const (
	statisticsPrefix   = "$stats-" // and the node's host:port
	statisticsType     = "$statsCollected"
	statisticsMetadata = `{"$maxAge":864000}`
)

// statisticsStream writes the node's metrics into the database, as one event a period.
type statisticsStream struct {
	stream  string
	metrics func() []byte // the flat map as JSON
	store   *store
	write   func(context.Context, *event.Write) (event.Written, error)
	timeout time.Duration
}

// once writes one event, and the stream's metadata before the first. What cannot
// be written is left out: the next one comes soon.
func (s *statisticsStream) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	info, err := s.store.StreamInfo(ctx, s.stream)
	if err != nil {
		return fmt.Errorf("look at %s: %w", s.stream, err)
	}
	if info.MetaLast < 0 {
		err := s.append(ctx, event.MetaStreamOf(s.stream), event.NoStream, event.TypeMetadata, []byte(statisticsMetadata))
		var conflict *event.WrongExpectedVersion // Somebody set other metadata meanwhile.
		if err != nil && !errors.As(err, &conflict) {
			return err
		}
	}
	return s.append(ctx, s.stream, event.AnyVersion, statisticsType, s.metrics())
}

func (s *statisticsStream) append(ctx context.Context, stream string, expected int64, typ string, data []byte) error {
	_, err := s.write(ctx, &event.Write{Kind: event.Append, Stream: stream, ExpectedVersion: expected, Events: []event.Proposed{{
		ID: event.ID(uuid.New()), Type: typ, Flags: event.FlagJSON, Data: data,
	}}})
	if err != nil {
		return fmt.Errorf("append to %s: %w", stream, err)
	}
	return nil
}
