package subscription

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/annalsdb/annals/event"
)

const (
	replayBatch = 100
	replayHigh  = 10_000 // replayed messages kept in memory; the rest follows as they are answered
	replayLow   = replayHigh - replayBatch
	trimAfter   = 100 // answered replayed messages before the stream of replays is truncated, unless all are
)

// keyParkedNumber is the member of the metadata of an event in the stream of
// replays that names the parked event it is a copy of. It is stored: do not change.
const keyParkedNumber = "parkedEventNumber"

// replayed is one message to be handed out again.
type replayed struct {
	number int64          // in the stream of replays
	event  event.Resolved // the link, as it was in the parked stream
}

// replay begins to hand out parked messages again, those below stopAt; -1: all.
func (g *group) replay(ctx context.Context, stopAt int64) error {
	info, err := g.store.StreamInfo(ctx, g.ParkedStream())
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", g.ParkedStream(), err)
	}
	if !info.Exists() {
		return nil
	}
	from, target := info.Metadata.MinVisible(info.Last), info.Last+1
	if stopAt >= 0 {
		target = min(target, stopAt)
	}
	g.mu.Lock()
	if target <= from || g.replaying || !g.loaded || g.closed {
		g.mu.Unlock()
		return nil
	}
	g.replayTarget = target
	g.statistics.replays.Add(1)
	g.metrics.replays.Inc()
	tried := make(chan struct{})
	g.begin(&g.replaying, func() { g.fetchParked(from, target, tried) })
	g.mu.Unlock()
	select {
	case <-tried: // A reader now finds the first of them.
	case <-g.ctx.Done():
	case <-ctx.Done(): // It goes on all the same.
	}
	return nil
}

// fetchParked moves parked messages to the stream of replays and into memory,
// page by page. A crash at any moment leaves each of them in one of the two
// streams, or in both: see DESIGN.md. It closes tried when the first page was
// moved, or could not be moved yet.
func (g *group) fetchParked(from, target int64, tried chan<- struct{}) {
	first := sync.OnceFunc(func() { close(tried) })
	defer first()
	for from < target {
		next, ok := g.movePage(from, target, first)
		if !ok {
			return
		}
		first()
		from = next
		for from < target && !g.replaysLow() {
			select {
			case <-g.space:
			case <-g.ctx.Done():
				return
			}
		}
	}
	g.mu.Lock()
	g.replaying = false
	g.settle()
	g.mu.Unlock()
}

func (g *group) replaysLow() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.replays.n < replayLow
}

// insist tries something about replays until it succeeds, and calls tried when it did not. It returns false when the group ends first.
func (g *group) insist(try func(ctx context.Context) error, tried func()) bool {
	var p pauser
	for {
		ctx, cancel := context.WithTimeout(g.ctx, g.streams.timeout)
		err := try(ctx)
		cancel()
		if g.ctx.Err() != nil {
			return false
		}
		g.troubles.note(troubleReplay, err)
		if err == nil {
			return true
		}
		tried()
		g.metrics.failed.Inc()
		if !p.pause(g.ctx) {
			return false
		}
	}
}

// movePage moves one page and returns the number of the parked event behind it. Each
// step is repeated by itself: behind a truncation whose outcome was not known the page
// could not be read again, and nobody would hand it out.
func (g *group) movePage(from, target int64, tried func()) (next int64, ok bool) {
	var events []event.Resolved
	var w event.Write
	forgotten := g.forgets()
	ok = g.insist(func(ctx context.Context) (err error) {
		if events, next, err = g.streams.parkedPage(ctx, from, target); err == nil {
			w, err = g.streams.copies(ctx, events)
		}
		return err
	}, tried)
	if !ok {
		return from, false
	}
	var written event.Written
	if len(events) > 0 && !g.insist(func(ctx context.Context) (err error) { written, err = g.streams.copy(ctx, &w); return err }, tried) {
		return from, false
	}
	if !g.insist(func(ctx context.Context) error { return truncate(ctx, g.store, g.ParkedStream(), next) }, tried) {
		return from, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.addCopies(events, written.First, forgotten)
	return next, true
}

// addCopies has messages handed out again whose copies were written from a number on. The caller holds mu.
func (g *group) addCopies(events []event.Resolved, first int64, forgotten uint64) {
	batch := make([]replayed, len(events))
	for i := range events {
		batch[i] = replayed{first + int64(i), events[i]}
	}
	g.addReplays(batch, forgotten)
	g.settle()
}

// parkedPage reads a page of parked messages, and returns the number behind it.
func (s *ownStreams) parkedPage(ctx context.Context, from, target int64) (events []event.Resolved, next int64, err error) {
	page, err := s.store.ReadStream(ctx, event.StreamRead{
		Stream: s.ParkedStream(), From: from, Count: int(min(replayBatch, target-from)), ResolveLinks: true, MaxPayload: groupPayload,
	})
	switch {
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted):
		return nil, target, nil // Somebody discarded the parked messages.
	case err != nil:
		return nil, from, fmt.Errorf("read stream %s: %w", s.ParkedStream(), err)
	}
	next = min(target, from+replayBatch)
	if len(page.Events) == 0 {
		next = min(target, max(next, page.Min))
	}
	return page.Events, next, nil
}

// copies makes the write that copies parked messages to the end of the stream of replays.
func (s *ownStreams) copies(ctx context.Context, events []event.Resolved) (w event.Write, err error) {
	w = event.Write{Stream: s.replayingStream(), Events: make([]event.Proposed, len(events))}
	for i := range events {
		e := &events[i].Record
		if err := s.complete(ctx, e); err != nil {
			return w, err
		}
		w.Events[i] = event.Proposed{ID: e.ID, Type: e.Type, Data: e.Data, Metadata: withParkedNumber(e)}
	}
	info, err := s.store.StreamInfo(ctx, w.Stream)
	w.ExpectedVersion = info.Last
	return w, err
}

// copy writes copies. The number that they are expected behind tells an earlier try,
// whose outcome was not known, from an earlier replay of the same messages, whose
// copies are hidden: an operator may have shown them again.
func (s *ownStreams) copy(ctx context.Context, w *event.Write) (event.Written, error) {
	written, err := s.store.Write(ctx, w)
	var other *event.WrongExpectedVersion
	if errors.As(err, &other) { // What was under way when an earlier life of the group ended came late.
		w.ExpectedVersion = other.Current
	}
	if err != nil {
		err = fmt.Errorf("write to stream %s: %w", w.Stream, err)
	}
	return written, err
}

func withParkedNumber(e *event.Record) []byte {
	doc := map[string]json.RawMessage{}
	if json.Unmarshal(e.Metadata, &doc) != nil || doc == nil {
		doc = map[string]json.RawMessage{}
	}
	doc[keyParkedNumber] = strconv.AppendInt(nil, e.Number, 10)
	out, err := json.Marshal(doc)
	if err != nil {
		panic(err) // The members came out of a parsed document.
	}
	return out
}

// addReplays puts messages, read when payloads had been forgotten so often, behind all that are to be handed out again. The caller holds mu.
func (g *group) addReplays(batch []replayed, forgotten uint64) {
	for _, r := range batch {
		if g.forgotten != forgotten {
			r.event = *withoutPayload(&r.event)
		}
		g.replayEnd = max(g.replayEnd, r.number+1)
		if g.tracked[r.event.ID] != nil {
			continue // It was fetched by a try that was thought to have failed.
		}
		m := &message{id: r.event.ID, event: &r.event, number: r.number, replayed: true, before: -1, bucket: -1, state: waiting}
		g.track(m)
		g.replays.insertByNumber(m)
	}
}

// trimDue reports whether the stream of replays is to be truncated. The caller holds mu.
func (g *group) trimDue() bool {
	gain := g.answeredReplays() - g.trimmed
	return gain > 0 && (gain >= trimAfter || g.unansweredReplays.n == 0)
}

// trim truncates the stream of replays before the first message that is not answered.
func (g *group) trim() {
	for {
		g.mu.Lock()
		before := g.answeredReplays()
		if !g.trimDue() || g.closed {
			g.tasks.trimming = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		if !g.insist(func(ctx context.Context) error { return truncate(ctx, g.store, g.replayingStream(), before) }, func() {}) {
			return
		}
		g.mu.Lock()
		g.trimmed = before
		g.mu.Unlock()
	}
}
