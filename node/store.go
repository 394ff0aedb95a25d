package node

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/pipeline"
	"github.com/annalsdb/annals/stats/latency"
)

// store is the database as the packages above see it: appends go to
// replication, reads to this node's log. A node that has no log yet, or whose log
// is not to be trusted, answers event.ErrNotReady.
type store struct {
	log       atomic.Pointer[eventlog.Log] // nil until the id of the cluster is known
	cluster   *replication.Cluster
	reads     readStatistics
	latencies *latency.Set // nil unless histograms are switched on
	readOnly  bool         // this node is a read-only replica
	forwards  forwards
}

func newStore(n *Node) *store {
	s := &store{cluster: n.cluster, latencies: n.metrics.latencies, readOnly: n.config.ReadOnlyReplica}
	s.reads.register(n.opts.Stats)
	return s
}

var (
	_ api.Store      = (*store)(nil)
	_ access.Writer  = (*store)(nil)
	_ access.Streams = (*store)(nil)
)

// Log returns this node's log, event.ErrNotReady as long as there is none.
func (s *store) Log() (*eventlog.Log, error) {
	if log := s.log.Load(); log != nil {
		return log, nil
	}
	return nil, event.ErrNotReady
}

// readable returns the log that reads are answered from.
func (s *store) readable() (*eventlog.Log, error) {
	log, err := s.Log()
	if err != nil {
		return nil, err
	}
	if _, err := s.cluster.Healthy(); err != nil {
		return nil, fmt.Errorf("%w: %w", event.ErrNotReady, err)
	}
	return log, nil
}

// readableFor is readable for one who has not given up.
func (s *store) readableFor(ctx context.Context) (*eventlog.Log, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.readable()
}

func (s *store) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	begun := time.Now()
	written, err := s.cluster.Writes.Submit(ctx, w)
	s.latencies.Record(latency.RequestManager, time.Since(begun))
	return written, err
}

// begunWrite is a write whose answer is still to come.
type begunWrite struct {
	pipeline.Pending
	s     *store
	begun time.Time
}

func (b *begunWrite) Done(giveUp bool) (event.Written, error, bool) {
	written, err, ok := b.Pending.Done(giveUp)
	if ok {
		b.s.latencies.Record(latency.RequestManager, time.Since(b.begun))
	}
	return written, err, ok
}

func (s *store) Begin(ctx context.Context, w *event.Write, wake chan<- struct{}) (api.Pending, error) {
	b := &begunWrite{s: s, begun: time.Now()}
	var err error
	if b.Pending, err = s.cluster.Writes.Begin(ctx, w, wake); err != nil {
		s.latencies.Record(latency.RequestManager, time.Since(b.begun))
		return nil, err
	}
	return b, nil
}

// WriteOwn does a write of the node's own, wherever the leader is.
func (s *store) WriteOwn(ctx context.Context, w *event.Write) (event.Written, error) {
	return s.cluster.Writes.Write(ctx, w)
}

func (s *store) ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error) {
	log, err := s.readableFor(ctx)
	if err != nil {
		return event.StreamPage{}, err
	}
	defer s.read(&s.reads.stream, s.reads.stream.begin())
	return log.Reads.ReadStream(r)
}

func (s *store) ReadPayload(ctx context.Context, r *event.Record) error {
	log, err := s.readableFor(ctx)
	if err != nil {
		return err
	}
	return log.Reads.ReadPayload(r)
}

func (s *store) ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error) {
	return s.ReadEventUpTo(ctx, stream, number, math.MaxInt, links)
}

func (s *store) ReadEventUpTo(ctx context.Context, stream string, number int64, maxPayload int, links event.LinkReader) (event.Resolved, error) {
	log, err := s.readableFor(ctx)
	if err != nil {
		return event.Resolved{}, err
	}
	defer s.read(&s.reads.event, s.reads.event.begin())
	return log.Reads.ReadEventUpTo(stream, number, maxPayload, links)
}

func (s *store) Tombstone(ctx context.Context, stream string) (event.Record, error) {
	log, err := s.readableFor(ctx)
	if err != nil {
		return event.Record{}, err
	}
	return log.Reads.Tombstone(stream)
}

func (s *store) ReadAll(ctx context.Context, r event.AllRead) (event.AllPage, error) {
	log, err := s.readableFor(ctx)
	if err != nil {
		return event.AllPage{}, err
	}
	defer s.read(&s.reads.all, s.reads.all.begin())
	return log.Reads.ReadAll(r)
}

func (s *store) PositionAt(ctx context.Context, time int64) (int64, error) {
	log, err := s.readableFor(ctx)
	if err != nil {
		return 0, err
	}
	return log.Reads.PositionAt(time)
}

func (s *store) Names(ctx context.Context, r event.NamesRead) (event.NamesPage, error) {
	log, err := s.readable()
	if err != nil {
		return event.NamesPage{}, err
	}
	return log.Names.Page(ctx, r)
}

func (s *store) StreamInfo(_ context.Context, stream string) (event.StreamInfo, error) {
	log, err := s.readable()
	if err != nil {
		return event.StreamInfo{}, err
	}
	return log.Reads.StreamInfo(stream)
}

// LastEvent returns the last event of a stream that a reader would see.
func (s *store) LastEvent(ctx context.Context, stream string) (event.Record, error) {
	r, err := s.ReadEvent(ctx, stream, event.Head, nil)
	return r.Record, err
}

func (s *store) LogEnd() int64 {
	log, err := s.Log()
	if err != nil {
		return 0
	}
	return log.Settled()
}

// wait waits for something in the log.
func (s *store) wait(until func(r *eventlog.Reader) error) error {
	log, err := s.readable()
	if err != nil {
		return err
	}
	s.reads.waiting.Enter(1)
	defer s.reads.waiting.Leave(1)
	return until(log.Reads)
}

func (s *store) WaitStream(ctx context.Context, stream string, after int64) error {
	return s.wait(func(r *eventlog.Reader) error { return r.WaitStream(ctx, stream, after) })
}

func (s *store) WaitStreams(ctx context.Context, streams []string, after []int64) error {
	return s.wait(func(r *eventlog.Reader) error { return r.WaitStreams(ctx, streams, after) })
}

func (s *store) WaitQuery(ctx context.Context, q *event.Query, from int64) error {
	return s.wait(func(r *eventlog.Reader) error { return r.WaitQuery(ctx, q, from) })
}

func (s *store) WaitLog(ctx context.Context, position int64) error {
	return s.wait(func(r *eventlog.Reader) error { return r.WaitLog(ctx, position) })
}
