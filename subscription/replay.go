package subscription

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

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
	var p pauser
	for first := true; from < target; first = false {
		next, err := g.fetchPage(from, target)
		if first {
			close(tried)
		}
		if g.ctx.Err() != nil {
			return
		}
		g.troubles.note(troubleReplay, err)
		if err != nil {
			g.metrics.failed.Inc()
			if !p.pause(g.ctx) {
				return
			}
			continue
		}
		p.failures = 0
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

// fetchPage moves one page and returns the number of the parked event behind it.
func (g *group) fetchPage(from, target int64) (next int64, err error) {
	ctx, cancel := context.WithTimeout(g.ctx, g.streams.timeout)
	defer cancel()
	forgotten := g.forgets()
	page, err := g.store.ReadStream(ctx, event.StreamRead{
		Stream: g.ParkedStream(), From: from, Count: int(min(replayBatch, target-from)), ResolveLinks: true, MaxPayload: groupPayload,
	})
	switch {
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted):
		return target, nil // Somebody discarded the parked messages.
	case err != nil:
		return from, fmt.Errorf("read stream %s: %w", g.ParkedStream(), err)
	}
	next = min(target, from+replayBatch)
	if len(page.Events) == 0 {
		next = min(target, max(next, page.Min))
	}
	var batch []replayed
	if len(page.Events) > 0 {
		w := event.Write{Stream: g.replayingStream(), ExpectedVersion: event.AnyVersion, Events: make([]event.Proposed, len(page.Events))}
		for i := range page.Events {
			e := &page.Events[i].Record
			if err := g.streams.complete(ctx, e); err != nil {
				return from, err
			}
			w.Events[i] = event.Proposed{ID: e.ID, Type: e.Type, Data: e.Data, Metadata: withParkedNumber(e)}
		}
		written, err := g.store.Write(ctx, &w)
		if err != nil {
			return from, fmt.Errorf("write to stream %s: %w", w.Stream, err)
		}
		for i := range page.Events {
			batch = append(batch, replayed{written.First + int64(i), page.Events[i]})
		}
	}
	if err := truncate(ctx, g.store, g.ParkedStream(), next); err != nil {
		return from, err
	}
	g.mu.Lock()
	g.addReplays(batch, forgotten)
	g.settle()
	g.mu.Unlock()
	return next, nil
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
	var p pauser
	for {
		g.mu.Lock()
		before := g.answeredReplays()
		if !g.trimDue() || g.closed {
			g.tasks.trimming = false
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		ctx, cancel := context.WithTimeout(g.ctx, g.streams.timeout)
		err := truncate(ctx, g.store, g.replayingStream(), before)
		cancel()
		if g.ctx.Err() != nil {
			return
		}
		g.troubles.note(troubleReplay, err)
		if err == nil {
			p.failures = 0
			g.mu.Lock()
			g.trimmed = before
			g.mu.Unlock()
		} else if !p.pause(g.ctx) {
			return
		}
	}
}
