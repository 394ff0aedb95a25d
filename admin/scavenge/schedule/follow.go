package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

const (
	readPage  = 200
	writeTime = 10 * time.Second // for one append; its outcome shows in the stream
)

// errStreamGone says that there can be no rounds any more.
var errStreamGone = fmt.Errorf("the stream %s was deleted for good: %w", Stream, event.ErrStreamDeleted)

// follow reads what the stream got since the state was made. When an operator
// has hidden events, by deleting the stream for example, it begins again, so that
// nodes that were running and nodes that start come to the same state.
func (s *Scheduler) follow(ctx context.Context) error {
	info, err := s.opts.Store.StreamInfo(ctx, Stream)
	if err != nil {
		return fmt.Errorf("look at %s: %w", Stream, err)
	}
	if info.HardDeleted {
		return errStreamGone
	}
	s.info = info
	if info.Metadata.TruncateBefore != s.hidden {
		s.hidden = info.Metadata.TruncateBefore
		s.state, s.live = newState(), false
	}
	if info.Last <= s.state.version {
		s.live = true
		return nil
	}
	if !info.Metadata.SoftDeleted() {
		if err := s.read(ctx, &info); err != nil {
			return err
		}
	}
	s.state.version = max(s.state.version, info.Last)
	s.live, s.changed = true, s.opts.Now()
	return nil
}

// read applies the visible events up to the last one of info at least.
func (s *Scheduler) read(ctx context.Context, info *event.StreamInfo) error {
	next := max(s.state.version+1, info.Metadata.MinVisible(info.Last))
	for next <= info.Last {
		page, err := s.opts.Store.ReadStream(ctx, event.StreamRead{Stream: Stream, From: next, Count: readPage})
		if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) {
			return nil // Deleted since info was taken: the next look shows it.
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", Stream, err)
		}
		for i := range page.Events {
			s.apply(&page.Events[i].Record)
		}
		if len(page.Events) == 0 {
			return nil // What is left is hidden.
		}
		next = s.state.version + 1
	}
	return nil
}

// apply adds one event to the state, and updates the log and metrics.
func (s *Scheduler) apply(r *event.Record) {
	before, turns := s.state.round, 0
	if before != nil {
		turns = len(before.turns)
	}
	if !s.state.apply(r) {
		s.logger.Warn("an event of the schedule of scavenges is invalid and ignored", logkey.Number, r.Number, logkey.Type, r.Type)
		return
	}
	if !s.live {
		return
	}
	now := s.state.round
	switch r.Type {
	case TypeStarted:
		s.logger.Info("round of scavenges begins", "due", now.due, "schedule", now.schedule)
	case TypeTaken:
		s.logger.Info("turn to be scavenged begins", "due", now.due, "endpoint", now.turn.endpoint, logkey.Attempt, now.turn.attempt)
	case TypeTurnEnded, TypeLeft:
		if before == nil || len(before.turns) == turns {
			break // A node left whose turn it was not.
		}
		t := &before.turns[turns]
		say := s.logger.Info
		if t.result == string(scavenge.ResultErrored) || t.result == TurnLost {
			say = s.logger.Warn
		}
		say("turn to be scavenged ends", "due", before.due, "endpoint", t.endpoint, "result", t.result,
			logkey.Took, t.ended.Sub(t.taken).Round(time.Second), logkey.Error, t.err)
		if t.node == s.self {
			count(s.metrics.turns, t.result)
		}
	case TypeRoundEnded:
		s.logger.Info("round of scavenges ends", "due", before.due, "result", before.result,
			"turns", len(before.turns), "succeeded", before.succeeded(), logkey.Took, before.ended.Sub(before.started).Round(time.Second))
		count(s.metrics.rounds, before.result)
	}
}

// propose appends the event that follows the state. Nil means that it is written, or that another
// node was faster: both show in the stream, which is then awaited.
func (s *Scheduler) propose(ctx context.Context, p proposal) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err := s.ensureMetadata(ctx); err != nil {
		return err
	}
	e, err := p.event()
	if err != nil {
		return fmt.Errorf("encode %s: %w", p.kind, err)
	}
	written, err := s.opts.Store.WriteOwn(ctx, record.Append(Stream, s.state.version, e))
	var conflict *event.WrongExpectedVersion
	switch {
	case errors.As(err, &conflict):
		s.metrics.lost.Inc()
		s.last = proposal{}
	case err != nil:
		return fmt.Errorf("append %s to %s: %w", p.kind, Stream, err)
	default:
		s.written, s.last = written.Last, p
	}
	// Not to see it in time is not an error: this node lags, and looks again.
	_ = s.opts.Store.WaitStream(ctx, Stream, s.state.version)
	return nil
}

// ensureMetadata limits the stream before its first event, and again if a client set metadata that
// hide events which nodes must be able to read.
func (s *Scheduler) ensureMetadata(ctx context.Context) error {
	m := &s.info.Metadata
	if s.info.MetaLast >= 0 && (m.SoftDeleted() || m.MaxCount >= fewestKept && m.MaxAge == 0) {
		return nil
	}
	_, err := s.opts.Store.WriteOwn(ctx, record.Append(event.MetaStreamOf(Stream), s.info.MetaLast,
		record.Proposed(event.TypeMetadata, metadataOf(m.TruncateBefore))))
	var conflict *event.WrongExpectedVersion
	if err != nil && !errors.As(err, &conflict) {
		return fmt.Errorf("set the metadata of %s: %w", Stream, err)
	}
	return nil
}
