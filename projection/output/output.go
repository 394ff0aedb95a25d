// Package output is what a projection writes: emitted events exactly once and in
// order, results, checkpoints, and the lists of its streams.
//
// # Writing
//
// Emissions wait by stream. A worker takes a stream that has some, writes its next batch, and then
// takes the next stream in line. So a stream has at most one write in flight, streams are written
// in parallel, and the emissions that come during a write make the next batch. Workers are
// goroutines that end when no stream has anything to write. Streams with nothing to write are
// remembered with the number of their last event. When there are many, those longest not written
// are forgotten, and looked up again at their next emission.
//
// # Exactly once
//
// At the first emission to a stream since the start its last event is looked at. If it is newer
// than the checkpoint the run began at, the events after the checkpoint are compared one by one
// with the new emissions, and nothing is written until all of them have been emitted again. From
// then on each write expects the number that it found, so another client's event does not get in
// between unseen.
//
// A stream that is forgotten and looked up again also has events newer than the checkpoint, which
// this very run wrote. So the output keeps a position up to which such streams are known to be
// complete. When a stream is forgotten, that position moves up to the last event that was handled
// as a whole: later emissions to the stream are caused by later events.
//
// A foreign event at the end of a stream is a fault, unless it is older than the last reset: a
// reset fills all streams again, so the event is hidden with the rest.
//
// A stream's $maxCount, $maxAge or $tb can hide some of its events after the checkpoint. Emissions
// before the first event that is still seen are then taken as written and hidden.
//
// Results that a query wrote at its end are not compared. All of them have the same position, and
// their content may differ. Those of an earlier run are replaced, as after a reset.
//
// # Ids of events
//
// The id of an emitted event is made of the projection, its epoch, the stream, the position, the
// type, and how many were emitted to the stream at that position before it. So a write that is
// repeated because its outcome was unknown has the same ids. The same emission of a run that starts
// again has them too, while a write of the run before it may still arrive.
//
// An id alone never keeps an event from being written. Every write to an output stream expects the
// true number of the last event, also in a stream that was deleted and begins again. With an
// expected number the database takes a write for a repetition only if the events directly after
// that number have its ids. An event with that number and that id is this emission. So an emission
// that happens twice, as after its stream was truncated, is written twice. Lists of streams and
// partitions are written without an expected number, and name everything once; their ids are
// random.
package output

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// ErrRestart says that another client wrote to a stream between two of our writes: the run begins
// again from its checkpoint, and then finds out which one.
var ErrRestart = errors.New("a stream was written to from the outside")

// Store is the part of the database that the output needs. Errors are those of package event.
type Store interface {
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)
	ReadPayload(ctx context.Context, r *event.Record) error
	ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error)
	// StreamInfo describes a stream without reading its events. It is cheap.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
	// Write does w whole or not at all, on the leader only.
	Write(ctx context.Context, w *event.Write) (event.Written, error)
}

// Options of an Output. Store, Streams, Version and From are needed.
type Options struct {
	Store   Store
	Version position.Version
	// From is the checkpoint that the run starts at. Events emitted after it may be stored already.
	From        position.Position
	MaxBatch    int  // events a write; 0: 500
	MaxInFlight int  // writes at once; 0: as many as are of use
	Track       bool // list the streams that are emitted to
	// MayWrite says whether the projection has the right to write to a stream: nil,
	// event.ErrNotAuthorized, or what kept it from finding out. Nil: it may.
	MayWrite func(ctx context.Context, stream string) error
	// Passed is called with a description of an event from the outside that a reset hides. Nil: it
	// is not called.
	Passed func(what string)
	// Volatile says that the projection is transient: the results of an earlier run are replaced,
	// and nothing is compared.
	Volatile bool
	// Streams names the streams of the projection.
	Streams Streams
}

// Bounds that are not options: they only have to be sane.
const (
	defaultBatch    = 500
	defaultInFlight = 512     // measured: BenchmarkLinks of package node
	maxBatchBytes   = 1 << 20 // as an entry of the log; one event may be larger
	defaultKnown    = 20_000  // streams remembered, about 300 bytes each
	patience        = 10 * time.Second
)

func (o *Options) ensureDefaults() {
	if o.MaxBatch <= 0 {
		o.MaxBatch = defaultBatch
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = defaultInFlight
	}
}

// Output writes the emissions of one run of a projection. Emit and Result belong to the goroutine
// of the run, the rest may be called from any.
type Output struct {
	access
	opts     Options
	ctx      context.Context // of writes; ends only when they outlast Close by far
	cancel   context.CancelFunc
	stop     chan struct{}   // that of access, closed by Close
	failed   context.Context // ends when something cannot be written
	giveUp   context.CancelCauseFunc
	work     sync.WaitGroup
	tracker  *tracker // nil: streams are not listed
	maxKnown int
	build    builder // of Emit and Result alone

	mu      sync.Mutex // guards the fields below; held for moments only
	err     error
	closed  bool
	known   map[string]*stream
	idle    list // known streams with nothing to write, the one longest not written first
	ready   list // streams with something to write that no worker has, in line
	workers int
	spare   []*worker
	buffers [][]item
	pending int
	bytes   int64
	changed chan struct{}     // closed when fewer are pending; nil: no caller waits
	event   int64             // counts distinct positions that were emitted at
	at      position.Position // the last of them
	// what is stored up to here, of streams not known, is not emitted again
	floor  *position.Position
	before position.Position // the position before at
}

// New returns an Output, which must be closed.
func New(o Options) *Output {
	o.ensureDefaults()
	from := o.From
	stop := make(chan struct{})
	out := &Output{
		access: access{o.Store, stop}, opts: o, maxKnown: defaultKnown, stop: stop, known: map[string]*stream{},
		floor: &from, before: from, build: builder{version: o.Version, isBare: o.Volatile},
	}
	out.ctx, out.cancel = context.WithCancel(context.Background())
	out.failed, out.giveUp = context.WithCancelCause(context.Background())
	if o.Track {
		out.tracker = &tracker{o: out}
	}
	return out
}

// Emit queues what the handler emitted for an event, nil if no event caused it. at is the position
// after that event. It never blocks. Emissions to one stream are written in their order.
func (o *Output) Emit(at position.Position, by *handler.Event, es []handler.Emission) {
	if len(es) == 0 {
		return
	}
	o.build.begin(at, by)
	for i := range es {
		o.add(&es[i], nil, nil)
	}
}

// arrive notes the position of the next emissions.
func (o *Output) arrive(at *position.Position) {
	if o.event > 0 && equal(*at, o.at) {
		return
	}
	if o.event > 0 {
		o.before = o.at
	}
	o.at = *at
	o.event++
}

// add queues one emission. tells is given the number under which it is stored,
// links says that it is a link to what another place tells.
func (o *Output) add(e *handler.Emission, tells, links *place) {
	metadata := o.build.metadata(e.Metadata)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.err != nil {
		return
	}
	o.arrive(&o.build.at)
	s := o.known[e.Stream]
	if s == nil {
		o.forget()
		s = &stream{name: e.Stream, from: o.floor}
		o.known[e.Stream] = s
	} else if s.in == &o.idle {
		o.idle.remove(s)
	}
	if s.event != o.event {
		s.event, s.ordinal = o.event, 0
	}
	it := item{event: o.build.event(e, s.ordinal, metadata), mark: e.Mark, to: e.To, tells: tells, links: links}
	s.ordinal++
	if e.Mark || !s.settled {
		it.at = o.build.place()
	}
	o.pending++
	o.bytes += it.size()
	if s.queue == nil && len(o.buffers) > 0 {
		s.queue = o.buffers[len(o.buffers)-1]
		o.buffers = o.buffers[:len(o.buffers)-1]
	}
	s.queue = append(s.queue, it)
	if !s.busy && s.in == nil {
		o.ready.push(s)
		o.hire()
	}
}

// hire starts a worker if there may be one more.
func (o *Output) hire() {
	if o.workers >= o.opts.MaxInFlight || o.ready.head == nil || o.closed || o.err != nil {
		return
	}
	var w *worker
	if n := len(o.spare); n > 0 {
		w = o.spare[n-1]
		o.spare = o.spare[:n-1]
	} else {
		w = &worker{o: o}
	}
	o.workers++
	o.work.Go(w.run)
}

// forget makes room for one more stream. The streams that may not be forgotten are few: those to
// which the last event emitted, and those that have something to write or have yet to be emitted
// again.
func (o *Output) forget() {
	if o.opts.Volatile || o.at.Phase != 0 {
		return
	}
	for len(o.known) >= o.maxKnown && o.idle.head != nil && o.idle.head.event != o.event {
		s := o.idle.head
		o.idle.remove(s)
		delete(o.known, s.name)
		if !equal(*o.floor, o.before) {
			floor := o.before
			o.floor = &floor
		}
	}
}

// Pending returns how many events wait or are being written.
func (o *Output) Pending() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending
}

// Bytes returns how many bytes wait or are being written.
func (o *Output) Bytes() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes
}

// Writing returns how many writes are in flight.
func (o *Output) Writing() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.workers
}

// WaitBelow returns nil when no more than n events are pending. If the output fails first it
// returns Err.
func (o *Output) WaitBelow(ctx context.Context, n int) error {
	for {
		o.mu.Lock()
		switch {
		case o.err != nil || o.closed:
			defer o.mu.Unlock()
			return cmp.Or(o.err, event.ErrClosed)
		case o.pending <= n:
			o.mu.Unlock()
			return nil
		}
		if o.changed == nil {
			o.changed = make(chan struct{})
		}
		changed := o.changed
		o.mu.Unlock()
		select {
		case <-changed:
		case <-o.failed.Done():
		case <-o.stop:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Flush returns nil when everything emitted so far is stored.
func (o *Output) Flush(ctx context.Context) error { return o.WaitBelow(ctx, 0) }

// Failed ends when something cannot be written, with Err as its cause. Nothing more is written
// then.
func (o *Output) Failed() context.Context { return o.failed }

// Err returns why the output failed: a *handler.Fault, ErrRestart, an error that says that this
// node does not lead or stops (see IsLost), or one of storage that stayed after 12 tries.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Close waits for writes in flight and drops the rest. It may be called more than once.
func (o *Output) Close() {
	o.mu.Lock()
	if !o.closed {
		o.closed = true
		close(o.stop)
	}
	o.mu.Unlock()
	timer := time.AfterFunc(patience, o.cancel)
	o.work.Wait()
	timer.Stop()
	o.cancel()
}

// IsLost reports whether an error says that this node does not lead or stops, so that the run ends
// without a word.
func IsLost(err error) bool {
	var other *event.NotLeader
	return errors.As(err, &other) || errors.Is(err, event.ErrClosed) || errors.Is(err, context.Canceled)
}
