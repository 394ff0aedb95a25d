package node

import (
	"context"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/replication"
)

// store is the database as the packages above see it: appends go to
// replication, reads to this node's log.
type store struct {
	log     *eventlog.Log
	replica *replication.Replica
}

var (
	_ httpapi.Store  = (*store)(nil)
	_ httpapi.Waiter = (*store)(nil)
	_ access.Writer  = (*store)(nil)
	_ access.Streams = (*store)(nil)
)

func (s *store) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	return s.replica.Submit(ctx, w)
}

func (s *store) ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error) {
	if err := ctx.Err(); err != nil {
		return event.StreamPage{}, err
	}
	return s.log.ReadStream(r)
}

func (s *store) ReadEvent(ctx context.Context, stream string, number int64, resolveLinks bool) (event.Resolved, error) {
	if err := ctx.Err(); err != nil {
		return event.Resolved{}, err
	}
	return s.log.ReadEvent(stream, number, resolveLinks)
}

func (s *store) ReadAll(ctx context.Context, r event.AllRead) (event.AllPage, error) {
	if err := ctx.Err(); err != nil {
		return event.AllPage{}, err
	}
	return s.log.ReadAll(r)
}

func (s *store) StreamInfo(_ context.Context, stream string) (event.StreamInfo, error) {
	return s.log.StreamInfo(stream)
}

// LastEvent returns the last event of a stream that a reader would see.
func (s *store) LastEvent(ctx context.Context, stream string) (event.Record, error) {
	r, err := s.ReadEvent(ctx, stream, event.Head, false)
	return r.Record, err
}

func (s *store) LogEnd() int64 { return s.log.Tail().End }

func (s *store) WaitStream(ctx context.Context, stream string, after int64) error {
	return s.log.WaitStream(ctx, stream, after)
}

func (s *store) WaitLog(ctx context.Context, position int64) error {
	return s.log.WaitLog(ctx, position)
}
