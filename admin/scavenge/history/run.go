package history

import (
	"context"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
)

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
