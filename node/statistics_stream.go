package node

import (
	"context"
	"time"

	"github.com/annalsdb/annals/admin/record"
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
	journal := record.NewJournal(record.Options{Store: s.n.store, Metadata: statisticsMetadata, KeepMetadata: true}, stream)
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
		limited, cancel := context.WithTimeout(ctx, s.n.config.WriteTimeout)
		err := journal.Try(limited, record.Proposed(statisticsType, s.Statistics().AppendFlatJSON(nil, false)))
		cancel()
		if err != nil && !failing && ctx.Err() == nil {
			logger.Warn("statistics cannot be written into the database for now", logkey.Stream, stream, logkey.Error, err)
		}
		failing = err != nil
	}
}
