package history

import (
	"cmp"
	"context"
	"sync"
	"time"

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
