package httpapi_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/testkit/memdb"
)

// recordSize is the distance of positions.
const recordSize = 100

// firstTime is the time of the first record.
var firstTime = time.Date(2024, 2, 3, 10, 11, 12, 345678900, time.UTC)

// memStore is a database whose records lie at multiples of recordSize for those who ask it, so that
// tests can name positions. Each record is a second later than the one before.
type memStore struct {
	*memdb.DB
	others
	written atomic.Int64 // records

	ahead  *memStore // the leader's
	passed int       // writes that it got
}

// others are the methods that no test of this package needs.
type others struct{ api.Store }

func newStore(t testing.TB) *memStore {
	s := &memStore{}
	s.DB = memdb.Open(t, memdb.Options{Now: func() time.Time { return firstTime.Add(time.Duration(s.written.Load()) * time.Second) }})
	return s
}

// set has every call fail, or wait for its context.
func (s *memStore) set(fail error, block bool) {
	s.Before.Set(func(ctx context.Context, _ any) error {
		if block {
			<-ctx.Done()
			return ctx.Err()
		}
		return fail
	})
}

// lose has events of a stream fail when their payload is read alone.
func (s *memStore) lose(with error, stream string, numbers ...int64) {
	s.BeforePayload.Set(func(_ context.Context, r *event.Record) error {
		if r.Stream == stream && slices.Contains(numbers, r.Number) {
			return with
		}
		return nil
	})
}

// real returns where the database has a position.
func (s *memStore) real(position int64) (int64, error) {
	log := s.Positions()
	switch i := int(position / recordSize); {
	case position == event.End:
		return position, nil
	case i >= len(log):
		return s.DB.LogEnd() + position - int64(len(log))*recordSize, nil
	case position%recordSize != 0:
		return 0, event.ErrBadPosition
	default:
		return log[i], nil
	}
}

// shown returns how a position of the database is shown.
func (s *memStore) shown(position int64) int64 {
	i, _ := slices.BinarySearch(s.Positions(), position)
	return int64(i) * recordSize
}

func (s *memStore) show(events ...*event.Record) {
	for _, r := range events {
		if r != nil {
			r.Position, r.Next = s.shown(r.Position), s.shown(r.Next)
			r.Time = firstTime.Add(time.Duration(r.Position/recordSize) * time.Second).UnixNano()
		}
	}
}

func (s *memStore) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	done, err := s.DB.Write(ctx, w)
	s.written.Store(int64(len(s.Positions())))
	return done, err
}

// WriteAnywhere has the leader's store do the write, if there is one.
func (s *memStore) WriteAnywhere(ctx context.Context, w *event.Write) (event.Written, error) {
	if s.ahead == nil {
		return s.Write(ctx, w)
	}
	s.passed++
	done, err := s.ahead.Write(ctx, w)
	if done.Position >= 0 {
		done.Position = s.ahead.shown(done.Position)
	}
	return done, err
}

func (s *memStore) ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error) {
	e, err := s.DB.ReadEvent(ctx, stream, number, links)
	s.show(&e.Record, e.Target)
	return e, err
}

func (s *memStore) ReadEventUpTo(ctx context.Context, stream string, number int64, maxPayload int, links event.LinkReader) (event.Resolved, error) {
	e, err := s.DB.ReadEventUpTo(ctx, stream, number, maxPayload, links)
	s.show(&e.Record, e.Target)
	return e, err
}

func (s *memStore) ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error) {
	p, err := s.DB.ReadStream(ctx, r)
	for i := range p.Events {
		s.show(&p.Events[i].Record, p.Events[i].Target)
	}
	return p, err
}

func (s *memStore) ReadAll(ctx context.Context, r event.AllRead) (p event.AllPage, err error) {
	if r.Query != nil && r.From > 0 { // Any number may be given.
		r.From = (r.From + recordSize - 1) / recordSize * recordSize
	}
	if r.From, err = s.real(r.From); err != nil {
		return p, err
	}
	p, err = s.DB.ReadAll(ctx, r)
	for i := range p.Events {
		s.show(&p.Events[i].Record, p.Events[i].Target)
	}
	for _, position := range []*int64{&p.From, &p.Next, &p.Last, &p.LogEnd} {
		if *position >= 0 {
			*position = s.shown(*position)
		}
	}
	return p, err
}

func (s *memStore) ReadPayload(ctx context.Context, r *event.Record) (err error) {
	if r.Position, err = s.real(r.Position); err != nil {
		return err
	}
	defer s.show(r)
	return s.DB.ReadPayload(ctx, r)
}

func (s *memStore) PositionAt(ctx context.Context, at int64) (int64, error) {
	_, err := s.DB.PositionAt(ctx, at)
	i := slices.IndexFunc(s.Positions(), func(position int64) bool {
		r := event.Record{Position: position}
		s.show(&r)
		return r.Time >= at
	})
	if i < 0 {
		return s.LogEnd(), err
	}
	return int64(i) * recordSize, err
}

func (s *memStore) LogEnd() int64 { return s.shown(s.DB.LogEnd()) }

func (s *memStore) WaitLog(ctx context.Context, position int64) error {
	position, err := s.real(position)
	if err != nil {
		return err
	}
	return s.DB.WaitLog(ctx, position)
}

func (s *memStore) WaitQuery(ctx context.Context, q *event.Query, from int64) error {
	from, err := s.real((from + recordSize - 1) / recordSize * recordSize)
	if err != nil {
		return err
	}
	return s.DB.WaitQuery(ctx, q, from)
}
