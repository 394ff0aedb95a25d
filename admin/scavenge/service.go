// Package scavenge frees space on one node, and physically removes what deletion
// and metadata hide, while the node serves.
//
// A run works for a scavenge point: an event in the stream $scavengePoints that the leader has
// written and every node has applied, and which completed the chunk it is in. Its position says
// which records are concerned, its time what is too old. So what a run removes follows from the log
// alone, and two nodes that scavenge for the same point remove the same events, whenever they do. A
// database next to the index (package state) keeps what is known during a run and between runs. It
// describes the files of this node and nothing else. A run that was stopped, or ended with the
// process, is resumed by the next one.
//
// DESIGN.md has the phases, the rules of what is removed, and what a crash leaves.
package scavenge

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/stats"
)

// Options of a Service. Log, Dir, Write and History are required.
type Options struct {
	// Log returns the node's event log, event.ErrNotReady as long as it is not open.
	Log func() (*eventlog.Log, error)
	// FS and Dir say where the scavenge database is kept: `<index>/scavenging`. FS defaults to the
	// real one.
	FS  vfs.FS
	Dir string
	// InMemory: nothing of this database is on disk, and it is not scavenged.
	InMemory bool

	// Write does a write of the node's own, wherever the leader is, and tries again
	// until ctx ends while there is none.
	Write func(ctx context.Context, w *event.Write) (event.Written, error)
	// Erase removes entries up to a position from the Raft log of this node. Default: nothing to
	// erase.
	Erase func(ctx context.Context, position int64) error
	// PendingDir is the folder of a file that says what the next process still has to erase. It is
	// not Dir, which is removed when chunk files are replaced. Default: the parent of Dir.
	PendingDir string

	History *history.Writer
	Lock    *chunklock.Lock // shared with other jobs that switch chunk files; default: its own

	DisableMerging bool
	// bytes that a run leaves free on the volume: it fails before; default: all may be used
	DiskReserve        int64
	DatabasePageSize   int   // bytes; 0: the default of package state
	DatabaseCacheBytes int64 // the same

	Now func() time.Time // the clock by which ages are judged, default time.Now
	// AwaitNow returns when Now can be trusted, or when that takes too long. Default: Now is always
	// trusted.
	AwaitNow func(context.Context) error

	Logger hclog.Logger
	Stats  *stats.Registry
}

// EnsureDefaults sets the fields that are zero.
func (o *Options) EnsureDefaults() {
	o.FS = cmp.Or(o.FS, vfs.OS)
	if o.Erase == nil {
		o.Erase = func(context.Context, int64) error { return nil }
	}
	if o.AwaitNow == nil {
		o.AwaitNow = func(ctx context.Context) error { return ctx.Err() }
	}
	o.PendingDir = cmp.Or(o.PendingDir, filepath.Dir(o.Dir))
	o.Lock = cmp.Or(o.Lock, new(chunklock.Lock))
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
}

// Service scavenges the log of one node, one run at a time.
type Service struct {
	opts    Options
	logger  hclog.Logger
	metrics metrics
	ctx     context.Context // of everything; ends with Close
	cancel  context.CancelFunc
	owned   sync.WaitGroup
	eraser  eraser

	estimating sync.Mutex // tried, never waited for: held by the one estimate that is made

	mu     sync.Mutex // guards the fields below; taken before those of a run and of the history
	run    *run       // that was started last, nil: none
	closed bool
}

// New returns a service. It has no run yet, but continues to erase events that an earlier process
// did not erase.
func New(o Options) *Service {
	o.EnsureDefaults()
	s := &Service{opts: o, logger: o.Logger}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.metrics = newMetrics(o.Stats, s.phase)
	s.eraser.erase, s.eraser.logger, s.eraser.metric = o.Erase, s.logger, s.metrics.erasing
	s.eraser.fsys, s.eraser.file = o.FS, filepath.Join(o.PendingDir, eraseFile)
	if !o.InMemory {
		s.eraser.resume(s.ctx, &s.owned)
	}
	return s
}

// Start begins a run and returns its id at once. Last reports later failures.
func (s *Service) Start(r Request) (event.ID, error) {
	if s.opts.InMemory {
		return event.ID{}, ErrInMemory
	}
	log, err := s.opts.Log()
	if err != nil {
		return event.ID{}, err
	}
	if r.Threads > MaxThreads {
		s.logger.Warn("a scavenge uses fewer threads than it was asked to", "asked", r.Threads, "threads", MaxThreads)
		r.Threads = MaxThreads
	}
	r.Threads, r.ThrottlePercent = max(r.Threads, 1), cmp.Or(r.ThrottlePercent, 100)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return event.ID{}, event.ErrClosed
	case s.run.running():
		return event.ID{}, ErrRunning
	}
	hold, err := s.opts.Lock.TryLock()
	if err != nil {
		return event.ID{}, err
	}
	ctx, cancel := context.WithCancelCause(s.ctx)
	run := newRun(s, log, event.ID(uuid.New()), r)
	run.stop = cancel
	s.run = run
	s.owned.Go(func() {
		defer cancel(nil)
		err := run.do(ctx)
		isStop := ctx.Err() != nil && stopped(err)
		if cause := context.Cause(ctx); isStop && !stopped(cause) {
			isStop, err = false, cause
		}
		s.finish(run, err, isStop, hold)
	})
	return run.id, nil
}

// Announced returns when clients can read on this node that the run which was started last has
// begun, in its stream and among all runs, or when the context ends. The run continues meanwhile.
func (s *Service) Announced(ctx context.Context, id event.ID) {
	run := s.newest()
	if run == nil || run.id != id {
		return
	}
	link, ok := run.history.Announced(ctx)
	if !ok {
		return
	}
	// The leader has it. If it cannot be read here, the reader sees why.
	for stream, number := range map[string]int64{history.StreamOf(id): 0, history.IndexStream: link} {
		if err := run.log.Reads.WaitStream(ctx, stream, number-1); err != nil {
			s.logger.Debug("the beginning of a scavenge cannot be read here yet", logkey.ID, id.String(), logkey.Error, err)
		}
	}
}

// finish ends a run and releases its lock. A caller that sees the end can start the next run.
func (s *Service) finish(r *run, err error, stopped bool, hold *chunklock.Hold) {
	hold.Unlock()
	s.mu.Lock() // No other run begins before the history has the end of this one.
	status := r.conclude(err, stopped)
	s.mu.Unlock()
	r.tell(status, err)
	close(r.done)
}

// newest returns the run that was started last, ended or not; nil when there was none.
func (s *Service) newest() *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// Stop ends a run and returns its id when the run has let go of everything. The
// zero id means whichever runs.
func (s *Service) Stop(ctx context.Context, id event.ID) (event.ID, error) {
	run := s.newest()
	if !run.running() || !id.IsZero() && id != run.id {
		return event.ID{}, ErrNoSuchRun
	}
	run.stop(nil)
	select {
	case <-run.done:
		return run.id, nil
	case <-ctx.Done():
		return event.ID{}, ctx.Err()
	}
}

// Interrupt makes the current run end as failed for a reason, and waits for it. The next start
// resumes it, as far as its database is still valid.
func (s *Service) Interrupt(reason error) {
	if run := s.newest(); run.running() {
		run.stop(reason)
		<-run.done
	}
}

// Wait blocks until a run has ended, and says how. A run that this process does
// not know, or that another one followed, is ErrNoSuchRun.
func (s *Service) Wait(ctx context.Context, id event.ID) (Status, error) {
	run := s.newest()
	if run == nil || run.id != id {
		return Status{}, ErrNoSuchRun
	}
	select {
	case <-run.done:
		return run.status(), nil
	case <-ctx.Done():
		return Status{}, ctx.Err()
	}
}

// Current returns the progress of the current run; the id is zero when there is none.
func (s *Service) Current() Status {
	if now := s.Last(); now.Result == ResultInProgress {
		return now
	}
	return noRun
}

// Last describes the last run that this process started, ended or not.
func (s *Service) Last() Status {
	if run := s.newest(); run != nil {
		return run.status()
	}
	return noRun
}

var noRun = Status{Result: ResultUnknown, Phase: PhaseIdle}

// Running reports whether this process works on a run.
func (s *Service) Running(id event.ID) bool {
	run := s.newest()
	return run.running() && run.id == id
}

func (s *Service) phase() Phase { return s.Current().Phase }

// Close stops the current run and waits for it. It is idempotent. The next start resumes the run.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.owned.Wait()
}

// stopped reports whether an error says that a run was stopped.
func stopped(err error) bool { return errors.Is(err, context.Canceled) }
