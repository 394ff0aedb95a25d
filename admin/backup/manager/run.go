package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

var errStopped = errors.New("the backup was stopped")

// errorInterrupted is what clients know as the error of a run whose process ended.
const errorInterrupted = "The node was restarted."

// maxBegun is how many processes begin a run: one that ends the process must not
// be begun for ever.
const maxBegun = 3

// pauses are the pauses before a run begins again that the node could not continue: events are
// being redacted, other clients back the node up, the database is being opened.
var pauses = [...]time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, time.Minute, time.Minute, time.Minute}

// passing reports whether an error is one of the node's moment.
func passing(err error) bool {
	for _, e := range []error{backup.ErrSessionGone, backup.ErrTooManySessions, backup.ErrSuspended, event.ErrNotReady} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// run is a run that has not ended.
type run struct {
	id     string
	stop   context.CancelCauseFunc
	done   chan struct{} // closed when it has ended and let go of everything
	status Status        // guarded by Manager.mu
}

// begin begins a run.
func (m *Manager) begin(s Status) (id string, err error) {
	s.ID, s.Result, s.Started, s.Phase = backup.NewID(m.opts.Now()), InProgress, m.opts.Now().UTC(), backup.PhaseBegin
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return "", event.ErrClosed
	case m.current != nil:
		return "", ErrRunning
	}
	ctx, stop := context.WithCancelCause(m.running)
	r := &run{id: s.ID, stop: stop, done: make(chan struct{}), status: s}
	interrupted := m.left
	m.current, m.left = r, nil
	m.owned.Go(func() {
		defer stop(nil)
		m.work(ctx, r, interrupted)
	})
	return r.id, nil
}

// work does a run from its begin to its end.
func (m *Manager) work(ctx context.Context, r *run, interrupted *Status) {
	begun := r.status // Nothing has changed it yet but for progress, which is not recorded.
	if interrupted != nil {
		m.recordEnd(interrupted)
	}
	logger := m.opts.Logger.With(logkey.Backup, r.id)
	if err := m.writeState(&begun, nil); err != nil {
		// After a restart the run would not begin again. It is better to make the backup anyway.
		logger.Warn("the start of a backup could not be written down, a restart would not resume it", logkey.Error, err)
	}
	logger.Info("backup begins", logkey.To, m.opts.To, "again", begun.Begun > 1)
	m.recordStart(&begun)
	manifest, err := m.create(ctx, r)
	if err == nil {
		err = m.prune(ctx, r)
	}
	cause := context.Cause(ctx)
	if manifest.ID == "" && (errors.Is(cause, event.ErrClosed) || errors.Is(err, event.ErrClosed)) {
		logger.Info("backup ends with the node; the next start begins it again")
		m.finish(r, nil)
		return
	}
	m.mu.Lock()
	s := r.status
	m.mu.Unlock()
	s.Progress, s.Ended = backup.Progress{}, m.opts.Now().UTC()
	switch {
	case manifest.ID != "":
		s.Result = Success
		s.Kind, s.Position, s.Time, s.BytesCopied, s.Verified = manifest.Kind, manifest.Position, manifest.Time, manifest.BytesCopied, manifest.Verified
		s.Bytes = manifest.Bytes()
		logger.Info("backup made", "kind", s.Kind, logkey.Position, s.Position, logkey.Bytes, s.Bytes, "copied", s.BytesCopied, "seconds", s.Seconds(s.Ended), "checked", s.Verified)
		if err != nil {
			s.Error = "The backup was made, but " + err.Error()
			logger.Warn("old backups were not removed", logkey.Error, err)
		}
	case errors.Is(cause, errStopped):
		s.Result = Stopped
		logger.Info("backup stopped")
	default:
		s.Result, s.Error = Failed, err.Error()
		logger.Error("backup failed", logkey.To, m.opts.To, logkey.Error, err)
	}
	if err := m.writeState(nil, &s); err != nil {
		logger.Warn("the result of a backup could not be written down", logkey.Error, err)
	}
	m.recordEnd(&s)
	m.metrics.ended(s)
	m.finish(r, &s)
}

// finish makes way for the next run. It did not end if there is no status.
func (m *Manager) finish(r *run, s *Status) {
	m.mu.Lock()
	m.current = nil
	if s != nil {
		m.last = *s
	}
	m.mu.Unlock()
	close(r.done)
}

// create makes the backup, and begins again when the node could not continue.
func (m *Manager) create(ctx context.Context, r *run) (backup.Manifest, error) {
	for try := 0; ; try++ {
		manifest, err := m.opts.Create(ctx, r.id, func(p backup.Progress) { m.progress(r, p) })
		switch {
		case err == nil:
			return manifest, nil
		case ctx.Err() != nil || !passing(err) || try == len(pauses):
			return backup.Manifest{}, err
		}
		m.opts.Logger.Info("backup begins again soon", logkey.Backup, r.id, "in", pauses[try], logkey.Error, err)
		m.progress(r, backup.Progress{Phase: PhaseWait})
		if err := clock.Sleep(ctx, pauses[try]); err != nil {
			return backup.Manifest{}, err
		}
	}
}

// prune removes what is more than is to be kept.
func (m *Manager) prune(ctx context.Context, r *run) error {
	m.progress(r, backup.Progress{Phase: PhasePrune})
	pruned, err := backup.Prune(ctx, m.opts.Target, m.opts.Keep, 0, m.opts.Now(), false)
	if len(pruned.Removed) > 0 {
		m.opts.Logger.Info("old backups removed", logkey.Removed, pruned.Removed, logkey.Kept, m.opts.Keep)
	}
	if err != nil {
		return fmt.Errorf("remove old backups: %w", err)
	}
	return nil
}

func (m *Manager) progress(r *run, p backup.Progress) {
	m.mu.Lock()
	r.status.Progress = p
	m.mu.Unlock()
}

// Run begins what another process did not end, and then what is due, until ctx
// ends. It is to be called when the node has taken its part in the cluster.
func (m *Manager) Run(ctx context.Context) {
	if !m.configured() {
		return
	}
	m.goOn()
	m.follow(ctx)
}

// goOn begins the run again that the last process did not finish.
func (m *Manager) goOn() {
	m.mu.Lock()
	left := m.left
	m.mu.Unlock()
	if left == nil {
		return
	}
	if _, err := m.begin(Status{Begun: left.Begun + 1}); err != nil {
		m.opts.Logger.Info("the backup that was interrupted is not begun again", logkey.Error, err)
	}
}

// checkPace is how often the clock is looked at, which may be set.
const checkPace = time.Minute

// follow begins a run whenever one is due. All that were due while the node was down, or while
// another ran, are one run.
func (m *Manager) follow(ctx context.Context) {
	if m.opts.Schedule.IsZero() {
		return
	}
	after := m.opts.Now()
	m.mu.Lock()
	if m.last.Started.Before(after) && !m.last.Started.IsZero() {
		after = m.last.Started
	}
	if m.current != nil {
		after = m.current.status.Started
	}
	m.mu.Unlock()
	for {
		now := m.opts.Now()
		due := m.opts.Schedule.Next(after)
		if !due.IsZero() && !due.After(now) {
			after = now
			if _, err := m.Start(); err != nil && !errors.Is(err, ErrRunning) {
				return // The node ends.
			}
			continue
		}
		wait := checkPace
		if !due.IsZero() {
			wait = min(wait, due.Sub(now))
		}
		if clock.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// Names of the history. Clients read it: do not change.
const (
	Stream        = "$backups"
	TypeStarted   = "$backupStarted"
	TypeCompleted = "$backupCompleted"
)

// The payloads as they are stored. Do not change.
type (
	startedData struct {
		BackupID     string `json:"backupId"`
		NodeEndpoint string `json:"nodeEndpoint"`
		To           string `json:"to"`
	}
	completedData struct {
		BackupID     string  `json:"backupId"`
		NodeEndpoint string  `json:"nodeEndpoint"`
		Result       Result  `json:"result"`
		Position     int64   `json:"position"`
		Bytes        int64   `json:"bytes"`
		BytesCopied  int64   `json:"bytesCopied"`
		Seconds      float64 `json:"seconds"`
		Error        *string `json:"error"`
	}
)

// maxWaiting bounds the events that wait for a cluster that takes no writes.
const maxWaiting = 1000

// eventIDs is the name space of ids of events: an event has the same id no matter which process
// writes it, so that it is written once.
var eventIDs = uuid.MustParse("2b0f0c52-8d0f-4c5e-9a53-5d9a6f1a7c11")

// history writes the events, one at a time and in their order. No run waits for it.
type history struct {
	*record.Queue[event.Proposed]
	logger hclog.Logger
}

func newHistory(o *Options) *history {
	h := &history{logger: o.Logger, Queue: record.New[event.Proposed](record.Options{
		Store: o.Records, Logger: o.Logger, What: "the history of backups", MaxAge: o.MaxAge, Timeout: o.WriteTimeout,
	}, maxWaiting)}
	h.Start(h.work)
	return h
}

// add puts an event into the queue.
func (h *history) add(id, typ string, payload any) {
	e := record.Proposed(typ, record.Encode(payload))
	e.ID = event.ID(uuid.NewSHA1(eventIDs, []byte(typ+" "+id)))
	if !h.Put(e) {
		h.logger.Warn("an event of the history of backups is left out: too many wait to be written, or the node ends", logkey.Backup, id, logkey.Type, typ)
	}
}

func (h *history) work(ctx context.Context) {
	journal := h.Journal(Stream)
	for next := h.Next(1); len(next) > 0 && ctx.Err() == nil; next = h.Next(1) {
		if _, err := journal.Append(ctx, next...); err != nil {
			h.logger.Warn("an event of the history of backups is given up", logkey.Type, next[0].Type, "data", string(next[0].Data), logkey.Error, err)
		}
	}
}

func (m *Manager) recordStart(s *Status) {
	if m.history != nil {
		m.history.add(s.ID, TypeStarted, startedData{s.ID, m.opts.Endpoint(), m.opts.To})
	}
}

func (m *Manager) recordEnd(s *Status) {
	if m.history == nil {
		return
	}
	d := completedData{
		BackupID: s.ID, NodeEndpoint: m.opts.Endpoint(), Result: s.Result, Position: s.Position, Bytes: s.Bytes, BytesCopied: s.BytesCopied,
		Seconds: s.Seconds(s.Ended),
	}
	if s.Error != "" {
		d.Error = &s.Error
	}
	m.history.add(s.ID, TypeCompleted, d)
}
