package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// The statistics stream of a node. Names and metadata are those of EventStoreDB: do not change.
const (
	statisticsPrefix   = "$stats-" // and the node's host:port
	statisticsType     = "$statsCollected"
	statisticsMetadata = `{"$maxAge":864000}`
)

// write appends the metrics to the node's statistics stream, as one event a period, until ctx ends.
// An event that cannot be written is left out: the next one comes soon.
func (s *statistics) write(ctx context.Context) {
	stream := statisticsPrefix + s.n.endpoint()
	logger := s.n.logger.Named("stats")
	ticker := time.NewTicker(s.n.config.StatsPeriod)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		err := s.writeOnce(ctx, stream)
		if err != nil && !failing && ctx.Err() == nil {
			logger.Warn("statistics cannot be written into the database for now", logkey.Stream, stream, logkey.Error, err)
		}
		failing = err != nil
	}
}

// writeOnce writes one event, and the stream's metadata before the first.
func (s *statistics) writeOnce(ctx context.Context, stream string) error {
	ctx, cancel := context.WithTimeout(ctx, s.n.config.WriteTimeout)
	defer cancel()
	info, err := s.n.store.StreamInfo(ctx, stream)
	if err != nil {
		return fmt.Errorf("look at %s: %w", stream, err)
	}
	write := func(stream string, expected int64, typ string, data []byte) error {
		_, err := s.n.store.WriteOwn(ctx, record.Append(stream, expected, record.Proposed(typ, data)))
		if err != nil {
			return fmt.Errorf("append to %s: %w", stream, err)
		}
		return nil
	}
	if info.MetaLast < 0 {
		err := write(event.MetaStreamOf(stream), event.NoStream, event.TypeMetadata, []byte(statisticsMetadata))
		var conflict *event.WrongExpectedVersion // Another client set other metadata meanwhile.
		if err != nil && !errors.As(err, &conflict) {
			return err
		}
	}
	return write(stream, event.AnyVersion, statisticsType, s.Statistics().AppendFlatJSON(nil, false))
}
