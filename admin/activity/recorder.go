// Package activity records who changed what: an event in the stream $operations for
// every request that asked for a change, written after the answer. DESIGN.md says what
// may be missing.
package activity

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
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
	// Refused ones have half of it: they never make changes wait.
	maxQueue   = 1000
	maxRefused = maxQueue / 2
	maxBatch   = 100
	// A caller without a login must not make the database grow: of such requests that were
	// refused so many are recorded at once, and then one in each pace.
	anonymousBurst = 20
	anonymousPace  = 10 * time.Second
	// endTime is how long Close waits for changes that were begun.
	endTime = 3 * time.Second
)

// Recorder records operations. One goroutine writes the waiting ones; while it writes, the next
// batch gathers.
type Recorder struct {
	opts      Options
	metrics   metrics
	queue     *record.Queue[Operation]
	anonymous *rate.Limiter
	leftOut   atomic.Int64 // since the last event that was written
	full      atomic.Bool  // there was no room for a refused request, and the log says so
	failing   bool         // the last write failed, and the log says so; the writing goroutine's

	mu       sync.Mutex // guards the fields below
	inFlight int        // changes that were begun and have not ended
	ended    chan struct{}
	closing  bool
}

// New returns a Recorder. It must be closed.
func New(o Options) *Recorder {
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	r := &Recorder{
		opts: o, metrics: newMetrics(o.Stats), anonymous: rate.NewLimiter(rate.Every(anonymousPace), anonymousBurst), ended: make(chan struct{}),
		queue: record.New[Operation](record.Options{Store: o.Store, Logger: o.Logger, What: Stream, MaxAge: maxAge, Timeout: o.WriteTimeout, KeepMetadata: true}, maxQueue),
	}
	r.queue.Start(r.work)
	return r
}

// Begin announces that something may be changed, and reports whether it may: after Close
// nothing more is recorded. End must follow, after Note.
func (r *Recorder) Begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	r.inFlight++
	return true
}

// End says that a change was noted, or not made.
func (r *Recorder) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight--
	if r.closing && r.inFlight == 0 {
		close(r.ended)
	}
}

// Note records an operation. A change that was made, or may have been made, is always recorded: the
// call waits while the queue is full. A refused request is left out and counted when the queue is
// full, or when it exceeds the bound for requests without a login.
func (r *Recorder) Note(o Operation) {
	if !o.refused() {
		if o = o.bounded(); !r.queue.PutWait(o) {
			r.leaveOut(r.metrics.dropped, o)
		}
		return
	}
	if o.Who == "" && !r.anonymous.Allow() {
		r.leaveOut(r.metrics.anonymous, o)
		return
	}
	if r.queue.Len() < maxRefused && r.queue.Put(o.bounded()) {
		return
	}
	r.leaveOut(r.metrics.dropped, o)
	if !r.queue.Closing() && r.full.CompareAndSwap(false, true) {
		r.opts.Logger.Warn("refused requests are left out of "+Stream+": too many wait to be written", logkey.Events, maxRefused)
	}
}

// refused reports whether a request is known to have changed nothing.
func (o *Operation) refused() bool {
	switch o.Status {
	case http.StatusRequestTimeout: // What became of it is not known.
		return false
	case http.StatusServiceUnavailable:
		return true
	}
	return o.Status >= http.StatusBadRequest && o.Status < http.StatusInternalServerError
}

// leaveOut counts operations that have no event. Those that were done are logged.
func (r *Recorder) leaveOut(why *stats.Counter, operations ...Operation) {
	why.Add(uint64(len(operations)))
	r.leftOut.Add(int64(len(operations)))
	for i := range operations {
		if o := &operations[i]; !o.refused() {
			r.opts.Logger.Warn("a change is not recorded in "+Stream, "who", o.Who, logkey.From, o.From, "method", o.Method, "path", o.Path, "query", o.Query, "status", o.Status)
		}
	}
}

// Close waits a few seconds for changes that were begun, and a few more while waiting operations
// are written, as long as the cluster takes them. It gives the rest up. It returns even if the
// store hangs.
func (r *Recorder) Close() {
	r.mu.Lock()
	if !r.closing {
		if r.closing = true; r.inFlight == 0 {
			close(r.ended)
		}
	}
	r.mu.Unlock()
	late := time.NewTimer(endTime)
	defer late.Stop()
	select {
	case <-r.ended:
	case <-late.C:
	}
	r.queue.Close()
}

// work writes waiting operations until the Recorder is closed, and then the rest as long as writes
// succeed.
func (r *Recorder) work(ctx context.Context) {
	journal := r.queue.Journal(Stream)
	for batch := r.queue.Next(maxBatch); len(batch) > 0; batch = r.queue.Next(maxBatch) {
		if !r.persist(ctx, batch, journal) && r.queue.Closing() {
			for rest := r.queue.Next(maxQueue); len(rest) > 0; rest = r.queue.Next(maxQueue) {
				r.leaveOut(r.metrics.dropped, rest...)
			}
			return
		}
	}
}

// persist writes a batch, however long that takes, and reports whether it did. It gives up a batch
// that can never be written, and one that fails while the Recorder is being closed.
func (r *Recorder) persist(ctx context.Context, batch []Operation, to *record.Journal) bool {
	before := r.leftOut.Swap(0)
	events := r.events(batch, before) // Once, since their ids keep them from being written twice.
	for {
		_, err := to.Append(ctx, events...)
		if err == nil {
			r.metrics.written.Add(uint64(len(batch)))
			r.full.Store(false)
			r.failing = false
			return true
		}
		givesUp := record.Final(err) || ctx.Err() != nil || r.queue.Closing()
		if !r.failing {
			r.opts.Logger.Warn("requests are not recorded in "+Stream, logkey.Events, len(batch), logkey.Error, err)
		}
		r.failing = true
		if givesUp {
			r.leftOut.Add(before)
			r.leaveOut(r.metrics.failed, batch...)
			return false
		}
	}
}

// events returns the events of a batch. The first says how many requests have none.
func (r *Recorder) events(batch []Operation, leftOut int64) []event.Proposed {
	node := r.opts.Endpoint()
	events := make([]event.Proposed, len(batch))
	for i, o := range batch {
		o.Node = cmp.Or(o.Node, node)
		events[i] = record.Proposed(TypeOperation, record.Encode(data{o, leftOut}))
		leftOut = 0
	}
	return events
}

// Names of the stream and of its events. Clients read them: do not change.
const (
	Stream        = "$operations"
	TypeOperation = "$operation"
)

// Operation is a request that asked for a change, and how it was answered. It is the
// data of an event as it is stored: do not change names or order.
type Operation struct {
	Who    string `json:"who"`  // login; empty without credentials, or with wrong ones
	From   string `json:"from"` // address of the client
	Node   string `json:"node"` // host:port of the node that decided; empty: the Recorder's own
	Method string `json:"method"`
	Path   string `json:"path"` // escaped as in the request
	Query  string `json:"query"`
	Status int    `json:"status"`
}

// data is what an event holds.
type data struct {
	Operation
	LeftOut int64 `json:"leftOut,omitempty"` // requests before this one that have no event
}

// maxField bounds the texts that a client chooses.
const maxField = 1024

// bounded returns the operation as it is kept: without secrets, and no text longer than
// maxField.
func (o Operation) bounded() Operation {
	o.Query = masked(o.Query)
	for _, field := range []*string{&o.Who, &o.From, &o.Method, &o.Path, &o.Query} {
		*field = clip(*field)
	}
	return o
}

// clip shortens a text at the border of a character, and says so.
func clip(text string) string {
	if cut := record.Clip(text, maxField); cut != text {
		return cut + "..."
	}
	return strings.Clone(text) // The rest of the request must not stay in memory.
}

// secrets are parts of names of parameters whose values must not be recorded. No request of ours
// has such a parameter, but a client may add one.
var secrets = []string{"pass", "pwd", "secret", "token", "auth", "credential", "signature", "key"}

// mask replaces a secret value.
const mask = "***"

// masked returns a query without the values of parameters that may be secrets.
func masked(query string) string {
	if query == "" {
		return ""
	}
	parameters := strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' })
	for i, p := range parameters {
		name, _, valued := strings.Cut(p, "=")
		if valued && isSecret(name) {
			parameters[i] = name + "=" + mask
		}
	}
	return strings.Join(parameters, "&")
}

func isSecret(name string) bool {
	plain, err := url.QueryUnescape(name)
	if err != nil {
		return true // It is not known what it is.
	}
	plain = strings.ToLower(plain)
	for _, s := range secrets {
		if strings.Contains(plain, s) {
			return true
		}
	}
	return false
}
