package run

import (
	"errors"
	"sync"
	"time"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// Texts of a run's status. Texts are part of the contract: do not change.
const (
	statusInitial         = "Initial"
	statusLoading         = "LoadStateRequested"
	statusLoaded          = "StateLoaded"
	statusSubscribed      = "Subscribed"
	statusRunning         = "Running"
	statusStopping        = "Stopping"
	statusStopped         = "Stopped"
	statusFaultedStopping = "FaultedStopping"
	statusFaulted         = "Faulted"
	statusCompleting      = "CompletingPhase"
	statusPhaseCompleted  = "PhaseCompleted"

	pausedSuffix  = "/Paused"
	resultsSuffix = "/Writing results"
)

// Statistics describe a run. They may lag by a quarter of a second.
type Statistics struct {
	// Status is the runner's part of the status: "Running/Paused",
	// "Stopped/Writing results". Ending is how it ended.
	Status string
	Ending Ending
	Reason string // why it is faulted, or which event it skipped; empty: neither

	// Position was processed last, Checkpoint is that of the last checkpoint; nil: there is none.
	Position, Checkpoint *position.Position
	CheckpointStatus     string  // "", "Requested", "Writing (1)"
	Progress             float64 // -1 before anything was read, else percent
	// events, or bytes of the log, that are not read yet, as far as known
	Behind int64

	// Settled says that all was handled that lay in the log when the run began, so that what runs
	// before it emitted is not ahead of it. Once the run has ended it says that nothing was emitted
	// for events after Checkpoint.
	Settled bool

	Processed        int64         // events, since the run began
	Emitted          int64         // events
	ProcessingTime   time.Duration // in the handler
	PartitionsCached int           // the root included
	StateBytes       int64         // of the states in memory
	Buffered         int           // events read and waiting
	ReadsInProgress  int
	WritesInProgress int
	// emitted events that wait, of those before the checkpoint that is being written
	PendingBefore int
	PendingAfter  int // and of those after it
}

// board is where a run shows its statistics.
type board struct {
	mu              sync.Mutex // held for a moment only
	statistics      Statistics
	status          string
	paused, results bool
	out             writer // nil: none
	passed          string // what was found in an output stream and left behind
	changed         func() // reports that the status did
}

// Statistics describes the run. It does not wait for the handler.
func (r *Run) Statistics() Statistics {
	b := &r.board
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.statistics
	f.Status = b.status
	if b.paused {
		f.Status += pausedSuffix
	}
	if b.results {
		f.Status += resultsSuffix
	}
	if b.out == nil {
		return f
	}
	f.Reason = b.passed
	f.WritesInProgress += b.out.Writing()
	if f.CheckpointStatus == checkpointRequested {
		f.PendingBefore = b.out.Pending()
	} else {
		f.PendingAfter = b.out.Pending()
	}
	return f
}

// publish renews the statistics. The caller holds the lock.
func (r *Run) publish() {
	r.opts.Done(r.handled)
	b := &r.board
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &b.statistics
	f.Settled = r.isCaughtUp()
	f.Processed, f.Emitted, f.ProcessingTime = r.processed, r.emitted, r.spent.total
	if r.cache != nil {
		f.PartitionsCached, f.StateBytes = len(r.cache.entries), r.cache.bytes+int64(len(r.shared))
	}
	if r.reader != nil {
		f.Progress, f.Behind, f.Buffered = r.reader.Progress(), r.reader.Unread(), r.reader.Buffered()
	}
	if f.Position == nil && !r.at.IsZero() || f.Position != nil && !f.Position.Equal(r.at) {
		at := r.at
		f.Position = &at
	}
}

// show sets the status of the run.
func (b *board) show(status string) {
	b.update(func() { b.status = status })
	b.changed()
}

func (b *board) update(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *board) pause(on bool) {
	b.update(func() { b.paused = on })
	b.changed()
}

// reading says whether events are being read, rather than waited for.
func (b *board) reading(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.statistics.ReadsInProgress = 0
	if on && b.statistics.Progress < 100 {
		b.statistics.ReadsInProgress = 1
	}
}

func (b *board) checkpoint(status string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.statistics.CheckpointStatus = status
	b.statistics.WritesInProgress = 0
	if status == checkpointWriting {
		b.statistics.WritesInProgress = 1
	}
}

func (b *board) end(e Ending, status, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &b.statistics
	f.Ending, f.Reason, f.CheckpointStatus = e, reason, ""
	f.Buffered, f.ReadsInProgress, f.WritesInProgress = 0, 0, 0
	b.status, b.paused, b.out = status, false, nil
}

// eventFault is a fault of an event's handler, with the text that tells all of it.
type eventFault struct {
	text  string
	fault *handler.Fault
}

func (e *eventFault) Error() string { return e.text }
func (e *eventFault) Unwrap() error { return e.fault }

// reasonOf is why a run is faulted, for people.
func reasonOf(err error) string {
	var event *eventFault
	var fault *handler.Fault
	switch {
	case errors.As(err, &event):
		return event.text
	case errors.As(err, &fault):
		return fault.Error()
	}
	return err.Error()
}
