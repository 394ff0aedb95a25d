package redact

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
)

// Options of a Service. Those without a default are required.
type Options struct {
	Log      func() (*eventlog.Log, error) // event.ErrNotReady as long as it is not open
	FS       vfs.FS
	Dir      string // the data folder
	InMemory bool
	Ledger   *Ledger
	Lock     *chunklock.Lock // shared with other jobs that switch chunk files

	// EndBackups ends backup sessions, which hold files of the database, and lets none begin until
	// resume is called.
	EndBackups func() (resume func())
	// Forget drops events that are kept in memory to be handed out later.
	Forget func()
	// Erase removes entries up to a position from the Raft log of this node.
	Erase    func(ctx context.Context, position int64) error
	Records  record.Store  // the database
	Endpoint func() string // of this node for clients, for the record

	DiskReserve int64            // bytes that stay free on the volume
	Now         func() time.Time // default time.Now
	Logger      hclog.Logger     // default: none
}

// EnsureDefaults sets the fields that are zero.
func (o *Options) EnsureDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
}

// Times of a redaction.
const (
	erasePatience = 45 * time.Second // for the Raft log
	closePatience = 30 * time.Second // for readers of replaced files
	// how long the answer waits for the record in the database
	recordPatience = 10 * time.Second
	retryPace      = 10 * time.Second
)

// Service redacts events of one node, one request at a time.
type Service struct {
	opts   Options
	ctx    context.Context // of all work that must continue when its caller no longer waits
	cancel context.CancelFunc
	owned  sync.WaitGroup

	turn     chan struct{} // holds one token: its holder works on a redaction
	mu       sync.Mutex    // guards the fields below
	retrying bool
	closed   bool
}

// New returns a service. The caller calls Resume and Close.
func New(o Options) *Service {
	o.EnsureDefaults()
	s := &Service{opts: o, turn: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.turn <- struct{}{}
	return s
}

// Close ends the work in the background. The next process finishes it.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.owned.Wait()
}

// take waits for the turn to work on a redaction.
func (s *Service) take(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return event.ErrClosed
	}
}

func (s *Service) give() { s.turn <- struct{}{} }

// log returns the node's log.
func (s *Service) log() (*eventlog.Log, error) {
	if s.opts.InMemory {
		return nil, ErrInMemory
	}
	return s.opts.Log()
}

// Positions says where an event lies in the files of this node. It sees what metadata and deletion
// hide.
func (s *Service) Positions(stream string, number int64) ([]Position, error) {
	l, err := s.log()
	if err != nil {
		return nil, err
	}
	return l.Chunks.EventPositions(stream, number)
}

// Redact blanks events, all of them or none. Once the work has begun it continues when
// ctx ends. A Refused says which events cannot be redacted, ErrLocked says that another job is
// switching chunk files, and an Unfinished says what is still to be done.
func (s *Service) Redact(ctx context.Context, r Request) ([]Outcome, error) {
	switch {
	case len(r.Events) == 0:
		return nil, ErrNoEvents
	case len(r.Events) > MaxEvents:
		return nil, ErrTooMany
	}
	l, err := s.log()
	if err != nil {
		return nil, err
	}
	if err := s.take(ctx); err != nil {
		return nil, err
	}
	defer s.give()
	if err := s.finishPending(l); err != nil {
		return nil, err
	}
	hold, err := s.opts.Lock.TryLock()
	if err != nil {
		return nil, ErrLocked
	}
	defer hold.Unlock()
	found, blank, outcomes, err := judge(l, &r)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		return outcomes, nil
	}
	// What another node has blanked came in a file of it, and must not come back in the next one.
	was := pending{Time: s.opts.Now().UTC(), Events: blank, Metadata: r.Metadata}
	if err := s.opts.Ledger.add(was.entries()); err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return outcomes, nil
	}
	if err := s.checkSpace(l, outcomes); err != nil {
		return nil, err
	}
	work := s.newPending(r.User, r.Reason)
	work.Events, work.Metadata = found, r.Metadata
	defer s.opts.EndBackups()()
	if err := s.begin(work); err != nil {
		if e := s.settle(); e != nil {
			return nil, &Unfinished{errors.Join(err, e)}
		}
		return nil, err
	}
	for i := range outcomes {
		if outcomes[i].Status == StatusWould {
			outcomes[i].Status = StatusRedacted
		}
	}
	if err := s.complete(l, work, true); err != nil {
		s.retry()
		return nil, &Unfinished{err}
	}
	return outcomes, nil
}

// judge finds all events. Those that are not redacted yet are returned by rising position, the
// others, and what is said of each in a dry run.
func judge(l *eventlog.Log, r *Request) (found, already []pendingEvent, outcomes []Outcome, err error) {
	var refused Refused
	refuse := func(e Event, why string) { refused.Events = append(refused.Events, clip(e.String())+": "+why) }
	seen := make(map[Event]bool, len(r.Events))
	for _, e := range r.Events {
		if seen[e] {
			continue
		}
		seen[e] = true
		places, err := l.Chunks.EventPositions(e.Stream, e.Number)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("find %s: %w", clip(e.String()), err)
		}
		if len(places) == 0 {
			refuse(e, "there is no such event")
		}
		for _, p := range places {
			why := interpreted(e.Stream, p.Type)
			switch {
			case why != "":
				refuse(e, why)
				continue
			case !p.Complete:
				refuse(e, "its chunk is still being written; a scavenge completes it")
				continue
			}
			o := Outcome{Event: e.String(), Position: p.Position, Chunk: p.File, Status: StatusAlready}
			at := pendingEvent{Stream: e.Stream, Number: e.Number, Position: p.Position, EventID: p.ID}
			if isWhole(p, r.Metadata) {
				o.Status = StatusWould
				found = append(found, at)
			} else {
				already = append(already, at)
			}
			outcomes = append(outcomes, o)
		}
	}
	if len(refused.Events) > 0 {
		return nil, nil, nil, &refused
	}
	slices.SortFunc(found, func(a, b pendingEvent) int { return cmp.Compare(a.Position, b.Position) })
	return found, already, outcomes, nil
}

// checkSpace refuses a redaction that would run out of space: the copy of the largest chunk must
// fit.
func (s *Service) checkSpace(l *eventlog.Log, outcomes []Outcome) error {
	chunks, err := l.Chunks.List()
	if err != nil {
		return err
	}
	need := int64(0)
	for _, c := range chunks {
		for _, o := range outcomes {
			if o.Chunk == c.File && o.Status == StatusWould {
				// The position map takes a fifth at most.
				need = max(need, c.FileBytes+c.DataBytes/5)
			}
		}
	}
	free, err := s.opts.FS.Free(s.opts.Dir)
	if err != nil {
		return err
	}
	if free-need < s.opts.DiskReserve {
		return fmt.Errorf("%w: %d bytes free, the copy of a chunk takes up to %d, and %d are kept in reserve", event.ErrDiskFull, free, need, s.opts.DiskReserve)
	}
	return nil
}

// Resume finishes a redaction that an earlier process began. The files are done before it returns,
// so that no client reads data that was to be blanked. Not so if one is damaged: the file that is
// to replace it has none of the data, and only a node that runs gets it. The rest happens in the
// background, where a lost ledger is rebuilt too.
func (s *Service) Resume() error {
	if s.opts.InMemory {
		return nil
	}
	l, err := s.log()
	if err != nil {
		return err
	}
	work, err := s.pending()
	if err != nil {
		return err
	}
	if work != nil {
		s.opts.Logger.Info("finishing a redaction that an earlier process began", logkey.Events, len(work.Events))
		isTime := !work.Metadata
		if !isTime {
			if isTime, err = l.Reads.HasWithdrawn(work.labelled()); err != nil {
				s.opts.Logger.Warn("some records of earlier redactions in the log cannot be read", logkey.Error, err)
			}
		}
		if isTime {
			_, err := s.rewrite(l, work)
			switch {
			case err == nil:
			case event.IsCorruption(err):
				s.opts.Logger.Warn("a redaction cannot be finished before a damaged chunk is replaced", logkey.Error, err)
			default:
				return fmt.Errorf("finish the redaction that %s names: %w", filepath.Join(s.opts.Dir, pendingFile), err)
			}
		}
		s.retry()
	}
	if s.opts.Ledger.Lost() {
		if err := s.recall(l); err != nil { // Before anything can come from other nodes.
			s.opts.Logger.Warn("some records of earlier redactions in the log cannot be read", logkey.Error, err)
		}
		s.owned.Go(func() {
			if err := s.rebuild(l); err != nil && s.ctx.Err() == nil && !errors.Is(err, event.ErrClosed) {
				s.opts.Logger.Warn("the list of redactions could not be rebuilt; the next start tries again", logkey.Error, err)
			}
		})
	}
	return nil
}

// recall adds the redactions that the log records to the ledger. With the list lost it does not
// matter which node made them: it is better to blank an event in a file from another node than to
// bring its data back. Records that the stream's metadata hide are found too.
func (s *Service) recall(l *eventlog.Log) error {
	info, err := l.Reads.StreamInfo(Stream)
	if errors.Is(err, event.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var found []entry
	for n := range info.Last + 1 {
		places, e := l.Chunks.EventPositions(Stream, n)
		for _, p := range places {
			e = errors.Join(e, l.Chunks.Scan(s.ctx, p.Position, p.Position+1, func(r *eventlog.Stored) error {
				var was recorded
				if string(r.Type) != typeRedacted || json.Unmarshal(r.Data, &was) != nil {
					return nil
				}
				work := pending{Time: was.Time, Events: was.Events, Metadata: was.Metadata}
				found = append(found, work.entries()...)
				return nil
			}))
		}
		if err = errors.Join(err, e); s.ctx.Err() != nil {
			break
		}
	}
	s.opts.Ledger.know(found)
	return err
}

// rebuild makes the ledger out of the flags in the chunk files and what the log records. A file
// that cannot be read does not keep the others from telling, but the list counts as lost then.
func (s *Service) rebuild(l *eventlog.Log) error {
	chunks, err := l.Chunks.List()
	if err != nil {
		return err
	}
	now := s.opts.Now().UTC()
	var found []entry
	for _, c := range chunks {
		if !c.Rewritten {
			continue
		}
		err = errors.Join(err, s.scan(l, c.Start, c.End, func(r *eventlog.Stored) {
			e := entry{Position: r.Position, Stream: chunkfile.HashStream(string(r.Stream)), Number: r.Number, Time: now}
			e.Metadata = len(r.Metadata) > 0 && r.IsBare()
			found = append(found, e)
		}))
		if s.ctx.Err() != nil {
			return err
		}
	}
	if err = errors.Join(err, s.recall(l)); err != nil {
		s.opts.Ledger.know(found)
		return err
	}
	if len(found) > 0 {
		s.opts.Logger.Info("the list of redactions was rebuilt from the log", logkey.Events, len(found))
	}
	return s.opts.Ledger.add(found)
}

// scan calls f for the events between two positions whose data are blanked.
func (s *Service) scan(l *eventlog.Log, from, to int64, f func(*eventlog.Stored)) error {
	y := l.Chunks.Yielder()
	n := 0
	return l.Chunks.Scan(s.ctx, from, to, func(r *eventlog.Stored) error {
		if n++; n%256 == 0 {
			y.GiveWay()
		}
		if r.Flags&event.FlagRedacted != 0 {
			f(r)
		}
		return nil
	})
}
