package redact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// pending is a redaction that was begun: what the next process needs to finish it.
// Its file is there from before the ledger is written until all is done.
type pending struct {
	ID     event.ID       `json:"id"` // of the event that records it
	Time   time.Time      `json:"time"`
	User   string         `json:"user"`
	Reason string         `json:"reason"`
	Events []pendingEvent `json:"events"`

	Metadata bool `json:"metadata,omitempty"` // goes as well
}

type pendingEvent struct {
	Stream   string   `json:"stream"`
	Number   int64    `json:"number"`
	Position int64    `json:"position"`
	EventID  event.ID `json:"eventId"`
}

func (s *Service) newPending(user, reason string) *pending {
	return &pending{ID: event.ID(uuid.New()), Time: s.opts.Now().UTC(), User: user, Reason: reason}
}

func (s *Service) pendingPath() string { return filepath.Join(s.opts.Dir, pendingFile) }

// pending reads the redaction that is not finished; nil if there is none.
func (s *Service) pending() (*pending, error) {
	text, err := vfs.ReadFile(s.opts.FS, s.pendingPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var p pending
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("read the redaction that is not finished, %s: %w", s.pendingPath(), err)
	}
	return &p, nil
}

// begin makes sure that the redaction will be made. It writes the note of the work first: the
// ledger alone does not say that files still hold the data.
func (s *Service) begin(p *pending) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := vfs.WriteFileAtomic(s.opts.FS, s.pendingPath(), text); err != nil {
		return fmt.Errorf("note what is to be redacted: %w", err)
	}
	if p.Metadata {
		return nil // No metadata is blanked in any file before the log says so.
	}
	return s.opts.Ledger.add(p.entries())
}

func (p *pending) entries() (all []entry) {
	for _, e := range p.Events {
		all = append(all, entry{Position: e.Position, Stream: chunkfile.HashStream(e.Stream), Number: e.Number, Time: p.Time, Metadata: p.Metadata})
	}
	return all
}

// labelled are the events as the log knows those that are no longer found by their metadata.
func (p *pending) labelled() (all []label.Withdrawn) {
	for _, e := range p.Events {
		all = append(all, label.Withdrawn{Position: e.Position, ID: e.EventID})
	}
	return all
}

// withdraw has the log say that the metadata of the events is redacted, and waits until it says so
// here: the leader decides by what they say, so no node may change that by itself.
func (s *Service) withdraw(l *eventlog.Log, p *pending) error {
	ctx, cancel := context.WithTimeout(s.ctx, recordPatience)
	defer cancel()
	if err := s.record(ctx, p); err != nil {
		return fmt.Errorf("metadata are redacted when the database has recorded it: %w", err)
	}
	if err := l.Reads.WaitWithdrawn(ctx, p.labelled()); err != nil {
		return fmt.Errorf("wait for the record of the redaction: %w", err)
	}
	return nil
}

// dropPostings removes what the events were posted for by their metadata.
func (s *Service) dropPostings(l *eventlog.Log, p *pending) error {
	bare := map[int64]bool{}
	for _, e := range p.Events {
		bare[e.Position] = true
	}
	return l.Postings().Scavenge(s.ctx, index.ScavengeOptions{Keep: func(e index.Entry) (bool, error) {
		if !bare[e.Position] {
			return true, nil
		}
		return l.Chunks.Backs(e)
	}})
}

// finishPending finishes an earlier redaction.
func (s *Service) finishPending(l *eventlog.Log) error {
	p, err := s.pending()
	if err != nil || p == nil {
		return err
	}
	if err := s.complete(l, p, false); err != nil {
		return fmt.Errorf("an earlier redaction has to be finished first: %w", err)
	}
	return nil
}

// isWhole reports whether something is left to be blanked of an event.
func isWhole(p eventlog.EventPosition, metadata bool) bool {
	return !p.Redacted || metadata && !p.IsBare
}

// rewrite redacts in one copy of each chunk file all its events. It returns the replaced files. The
// caller holds the chunk lock, or no one else can take it.
func (s *Service) rewrite(l *eventlog.Log, p *pending) (replaced []eventlog.Rewritten, err error) {
	// An earlier process may have ended before the ledger was written.
	if err := s.opts.Ledger.add(p.entries()); err != nil {
		return nil, err
	}
	left := p.Events
	for len(left) > 0 {
		chunks, err := l.Chunks.List()
		if err != nil {
			return replaced, err
		}
		i := slices.IndexFunc(chunks, func(c eventlog.ChunkInfo) bool {
			return c.Complete && left[0].Position >= c.Start && left[0].Position < c.End
		})
		if i < 0 {
			left = left[1:] // The log was cut before it.
			continue
		}
		c := chunks[i]
		n := 0
		var positions []int64
		for n < len(left) && left[n].Position < c.End {
			e := left[n]
			n++
			places, err := l.Chunks.EventPositions(e.Stream, e.Number)
			if err != nil {
				return replaced, err
			}
			if slices.ContainsFunc(places, func(at eventlog.EventPosition) bool { return at.Position == e.Position && isWhole(at, p.Metadata) }) {
				positions = append(positions, e.Position)
			}
		}
		if len(positions) > 0 {
			r := eventlog.Rewrite{First: c.First, Last: c.Last, Redact: positions, Reserve: s.opts.DiskReserve}
			if p.Metadata {
				r.RedactMetadata = positions
			}
			done, err := l.Chunks.Rewrite(s.ctx, r)
			if errors.Is(err, event.ErrChunkReplaced) {
				continue // By a file of another node: look again.
			}
			if err != nil {
				return replaced, err
			}
			replaced = append(replaced, done)
		}
		left = left[n:]
	}
	return replaced, nil
}

// complete does all that is left to do; each step may have been done before.
func (s *Service) complete(l *eventlog.Log, p *pending, locked bool) error {
	if !locked {
		hold, err := s.opts.Lock.TryLock()
		if err != nil {
			return ErrLocked
		}
		defer hold.Unlock()
	}
	if p.Metadata {
		if err := s.withdraw(l, p); err != nil {
			return err
		}
	}
	replaced, err := s.rewrite(l, p)
	if err != nil {
		return err
	}
	if p.Metadata {
		if err := s.dropPostings(l, p); err != nil {
			return err
		}
	}
	s.opts.Forget()
	ctx, cancel := context.WithTimeout(s.ctx, erasePatience)
	defer cancel()
	// Past the last record, so that its entry is among those that go.
	if err := s.opts.Erase(ctx, p.Events[len(p.Events)-1].Position+1); err != nil {
		return fmt.Errorf("the Raft log may still hold the data: %w", err)
	}
	ctx, cancel = context.WithTimeout(s.ctx, closePatience)
	defer cancel()
	for i := range replaced {
		if err := replaced[i].Closed(ctx); err != nil {
			return err
		}
	}
	s.opts.Logger.Info("events redacted", "user", p.User, logkey.Reason, p.Reason, logkey.Events, len(p.Events), "metadata", p.Metadata, "named", p.named())
	if p.Metadata {
		return s.settle()
	}
	ctx, cancel = context.WithTimeout(s.ctx, recordPatience)
	defer cancel()
	if err := s.record(ctx, p); err != nil {
		s.retry() // The bytes are gone: the caller need not wait for a leader.
		s.opts.Logger.Warn("the record of a redaction could not be written yet, the node tries again", logkey.Error, err)
		return nil
	}
	return s.settle()
}

// named names every event, as the record does, in one text.
func (p *pending) named() string {
	var text strings.Builder
	for i, e := range p.Events {
		if i > 0 {
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "%s (position %d, id %s)", Event{e.Stream, e.Number}, e.Position, e.EventID)
	}
	return text.String()
}

// settle removes the note of the work.
func (s *Service) settle() error {
	if err := s.opts.FS.Remove(s.pendingPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the note of a finished redaction: %w", err)
	}
	return s.opts.FS.SyncDir(s.opts.Dir)
}

// retry finishes in the background what could not be finished at once.
func (s *Service) retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retrying || s.closed {
		return
	}
	s.retrying = true
	s.owned.Go(func() {
		for err := s.tryAgain(); err != nil; err = s.tryAgain() {
			if s.ctx.Err() == nil {
				s.opts.Logger.Debug("a redaction is not finished yet", logkey.Error, err)
			}
			if clock.Sleep(s.ctx, retryPace) != nil {
				return
			}
		}
		s.mu.Lock()
		s.retrying = false
		s.mu.Unlock()
	})
}

// tryAgain finishes the pending redaction, if none is running.
func (s *Service) tryAgain() error {
	if err := s.take(s.ctx); err != nil {
		return err
	}
	defer s.give()
	p, err := s.pending()
	if err != nil || p == nil {
		return err
	}
	l, err := s.log()
	if err != nil {
		return err
	}
	if err := s.complete(l, p, false); err != nil {
		return err
	}
	if p, err = s.pending(); err == nil && p != nil {
		err = errors.New("its record is not written")
	}
	return err
}

// Names of the record in the database. They are part of the wire contract: do not change.
const (
	Stream       = event.RedactionsStream
	typeRedacted = event.TypeRedacted

	// recordMetadata: readable by operators, writable by admins alone.
	recordMetadata = `{` + record.ACL + `}`
)

// recorded is the data of the event that records a redaction. Never any data of events.
type recorded struct {
	NodeEndpoint string         `json:"nodeEndpoint"`
	User         string         `json:"user"`
	Reason       string         `json:"reason"`
	Events       []pendingEvent `json:"events"`
	Time         time.Time      `json:"time"`
	Metadata     bool           `json:"metadata,omitempty"` // redacted as well: label.Withdrawn
}

// record writes the record. Its id makes sure that it is written only once, however often it is
// tried.
func (s *Service) record(ctx context.Context, p *pending) error {
	data, err := json.Marshal(recorded{NodeEndpoint: s.opts.Endpoint(), User: p.User, Reason: p.Reason, Events: p.Events, Time: p.Time, Metadata: p.Metadata})
	if err != nil {
		return err
	}
	redacted := record.Proposed(typeRedacted, data)
	redacted.ID = p.ID
	return record.NewJournal(record.Options{Store: s.opts.Records, Metadata: recordMetadata, KeepMetadata: true}, Stream).Try(ctx, redacted)
}
