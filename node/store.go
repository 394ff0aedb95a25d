package node

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/replication"
)

// store is the database as the packages above see it: appends go to
// replication, reads to this node's log. A node that has no log yet, or whose log
// is not to be trusted, answers event.ErrNotReady.
type store struct {
	log     *atomic.Pointer[eventlog.Log]
	cluster atomic.Pointer[replication.Cluster]
}

var (
	_ httpapi.Store  = (*store)(nil)
	_ httpapi.Waiter = (*store)(nil)
	_ access.Writer  = (*store)(nil)
	_ access.Streams = (*store)(nil)
)

// readable returns the log that reads are answered from.
func (s *store) readable() (*eventlog.Log, error) {
	log := s.log.Load()
	if log == nil {
		return nil, event.ErrNotReady
	}
	if c := s.cluster.Load(); c != nil {
		if _, err := c.Healthy(); err != nil {
			return nil, fmt.Errorf("%w: %w", event.ErrNotReady, err)
		}
	}
	return log, nil
}

func (s *store) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	c := s.cluster.Load()
	if c == nil {
		return event.Written{}, event.ErrNotReady
	}
	return c.Submit(ctx, w)
}

func (s *store) ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error) {
	if err := ctx.Err(); err != nil {
		return event.StreamPage{}, err
	}
	log, err := s.readable()
	if err != nil {
		return event.StreamPage{}, err
	}
	return log.ReadStream(r)
}

func (s *store) ReadEvent(ctx context.Context, stream string, number int64, resolveLinks bool) (event.Resolved, error) {
	if err := ctx.Err(); err != nil {
		return event.Resolved{}, err
	}
	log, err := s.readable()
	if err != nil {
		return event.Resolved{}, err
	}
	return log.ReadEvent(stream, number, resolveLinks)
}

func (s *store) ReadAll(ctx context.Context, r event.AllRead) (event.AllPage, error) {
	if err := ctx.Err(); err != nil {
		return event.AllPage{}, err
	}
	log, err := s.readable()
	if err != nil {
		return event.AllPage{}, err
	}
	return log.ReadAll(r)
}

func (s *store) StreamInfo(_ context.Context, stream string) (event.StreamInfo, error) {
	log, err := s.readable()
	if err != nil {
		return event.StreamInfo{}, err
	}
	return log.StreamInfo(stream)
}

// LastEvent returns the last event of a stream that a reader would see.
func (s *store) LastEvent(ctx context.Context, stream string) (event.Record, error) {
	r, err := s.ReadEvent(ctx, stream, event.Head, false)
	return r.Record, err
}

func (s *store) LogEnd() int64 {
	if log := s.log.Load(); log != nil {
		return log.Tail().End
	}
	return 0
}

func (s *store) WaitStream(ctx context.Context, stream string, after int64) error {
	log, err := s.readable()
	if err != nil {
		return err
	}
	return log.WaitStream(ctx, stream, after)
}

func (s *store) WaitLog(ctx context.Context, position int64) error {
	log, err := s.readable()
	if err != nil {
		return err
	}
	return log.WaitLog(ctx, position)
}
