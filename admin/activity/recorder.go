// Package activity records who changed what: an event in the stream $operations for
// every request that asked for a change, written behind the answer. DESIGN.md says what
// may be missing.
package activity

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/time/rate"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/stats"
)

// Options say how operations are recorded. All but Store and Endpoint may be left out.
type Options struct {
	Store        record.Store
	Logger       hclog.Logger
	Endpoint     func() string   // host:port of this node for clients
	WriteTimeout time.Duration   // of one try, as package record says
	Stats        *stats.Registry // may be nil
}

const (
	// maxAge is how long operations are kept, unless an operator changes that.
	maxAge = 90 * 24 * time.Hour
	// maxQueue is how many operations wait to be written, maxBatch how many one append takes.
	maxQueue = 1000
	maxBatch = 100
	// Somebody without a login must not make the database grow: of such requests so many
	// are recorded at once, and then one in each pace.
	anonymousBurst = 20
	anonymousPace  = 10 * time.Second
)

// Recorder records operations. One goroutine writes what waits; while it writes, the
// next batch gathers.
type Recorder struct {
	opts      Options
	metrics   metrics
	queue     *record.Queue[Operation]
	anonymous *rate.Limiter
	leftOut   atomic.Int64 // since the last event that was written
	full      atomic.Bool  // the queue was full, and the log says so
}

// New returns a Recorder. It must be closed.
func New(o Options) *Recorder {
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	r := &Recorder{
		opts: o, metrics: newMetrics(o.Stats), anonymous: rate.NewLimiter(rate.Every(anonymousPace), anonymousBurst),
		queue: record.New[Operation](record.Options{Store: o.Store, Logger: o.Logger, What: Stream, MaxAge: maxAge, Timeout: o.WriteTimeout}, maxQueue),
	}
	r.queue.Start(r.work)
	return r
}

// Note has an operation recorded, or left out and counted. It never waits.
func (r *Recorder) Note(o Operation) {
	if o.Who == "" && !r.anonymous.Allow() {
		r.leaveOut(r.metrics.anonymous, 1)
		return
	}
	if r.queue.Put(o.bounded()) {
		return
	}
	r.leaveOut(r.metrics.dropped, 1)
	if !r.queue.Closing() && r.full.CompareAndSwap(false, true) {
		r.opts.Logger.Warn("requests are left out of "+Stream+": too many wait to be written", logkey.Events, maxQueue)
	}
}

func (r *Recorder) leaveOut(why *stats.Counter, n int) {
	why.Add(uint64(n))
	r.leftOut.Add(int64(n))
}

// Close lets what waits be written for a few seconds, as long as the cluster takes it,
// and gives the rest up. It returns even if the store hangs.
func (r *Recorder) Close() { r.queue.Close() }

// work writes what waits until the Recorder is closed, and then what is left while that succeeds.
func (r *Recorder) work(ctx context.Context) {
	begun, failing := false, false
	for batch := r.queue.Next(maxBatch); len(batch) > 0; batch = r.queue.Next(maxBatch) {
		before := r.leftOut.Swap(0)
		err := r.write(ctx, batch, before, &begun)
		if err == nil {
			r.metrics.written.Add(uint64(len(batch)))
			r.full.Store(false)
			failing = false
			continue
		}
		r.leftOut.Add(before)
		r.leaveOut(r.metrics.failed, len(batch))
		if !failing {
			r.opts.Logger.Warn("requests are not recorded in "+Stream, logkey.Events, len(batch), logkey.Error, err)
		}
		failing = true
		if r.queue.Closing() {
			r.leaveOut(r.metrics.dropped, r.queue.Len())
			return
		}
	}
}

// write appends a batch, and describes the stream before the first. Nothing is written
// to a stream that anybody could read, or that would stay for ever.
func (r *Recorder) write(ctx context.Context, batch []Operation, leftOut int64, begun *bool) error {
	if !*begun {
		if err := r.queue.Begin(ctx, Stream); err != nil {
			return err
		}
		*begun = true
	}
	node := r.opts.Endpoint()
	events := make([]event.Proposed, len(batch))
	for i, o := range batch {
		o.Node = node
		events[i] = record.Proposed(TypeOperation, record.Encode(data{o, leftOut}))
		leftOut = 0
	}
	_, err := r.queue.Append(ctx, Stream, events...)
	return err
}
