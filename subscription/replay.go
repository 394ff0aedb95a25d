package subscription

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/annalsdb/annals/event"
)

const (
	replayBatch = 100
	replayHigh  = 10_000 // replayed messages kept in memory; the rest follows as they are answered
	replayLow   = replayHigh - replayBatch
	// answered replayed messages before the stream of replays is truncated, unless all are
	trimAfter = 100
)

// keyParkedNumber is the member of the metadata of an event in the stream of
// replays that names the parked event it is a copy of. It is stored: do not change.
const keyParkedNumber = "parkedEventNumber"

// keySettledNumber is the same where that event alone was replayed, and not all before it. It is
// stored: do not change.
const keySettledNumber = "settledEventNumber"

// paced is a replay at a rate that is kept until it is done: the next leader resumes it.
type paced struct {
	Until int64 `json:"until"` // number of the first parked message that is not replayed
	Rate  int   `json:"rate"`  // messages a second
}

// replay is the fetching of parked messages, of which there is one at a time. Messages below target
// count as replayed from the moment when it begins, and stay so when it is done.
type replay struct {
	isOn   bool
	from   int64 // number of the message that is fetched next
	target int64
	rate   int // of messages a second; 0: as fast as it can
}

// begin reports whether there is something to fetch, and no other replay that does.
func (r *replay) begin(from, target int64, rate int) bool {
	if target <= from || r.isOn {
		return false
	}
	*r = replay{true, from, target, rate}
	return true
}

// copied are the messages that were replayed: each stands in the stream of replays until it is
// answered. That stream is truncated by one write at a time, never after the first without an
// answer.
type copied struct {
	unanswered list  // by their number in the stream
	end        int64 // number after the last in the stream
	from       int64 // the stream is truncated before this number
	isTrimming bool  // the effect was returned, and has no result yet
}

// answered returns the number before which all are answered.
func (c *copied) answered() int64 {
	if m := c.unanswered.head; m != nil {
		return m.number
	}
	return c.end
}

// trim returns where the stream is to be truncated now; 0: nowhere.
func (c *copied) trim() int64 {
	before := c.answered()
	gain := before - c.from
	if c.isTrimming || gain <= 0 || gain < trimAfter && c.unanswered.n > 0 {
		return 0
	}
	c.isTrimming = true
	return before
}

// trimmed is the result of truncating the stream.
func (c *copied) trimmed(before int64) { c.from, c.isTrimming = before, false }

// replay begins to hand out parked messages again, those below stopAt; -1: all. A rate is of
// messages a second; 0: as fast as it can.
func (d *desk) replay(ctx context.Context, stopAt int64, rate int) error {
	g := d.g
	if _, isUnderWay := g.replays(); isUnderWay {
		return d.setRate(ctx, rate)
	}
	tried, err := d.beginReplay(ctx, stopAt, rate)
	if tried == nil || err != nil {
		if errors.Is(err, event.ErrNotReady) {
			return nil
		}
		return err
	}
	select {
	case <-tried: // A reader now finds the first of them.
	case <-g.ctx.Done():
	case <-ctx.Done(): // The replay continues all the same.
	}
	return nil
}

// beginReplay starts a replay. tried is closed when its first page was moved, or could not be; nil:
// there is nothing to replay.
func (d *desk) beginReplay(ctx context.Context, stopAt int64, rate int) (tried chan struct{}, err error) {
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	g := d.g
	info, err := g.store.StreamInfo(ctx, g.ParkedStream())
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", g.ParkedStream(), err)
	}
	if !info.Exists() {
		return nil, nil
	}
	from, target := info.Metadata.MinVisible(info.Last), info.Last+1
	if stopAt >= 0 {
		target = min(target, stopAt)
	}
	if rate > 0 && target > from {
		if err := d.keepPace(ctx, &paced{target, rate}); err != nil {
			if isOpen(ctx, err) { // What is stored tells.
				g.work.Go(d.resumePaced)
			}
			return nil, err
		}
	}
	if tried = d.start(from, target, rate); tried != nil {
		g.countReplay()
	}
	return tried, nil
}

// start begins to fetch parked messages, unless there are none or they are being fetched. The
// caller sees to it that the group does not end.
func (d *desk) start(from, target int64, rate int) (tried chan struct{}) {
	d.g.apply(func(c *core, _ time.Time) {
		if c.replay.begin(from, target, rate) {
			tried = make(chan struct{})
		}
	})
	if tried != nil {
		d.g.work.Go(func() { d.fetchParked(from, target, tried) })
	}
	return tried
}

// keepPace stores that there is a replay at a rate, or with nil that there is none.
func (d *desk) keepPace(ctx context.Context, p *paced) error {
	s, err := d.settled(ctx)
	if err != nil || s.Paced == p {
		return err
	}
	next := *s
	next.Paced = p
	return d.keep(ctx, &next)
}

// resumePaced resumes a replay at a rate that is stored.
func (d *desk) resumePaced() {
	var s *settled
	var b bounds
	ok := d.take() && func() bool {
		defer d.release()
		return d.g.insist(troubleReplay, func(ctx context.Context) (err error) {
			if s, err = d.settled(ctx); err == nil {
				b, err = d.bounds(ctx)
			}
			return err
		}, func() {})
	}()
	switch {
	case !ok || s.Paced == nil:
	case b.low >= s.Paced.Until || b.low == b.end:
		d.endPaced()
	default:
		d.start(b.low, s.Paced.Until, s.Paced.Rate)
	}
}

// setRate changes the rate of a replay that has one.
func (d *desk) setRate(ctx context.Context, rate int) error {
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	s, err := d.settled(ctx)
	if err != nil || s.Paced == nil || s.Paced.Rate == rate {
		return err
	}
	var next *paced
	if rate > 0 {
		next = &paced{s.Paced.Until, rate}
	}
	if err := d.keepPace(ctx, next); err != nil {
		return err
	}
	d.g.apply(func(c *core, _ time.Time) { c.replay.rate = rate })
	return nil
}

// fetchParked moves parked messages to the stream of replays and into memory,
// page by page. A crash at any moment leaves each of them in one of the two
// streams, or in both: see DESIGN.md. It closes tried when the first page was
// moved, or could not be moved yet.
func (d *desk) fetchParked(from, target int64, tried chan<- struct{}) {
	g := d.g
	first := sync.OnceFunc(func() { close(tried) })
	defer first()
	isPaced := false
	for from < target {
		began, rate := g.now(), g.replayRate()
		end := target
		if rate > 0 {
			isPaced, end = true, min(target, from+int64(rate))
		}
		next, moved, ok := d.movePage(from, end, first)
		if !ok {
			return
		}
		first()
		from = next
		g.apply(func(c *core, _ time.Time) { c.replay.from = from })
		if from < target && !g.awaitReplay(began, moved) {
			return
		}
	}
	if isPaced && !d.endPaced() {
		return
	}
	g.apply(func(c *core, _ time.Time) { c.replay.isOn = false })
}

// endPaced stores that a replay at a rate is done.
func (d *desk) endPaced() bool {
	if !d.take() {
		return false
	}
	defer d.release()
	return d.g.insist(troubleReplay, func(ctx context.Context) error { return d.keepPace(ctx, nil) }, func() {})
}

// awaitReplay waits until more replayed messages may be fetched: some were a moment ago. It returns
// false when the group ends first.
func (g *group) awaitReplay(began time.Time, moved int) bool {
	for {
		var wait <-chan time.Time
		held, _ := g.replays()
		switch rate := g.replayRate(); {
		case held >= replayLow:
		case rate <= 0:
			return true
		default:
			rest := began.Add(time.Duration(moved) * time.Second / time.Duration(rate)).Sub(g.now())
			if rest <= 0 {
				return true
			}
			wait = time.After(rest)
		}
		select {
		case <-g.space:
		case <-wait:
		case <-g.ctx.Done():
			return false
		}
	}
}

// replayRate returns how many messages a second are replayed; 0: as many as it can.
func (g *group) replayRate() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.replay.rate
}

// replays returns how many replayed messages are in memory, and whether more are fetched.
func (g *group) replays() (held int, isFetching bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.copied.unanswered.n, g.core.replay.isOn
}

// countReplay counts that a replay was asked for.
func (g *group) countReplay() {
	g.counters.replays.Add(1)
	g.metrics.replays.Inc()
}

// movePage moves one page, and returns the number of the parked event after it and how many it
// moved.
func (d *desk) movePage(from, target int64, tried func()) (next int64, moved int, ok bool) {
	if !d.take() {
		return from, 0, false
	}
	defer d.release()
	if !d.moveSome(tried) { // The page hides them.
		return from, 0, false
	}
	next = from
	ok = d.move(keyParkedNumber, func(ctx context.Context) ([]event.Resolved, error) {
		s, err := d.settled(ctx)
		if err != nil {
			return nil, err
		}
		var events []event.Resolved
		events, next, err = d.g.streams.parkedPage(ctx, from, target)
		events = slices.DeleteFunc(events, func(e event.Resolved) bool { return s.has(e.Number) })
		moved = len(events)
		return events, err
	}, func(ctx context.Context) error { return truncate(ctx, d.g.store, d.g.ParkedStream(), next) }, tried)
	return next, moved, ok
}

// move copies parked messages that read returns to the stream of replays, has hide take them out of
// the parked stream, and has them handed out. Each step is repeated by itself: after a truncation
// with an unknown outcome the messages could not be read again, and would never be handed out. It
// returns false when the group ends first; tried is called when something did not succeed at once.
// The caller has the token.
func (d *desk) move(key string, read func(ctx context.Context) ([]event.Resolved, error), hide func(ctx context.Context) error, tried func()) bool {
	g := d.g
	var events []event.Resolved
	var w event.Write
	forgotten := g.forgets()
	ok := g.insist(troubleReplay, func(ctx context.Context) (err error) {
		if events, err = read(ctx); err == nil {
			w, err = g.streams.copies(ctx, events, key)
		}
		return err
	}, tried)
	if !ok {
		return false
	}
	var written event.Written
	if len(events) > 0 && !g.insist(troubleReplay, func(ctx context.Context) (err error) { written, err = g.streams.copy(ctx, &w); return err }, tried) {
		return false
	}
	if !g.insist(troubleReplay, hide, tried) {
		return false
	}
	batch := make([]replayed, len(events))
	for i := range events {
		batch[i] = replayed{written.First + int64(i), events[i]}
	}
	g.apply(func(c *core, _ time.Time) { c.addReplays(batch, forgotten) })
	return true
}

// parkedPage reads a page of parked messages, and returns the number after it.
func (s *ownStreams) parkedPage(ctx context.Context, from, target int64) (events []event.Resolved, next int64, err error) {
	page, err := s.store.ReadStream(ctx, event.StreamRead{
		Stream: s.ParkedStream(), From: from, Count: int(min(replayBatch, target-from)), Links: event.EveryLink, MaxPayload: groupPayload,
	})
	switch {
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted):
		return nil, target, nil // The parked messages were discarded.
	case err != nil:
		return nil, from, fmt.Errorf("read stream %s: %w", s.ParkedStream(), err)
	}
	events = slices.DeleteFunc(page.Events, func(e event.Resolved) bool { return e.Number >= target })
	return events, min(target, page.Next), nil
}

// copies makes the write that copies parked messages to the end of the stream of replays, with
// their numbers under a key.
func (s *ownStreams) copies(ctx context.Context, events []event.Resolved, key string) (w event.Write, err error) {
	w = event.Write{Stream: s.replayingStream(), Events: make([]event.Proposed, len(events))}
	for i := range events {
		e := &events[i].Record
		if err := s.complete(ctx, e); err != nil {
			return w, err
		}
		w.Events[i] = event.Proposed{ID: e.ID, Type: e.Type, Data: e.Data, Metadata: withNumber(e, key)}
	}
	info, err := s.store.StreamInfo(ctx, w.Stream)
	w.ExpectedVersion = info.Last
	return w, err
}

// copy writes copies. Each write expects the number of the last event. That number tells an earlier
// try with an unknown outcome from an earlier replay of the same messages, whose copies are hidden:
// an operator may have shown them again.
func (s *ownStreams) copy(ctx context.Context, w *event.Write) (event.Written, error) {
	written, err := s.store.Write(ctx, w)
	var other *event.WrongExpectedVersion
	// A write of an earlier life of the group came late.
	if errors.As(err, &other) {
		w.ExpectedVersion = other.Current
	}
	if err != nil {
		err = fmt.Errorf("write to stream %s: %w", w.Stream, err)
	}
	return written, err
}

func withNumber(e *event.Record, key string) []byte {
	doc := map[string]json.RawMessage{}
	if json.Unmarshal(e.Metadata, &doc) != nil || doc == nil {
		doc = map[string]json.RawMessage{}
	}
	delete(doc, keyParkedNumber)
	delete(doc, keySettledNumber)
	doc[key] = strconv.AppendInt(nil, e.Number, 10)
	out, err := json.Marshal(doc)
	if err != nil {
		panic(err) // The members came out of a parsed document.
	}
	return out
}

// trim truncates the stream of replays before the first message that is not answered.
func (g *group) trim(before int64) {
	if g.insist(troubleReplay, func(ctx context.Context) error { return truncate(ctx, g.store, g.replayingStream(), before) }, func() {}) {
		g.apply(func(c *core, _ time.Time) { c.copied.trimmed(before) })
	}
}
