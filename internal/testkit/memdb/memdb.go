// Package memdb is the database of one test: the decider, the state machine and the log of a node,
// over files in memory, without Raft and without a network. Tests make its calls fail or stall by
// hooks.
package memdb

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/index"
)

// T is what tests, benchmarks and properties offer.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Options say what a database is to be like. The zero value works.
type Options struct {
	Now func() time.Time // the clock of records and of $maxAge, default time.Now
}

// DB is a database. All its methods may be called at once.
type DB struct {
	// What goes wrong. The error of a Before hook keeps the call from being done, that of
	// AfterWrite is returned for a write that was done. Before comes before the others, for every
	// call with a context; its of is the argument: a *event.Write, a event.StreamRead, a name …
	Before                  Hook[any]
	BeforeWrite, AfterWrite Hook[*event.Write]
	BeforeRead              Hook[event.StreamRead]
	BeforeReadAll           Hook[event.AllRead]
	BeforeInfo              Hook[string]
	BeforePayload           Hook[*event.Record]

	Writes, Reads, Payloads atomic.Int64 // calls begun
	Looked                  atomic.Int64 // records that ReadAll looked at

	Waits Waits // calls that wait

	t      T
	log    *eventlog.Log
	leader leader

	// guarded by the mu of leader
	removed []event.Record // by Scavenge
	places  []int64        // see Positions
	placed  int64          // the end of the log that places tell of
}

// Hook is a function that a test sets while others call it. Without one nothing goes wrong.
type Hook[A any] struct {
	f atomic.Pointer[func(ctx context.Context, of A) error]
}

// Set replaces the function; nil: none.
func (h *Hook[A]) Set(f func(ctx context.Context, of A) error) {
	if f == nil {
		h.f.Store(nil)
		return
	}
	h.f.Store(&f)
}

func (h *Hook[A]) call(ctx context.Context, of A) error {
	if f := h.f.Load(); f != nil {
		return (*f)(ctx, of)
	}
	return nil
}

// Fault says what becomes of a write, of which n were done before: the first error keeps it from
// being done, the second is returned although it was done.
type Fault func(n int64, w *event.Write) (before, after error)

// SetFault has a function be asked about each write, one at a time, in the order in which they are
// done; nil: none.
func (db *DB) SetFault(f Fault) {
	db.leader.mu.Lock()
	defer db.leader.mu.Unlock()
	db.leader.fault = f
}

// Open opens an empty database, which is closed with the test.
func Open(t T, o Options) *DB {
	t.Helper()
	if o.Now == nil {
		o.Now = time.Now
	}
	log, err := eventlog.Open(eventlog.Options{
		Dir: "/db", FS: vfs.NewMem(), ClusterID: event.ID{1}, SkipVerify: true, StreamCache: 1000, RecentIDs: 1 << 14, Now: o.Now,
		Index: index.Options{ExistenceFilterMax: 4096, MaxMemTable: 10_000},
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	fatal := func(err error) { t.Errorf("the log has ended: %v", err) }
	db := &DB{t: t, log: log}
	db.leader.machine, db.leader.decider = fsm.NewMachine(log, hclog.NewNullLogger(), fatal), fsm.NewDecider(log.Facts, o.Now)
	db.Waits.changed = sync.NewCond(&db.Waits.mu)
	if err := db.leader.decider.Reset(); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(db.Close)
	return db
}

// Close closes the database before its test ends.
func (db *DB) Close() {
	if err := db.log.Close(); err != nil {
		db.t.Errorf("%v", err)
	}
}

func (db *DB) Write(ctx context.Context, w *event.Write) (event.Written, error) {
	if err := before(ctx, db, &db.BeforeWrite, w); err != nil {
		return event.Written{}, err
	}
	if err := label.Check(w); err != nil {
		return event.Written{}, err
	}
	written, err := db.leader.faulty(&db.Writes, w)
	if err != nil {
		return event.Written{}, err
	}
	return written, db.AfterWrite.call(ctx, w)
}

// before asks the hooks of a call.
func before[A any](ctx context.Context, db *DB, hook *Hook[A], of A) error {
	if err := db.Before.call(ctx, of); err != nil {
		return err
	}
	if err := hook.call(ctx, of); err != nil {
		return err
	}
	return ctx.Err()
}

func (db *DB) ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error) {
	if err := before(ctx, db, &db.BeforeRead, r); err != nil {
		return event.StreamPage{}, err
	}
	db.Reads.Add(1)
	return db.log.Reads.ReadStream(r)
}

func (db *DB) ReadAll(ctx context.Context, r event.AllRead) (event.AllPage, error) {
	if err := before(ctx, db, &db.BeforeReadAll, r); err != nil {
		return event.AllPage{}, err
	}
	db.Reads.Add(1)
	db.watchNames(&r)
	page, err := db.log.Reads.ReadAll(r)
	db.Looked.Add(int64(page.Looked))
	return page, err
}

// watchNames fails the test if a filter chooses an event that its names do not.
func (db *DB) watchNames(r *event.AllRead) {
	filter, names := r.Filter, r.Names
	if names == nil {
		return
	}
	r.Filter = func(stream, eventType string) (bool, error) {
		isChosen, err := filter(stream, eventType)
		name := eventType
		if names.OfStream {
			name = stream
		}
		if isNamed, _ := names.Match(name); isChosen && !isNamed {
			db.t.Errorf("a filter chooses %s in %s, its names do not", eventType, stream)
		}
		return isChosen, err
	}
}

func (db *DB) ReadPayload(ctx context.Context, r *event.Record) error {
	db.Payloads.Add(1)
	if err := db.BeforePayload.call(ctx, r); err != nil {
		return err
	}
	return db.log.Reads.ReadPayload(r)
}

func (db *DB) ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error) {
	return db.ReadEventUpTo(ctx, stream, number, math.MaxInt, links)
}

func (db *DB) ReadEventUpTo(ctx context.Context, stream string, number int64, maxPayload int, links event.LinkReader) (event.Resolved, error) {
	if err := db.Before.call(ctx, stream); err != nil {
		return event.Resolved{}, err
	}
	db.Reads.Add(1)
	return db.log.Reads.ReadEventUpTo(stream, number, maxPayload, links)
}

func (db *DB) StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error) {
	if err := before(ctx, db, &db.BeforeInfo, stream); err != nil {
		return event.StreamInfo{}, err
	}
	return db.log.Reads.StreamInfo(stream)
}

func (db *DB) Tombstone(ctx context.Context, stream string) (event.Record, error) {
	return db.log.Reads.Tombstone(stream)
}

func (db *DB) PositionAt(ctx context.Context, time int64) (int64, error) {
	if err := db.Before.call(ctx, time); err != nil {
		return 0, err
	}
	return db.log.Reads.PositionAt(time)
}

func (db *DB) Names(ctx context.Context, r event.NamesRead) (event.NamesPage, error) {
	if err := db.Before.call(ctx, r); err != nil {
		return event.NamesPage{}, err
	}
	return db.log.Names.Page(ctx, r)
}

func (db *DB) LogEnd() int64 { return db.log.Settled() }

func (db *DB) WaitStream(ctx context.Context, stream string, after int64) error {
	return db.Waits.during(func() error { return db.log.Reads.WaitStream(ctx, stream, after) })
}

func (db *DB) WaitStreams(ctx context.Context, streams []string, after []int64) error {
	return db.Waits.during(func() error { return db.log.Reads.WaitStreams(ctx, streams, after) })
}

func (db *DB) WaitLog(ctx context.Context, position int64) error {
	return db.Waits.during(func() error { return db.log.Reads.WaitLog(ctx, position) })
}

// WaitQuery is the log's.
func (db *DB) WaitQuery(ctx context.Context, q *event.Query, from int64) error {
	return db.Waits.during(func() error { return db.log.Reads.WaitQuery(ctx, q, from) })
}
