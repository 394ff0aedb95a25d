package history

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/stats"
)

// Store is the database. Writes may be done by another node; reads are answered by this one, which
// may lag.
type Store interface {
	record.Store
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)
}

// Options say how the history is written. All but Store and Endpoint may be left out.
type Options struct {
	Store        Store
	Logger       hclog.Logger
	Endpoint     func() string   // host:port of this node for clients; asked when a run begins
	MaxAge       time.Duration   // for which the history is kept, as package record says
	WriteTimeout time.Duration   // of one try, as package record says
	Stats        *stats.Registry // may be nil
}

// Bounds of what waits in memory.
const (
	// maxDetails is how many events about chunks, merges and the index wait at most.
	maxDetails = 10_000
	// maxRuns is how many runs may have begun whose last event was not written yet. One
	// runs at a time, so it takes that many runs without a leader to get there.
	maxRuns = 5_000
)

// Writer writes the history of the runs of this node.
//
// The one goroutine that writes takes events from the queue, one at a time, and
// is done with an event, its link included, before it takes the next.
type Writer struct {
	opts    Options
	metrics metrics
	records *record.Queue[*item]

	// guards the fields below, and what runs say that it does; taken before that of the queue
	mu      sync.Mutex
	details int                   // items that wait and are not the first or the last of their run
	live    map[event.ID]struct{} // runs begun whose last event was not dealt with yet
}

// New returns a Writer. It must be closed.
func New(o Options) *Writer {
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	w := &Writer{
		opts: o, metrics: newMetrics(o.Stats), live: make(map[event.ID]struct{}),
		records: record.New[*item](record.Options{
			Store: o.Store, Logger: o.Logger, What: "the history of scavenges", MaxAge: o.MaxAge, Timeout: o.WriteTimeout,
		}, maxDetails+2*maxRuns),
	}
	w.records.Start(w.work)
	return w
}

// Close lets queued events be written for a few seconds, as long as the store takes them, and gives
// the rest up. It returns even if the store hangs. Events that are queued later are left out.
func (w *Writer) Close() { w.records.Close() }

// admit keeps room for the first and the last event of a run.
func (w *Writer) admit(id event.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.records.Closing() || len(w.live) >= maxRuns {
		return false
	}
	w.live[id] = struct{}{}
	return true
}

// enqueue puts an event into the queue. If there is no room for it, the event is
// left out rather than one that waits already: what is written has no gaps then
// but for the one.
func (w *Writer) enqueue(r *Run, typ string, payload any) {
	it := &item{run: r, event: record.Proposed(typ, record.Encode(payload))}
	w.mu.Lock()
	if r.completed {
		w.mu.Unlock()
		return
	}
	r.completed = typ == TypeCompleted
	dropped := r.refused || !it.boundary() && w.details >= maxDetails || !w.records.Put(it)
	tell := dropped && !r.lost
	r.lost = r.lost || dropped
	if !dropped {
		if !it.boundary() {
			w.details++
		}
		w.metrics.queued.Set(int64(w.records.Len()))
	}
	w.mu.Unlock()
	if dropped {
		w.metrics.dropped.Inc()
		it.settled()
	}
	if !tell {
		return
	}
	why := "too many wait to be written"
	if w.records.Closing() {
		why = "the node ends"
	}
	w.opts.Logger.Warn("events of the history of a scavenge are left out", logkey.ID, r.id, logkey.Type, typ, logkey.Reason, why)
}

// settled says that an event was written, or will not be.
func (it *item) settled() {
	if it.event.Type == TypeStarted {
		close(it.run.announced)
	}
}

// work writes what is in the queue until the Writer is closed.
func (w *Writer) work(ctx context.Context) {
	left := 0
	for next := w.records.Next(1); len(next) > 0; next = w.records.Next(1) {
		it := next[0]
		w.mu.Lock()
		if !it.boundary() {
			w.details--
		}
		w.metrics.queued.Set(int64(w.records.Len()))
		w.mu.Unlock()
		if left > 0 || ctx.Err() != nil {
			left++
			w.metrics.dropped.Inc()
			it.settled()
			continue
		}
		err := w.write(ctx, it)
		it.settled()
		switch {
		case err == nil:
		case w.records.Closing() && (record.Refused(err) || ctx.Err() != nil):
			left++
			w.metrics.dropped.Inc()
		default:
			w.metrics.failed.Inc()
			w.opts.Logger.Warn("an event of the history of a scavenge is given up", logkey.ID, it.run.id, logkey.Type, it.event.Type, logkey.Error, err)
		}
		if it.event.Type == TypeCompleted {
			w.mu.Lock()
			delete(w.live, it.run.id)
			w.mu.Unlock()
		}
	}
	if left > 0 {
		w.opts.Logger.Warn("events of the history of scavenges were not written before the end", logkey.Events, left)
	}
}

// isLive reports whether a run was begun here and its last event is still to come.
func (w *Writer) isLive(id event.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.live[id]
	return ok
}

// Run is the history of one run. Its methods may be called from any goroutine
// and never wait; events are written in the order of the calls. What comes after
// Completed is left out.
type Run struct {
	w        *Writer
	id       event.ID
	stream   string
	endpoint string

	// there was no room for the run: nothing of it is written; set before the run is handed out
	refused   bool
	completed bool // guarded by Writer.mu
	lost      bool // an event was left out already, which was logged; guarded by Writer.mu

	// closed when the first event and the link to it were written, or will not be
	announced chan struct{}
	link      int64 // number of that link, -1: it was not written; valid after announced

	// of its stream and of IndexStream; only the writing goroutine uses them
	journal, index *record.Journal
}

// Begin begins the history of a run.
func (w *Writer) Begin(id event.ID, started Started) *Run {
	r := &Run{
		w: w, id: id, stream: StreamOf(id), endpoint: w.opts.Endpoint(), announced: make(chan struct{}), link: -1,
		journal: w.records.Journal(StreamOf(id)), index: w.records.Journal(IndexStream),
	}
	r.refused = !w.admit(id)
	started.ScavengeID, started.NodeEndpoint = id, r.endpoint
	w.enqueue(r, TypeStarted, started)
	return r
}

// Announced waits until the first event of the run and the link to it were written, and
// returns the link's number in IndexStream; false when ctx ends before, or they will not be.
func (r *Run) Announced(ctx context.Context) (link int64, ok bool) {
	select {
	case <-r.announced:
		return r.link, r.link >= 0
	case <-ctx.Done():
		return 0, false
	}
}

// Chunk says that a chunk file was executed.
func (r *Run) Chunk(c ChunkCompleted) {
	c.ScavengeID, c.NodeEndpoint, c.Error = r.id, r.endpoint, record.Clip(c.Error, maxErrorBytes)
	r.w.enqueue(r, TypeChunksCompleted, c)
}

// Merge says that a group of chunk files was merged, or was not.
func (r *Run) Merge(m MergeCompleted) {
	m.ScavengeID, m.NodeEndpoint, m.Error = r.id, r.endpoint, record.Clip(m.Error, maxErrorBytes)
	r.w.enqueue(r, TypeMergeCompleted, m)
}

// Index says that a table of the index was executed.
func (r *Run) Index(i IndexCompleted) {
	i.ScavengeID, i.NodeEndpoint, i.Error = r.id, r.endpoint, record.Clip(i.Error, maxErrorBytes)
	r.w.enqueue(r, TypeIndexCompleted, i)
}

// Completed says that the run ended. Only the first call counts.
func (r *Run) Completed(c Completed) {
	text := record.Clip(string(c.Error), maxErrorBytes)
	if c.Result == Failed {
		text = failure(text)
	}
	c.ScavengeID, c.NodeEndpoint, c.Error = r.id, r.endpoint, Reason(text)
	r.w.enqueue(r, TypeCompleted, c)
}

// item is an event that waits to be written.
type item struct {
	run   *Run
	event event.Proposed // its id is made once, so that writing it again writes it once
}

// boundary says whether the event is the first or the last of its run. Those are
// linked to, and room is kept for them.
func (it *item) boundary() bool {
	return it.event.Type == TypeStarted || it.event.Type == TypeCompleted
}

// linkIDs is the name space of the ids of links: a link has the same id whatever node
// writes it, so that it is written once.
var linkIDs = uuid.MustParse("5d1c3f0a-6f2b-4f43-9a4e-3f6c0b1d7e92")

// write writes an event of a run, and the link to it.
func (w *Writer) write(ctx context.Context, it *item) error {
	r := it.run
	written, err := w.append(ctx, r.journal, it.event)
	if err != nil || !it.boundary() {
		return err
	}
	link, err := w.link(ctx, r.index, r.stream, written.First)
	if err == nil && it.event.Type == TypeStarted {
		r.link = link
	}
	return err
}

// append appends an event to a stream, whatever its version.
func (w *Writer) append(ctx context.Context, to *record.Journal, e event.Proposed) (event.Written, error) {
	written, err := to.Append(ctx, e)
	if err == nil {
		w.metrics.written.Inc()
	}
	return written, err
}

// link puts a link to an event of a run into IndexStream, and returns its number there.
func (w *Writer) link(ctx context.Context, index *record.Journal, stream string, number int64) (int64, error) {
	data := append(strconv.AppendInt(nil, number, 10), "@"+stream...)
	written, err := w.append(ctx, index, event.Proposed{ID: event.ID(uuid.NewSHA1(linkIDs, data)), Type: event.TypeLink, Data: data})
	return written.First, err
}
