package subscription

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// NotParked says that a message is not parked, or not any more.
type NotParked struct{ Number int64 }

func (e *NotParked) Error() string { return fmt.Sprintf("message %d is not parked", e.Number) }

// ParkedMessage is one message that was given up.
type ParkedMessage struct {
	Number int64  // in the parked stream
	Added  string // when it was parked
	Reason string
	// how often it had been tried again; nil: another version parked it, which did not say
	Retries     *int64
	Stream      string // of the event that was handed out
	EventNumber int64
	Event       *event.Record // nil: it is gone; bare, if its payload was not asked for
	Note        *Note         // nil: none
}

// ParkedPage is a page of parked messages.
type ParkedPage struct {
	Total    int64
	Messages []ParkedMessage
	Next     int64 // number to continue from; -1: there is no more
}

// desk is where parked messages of a group are looked at, replayed and dropped. A caller that moves
// or settles messages holds the token from its read of the parked messages until it is done. So
// copies get into memory in the order of their numbers in the stream of replays, which is truncated
// by those numbers, and no message is settled twice.
type desk struct {
	g     *group
	token chan struct{}           // one element
	known atomic.Pointer[settled] // as it was read or written last
}

// take waits for the token; false: the group ends first.
func (d *desk) take() bool {
	select {
	case d.token <- struct{}{}:
		return true
	case <-d.g.ctx.Done():
		return false
	}
}

func (d *desk) release() { <-d.token }

// enter waits for the token on behalf of a caller. The group does not end before leave was called,
// but ends ctx.
func (d *desk) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	g := d.g
	g.mu.Lock()
	if g.closed || !g.core.loaded {
		g.mu.Unlock()
		return ctx, nil, event.ErrNotReady
	}
	g.work.Add(1)
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, g.streams.timeout)
	stop := context.AfterFunc(g.ctx, cancel)
	end := func() { stop(); cancel(); g.work.Done() }
	select {
	case d.token <- struct{}{}:
		return ctx, func() { d.release(); end() }, nil
	case <-ctx.Done():
		end()
		return ctx, nil, ctx.Err()
	}
}

// settled returns the record of settled messages. The present content of the stream counts: a write
// whose outcome was not known may have come late.
func (d *desk) settled(ctx context.Context) (*settled, error) {
	stream := d.g.DeskStream()
	info, err := d.g.store.StreamInfo(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	known := d.known.Load()
	switch {
	case !info.Exists():
		return &settled{version: info.Last}, nil
	case known != nil && known.version == info.Last:
		return known, nil
	}
	e, err := d.g.store.ReadEvent(ctx, stream, info.Last, nil)
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	if known, err = parseSettled(&e.Record); err == nil {
		d.known.Store(known)
	}
	return known, err
}

// keep replaces the stored record of settled messages.
func (d *desk) keep(ctx context.Context, s *settled) error {
	stream := d.g.DeskStream()
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write to stream %s: %w", stream, err)
	}
	if err := bound(ctx, d.g.store, stream, `{"$maxCount":1,"$acl":`+accessList+`}`); err != nil {
		return err
	}
	written, err := d.g.store.Write(ctx, &event.Write{Stream: stream, ExpectedVersion: s.version,
		Events: []event.Proposed{{ID: newID(), Type: typeDesk, Flags: event.FlagJSON, Data: data}}})
	var other *event.WrongExpectedVersion
	switch {
	case errors.As(err, &other): // A write of an earlier life of the group came late.
		return fmt.Errorf("%w: stream %s changed: %v", event.ErrNotReady, stream, err)
	case err != nil:
		return fmt.Errorf("write to stream %s: %w", stream, err)
	}
	s.version = written.Last
	d.known.Store(s)
	return nil
}

// bounds are the numbers of parked messages.
type bounds struct {
	low  int64 // the first that the parked stream shows
	from int64 // the first that counts: those before are being replayed
	end  int64 // after the last
}

func (d *desk) bounds(ctx context.Context) (b bounds, err error) {
	info, err := d.g.store.StreamInfo(ctx, d.g.ParkedStream())
	if err != nil || !info.Exists() {
		return b, err
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	b.low = info.Metadata.MinVisible(info.Last)
	b.from = max(b.low, d.g.core.replay.target)
	b.end = max(b.from, info.Last+1)
	return b, nil
}

// count returns how many messages are parked, and the number of the oldest.
func (d *desk) count(ctx context.Context) (count, oldest int64) {
	b, err := d.bounds(ctx)
	if err != nil {
		if ctx.Err() == nil {
			d.g.troubles.note(troubleDesk, err)
		}
		return 0, 0
	}
	if b.from == b.end {
		d.g.troubles.note(troubleDesk, nil) // The record is not needed.
		return 0, 0
	}
	s, err := d.settled(ctx)
	if ctx.Err() == nil {
		d.g.troubles.note(troubleDesk, err)
	}
	if err != nil {
		s = &settled{} // Unknown for now.
	}
	return b.end - b.from - s.count(b.from, b.end), s.next(b.from)
}

// act changes the record of settled messages; next gets the old record, and the lowest number that
// the parked stream shows. All the numbers, in order and each once, must be parked.
func (d *desk) act(ctx context.Context, numbers []int64, next func(was *settled, low int64) *settled) error {
	ctx, leave, err := d.enterWhole(ctx)
	if err != nil {
		return err
	}
	defer leave()
	b, was, err := d.judge(ctx, numbers)
	if err != nil {
		return err
	}
	s := next(was, b.low)
	if !s.hasRoom(numbers, b.low) {
		return ErrDeskFull
	}
	if err := d.keep(ctx, s); err != nil {
		return err
	}
	d.hide(ctx, s, b)
	return nil
}

// judge returns a *NotParked if one of the numbers is not that of a parked message.
func (d *desk) judge(ctx context.Context, numbers []int64) (b bounds, s *settled, err error) {
	if b, err = d.bounds(ctx); err != nil {
		return b, nil, err
	}
	if s, err = d.settled(ctx); err != nil {
		return b, nil, err
	}
	for _, n := range numbers {
		if n < b.from || n >= b.end || s.has(n) {
			return b, nil, &NotParked{n}
		}
		page, err := d.g.store.ReadStream(ctx, event.StreamRead{Stream: d.g.ParkedStream(), From: n, Count: 1, MaxPayload: 1})
		if err != nil {
			return b, nil, fmt.Errorf("read stream %s: %w", d.g.ParkedStream(), err)
		}
		if len(page.Events) == 0 {
			return b, nil, &NotParked{n}
		}
	}
	return b, s, nil
}

// hide truncates the parked stream before the first message that is not settled, so that the record
// stays short. If this fails, a later call does it.
func (d *desk) hide(ctx context.Context, s *settled, b bounds) {
	before := min(s.next(b.low), b.end)
	if len(s.Replaying) > 0 {
		before = min(before, s.Replaying[0])
	}
	if before <= b.low {
		return
	}
	if err := truncate(ctx, d.g.store, d.g.ParkedStream(), before); err != nil {
		d.g.logger.Warn("settled messages could not be truncated", logkey.Stream, d.g.ParkedStream(), logkey.Error, err)
	}
}

// drop settles messages, which are never handed out again.
func (d *desk) drop(ctx context.Context, numbers []int64) error {
	return d.act(ctx, numbers, func(was *settled, low int64) *settled { return was.with(numbers, low) })
}

// note leaves a note at a message.
func (d *desk) note(ctx context.Context, number int64, n Note) error {
	return d.act(ctx, []int64{number}, func(was *settled, low int64) *settled {
		s := was.with(nil, low)
		s.setNote(number, n)
		return s
	})
}

// replaySome hands some messages out again. That they are to be is stored with what is
// settled; from then on they are not parked, and a crash changes nothing about it.
func (d *desk) replaySome(ctx context.Context, numbers []int64) error {
	g := d.g
	was, err := d.settled(ctx)
	if err != nil {
		return err
	}
	if waiting, _ := g.replays(); len(was.Replaying) > 0 || waiting >= replayHigh {
		return event.ErrBusy
	}
	err = d.act(ctx, numbers, func(was *settled, low int64) *settled {
		s := was.with(numbers, low)
		s.Replaying = slices.Sorted(slices.Values(append(slices.Clone(was.Replaying), numbers...)))
		return s
	})
	var not *NotParked
	if errors.As(err, &not) || errors.Is(err, ErrDeskFull) {
		return err
	}
	tried := make(chan struct{}) // Also where the outcome is not known: what is stored tells.
	if err == nil {
		g.countReplay()
	}
	if !g.apply(func(*core, time.Time) { g.work.Go(func() { d.finish(sync.OnceFunc(func() { close(tried) })) }) }) {
		return err
	}
	select {
	case <-tried: // A reader now finds them.
	case <-g.ctx.Done():
	case <-ctx.Done(): // The replay continues all the same.
	}
	return err
}

// finish has handed out what is stored to be. It calls tried when that is done, or could not be
// done yet.
func (d *desk) finish(tried func()) {
	defer tried()
	if d.take() {
		defer d.release()
		d.moveSome(tried)
	}
}

// moveSome moves the messages that are stored to be replayed one by one. The caller has the token.
func (d *desk) moveSome(tried func()) bool {
	return d.move(keySettledNumber, func(ctx context.Context) (links []event.Resolved, err error) {
		// What is forwarded is not replayed.
		if err := d.completeForward(ctx); err != nil {
			return nil, err
		}
		s, err := d.settled(ctx)
		if err != nil {
			return nil, err
		}
		room := groupPayload
		for _, n := range s.Replaying {
			page, err := d.g.store.ReadStream(ctx, event.StreamRead{Stream: d.g.ParkedStream(), From: n, Count: 1, Links: event.EveryLink, MaxPayload: max(1, room)})
			if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) {
				return nil, nil // The parked messages were discarded.
			}
			if err != nil {
				return nil, fmt.Errorf("read stream %s: %w", d.g.ParkedStream(), err)
			}
			for _, e := range page.Events {
				room -= len(e.Metadata) + len(e.Data) + len(e.Event().Data) + len(e.Event().Metadata)
				links = append(links, e)
			}
		}
		return links, nil
	}, func(ctx context.Context) error {
		s, err := d.settled(ctx)
		if err != nil || len(s.Replaying) == 0 {
			return err
		}
		b, err := d.bounds(ctx)
		if err != nil {
			return err
		}
		s = s.with(nil, b.low)
		s.Replaying = nil
		if err := d.keep(ctx, s); err != nil {
			return err
		}
		d.hide(ctx, s, b)
		return nil
	}, tried)
}

// list returns at most count messages from a number on. Their payloads, if they are
// asked for, are bounded as well: the page is the shorter the more there is of them.
func (d *desk) list(ctx context.Context, from int64, count int, payload bool, links event.LinkReader) (ParkedPage, error) {
	p := ParkedPage{Messages: []ParkedMessage{}, Next: -1}
	b, err := d.bounds(ctx)
	if err != nil {
		return p, err
	}
	s, err := d.settled(ctx)
	if err != nil {
		return p, err
	}
	if links == nil {
		links = event.NoLink
	}
	p.Total = b.end - b.from - s.count(b.from, b.end)
	room := groupPayload
	if !payload {
		room = 0
	}
	for at := s.next(max(from, b.from)); at < b.end; {
		page, err := d.g.store.ReadStream(ctx, event.StreamRead{Stream: d.g.ParkedStream(), From: at, Count: count + 1, MaxPayload: groupPayload})
		if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) {
			return p, nil // The parked messages were discarded.
		}
		if err != nil {
			return p, fmt.Errorf("read stream %s: %w", d.g.ParkedStream(), err)
		}
		for i := range page.Events {
			e := &page.Events[i].Record
			if s.has(e.Number) || e.Number >= b.end {
				continue
			}
			if len(p.Messages) == count {
				p.Next = e.Number
				return p, nil
			}
			m, err := d.message(ctx, e, room, links)
			if err != nil {
				return p, err
			}
			if m.Event != nil && !payload {
				m.Event.Strip()
			} else if m.Event != nil && m.Event.Bare {
				if len(p.Messages) > 0 {
					p.Next = e.Number
					return p, nil
				}
				if err := d.g.streams.complete(ctx, m.Event); err != nil {
					return p, err
				}
			}
			if m.Event != nil {
				room -= len(m.Event.Data) + len(m.Event.Metadata)
			}
			if note, ok := s.Notes[e.Number]; ok {
				m.Note = &note
			}
			p.Messages = append(p.Messages, m)
		}
		at = s.next(page.Next)
	}
	return p, nil
}

// message reads a parked event, and the event that it links to if the reader may see that.
func (d *desk) message(ctx context.Context, e *event.Record, room int, links event.LinkReader) (ParkedMessage, error) {
	m := ParkedMessage{Number: e.Number, Stream: e.Stream, EventNumber: e.Number}
	if err := d.g.streams.complete(ctx, e); err != nil {
		return m, err
	}
	var why parkedMetadata
	if json.Unmarshal(e.Metadata, &why) == nil {
		m.Added, m.Reason, m.Retries = why.Added, why.Reason, why.Retries
	}
	if m.Added == "" {
		m.Added = e.When().UTC().Format(time.RFC3339Nano)
	}
	number, stream, ok := event.ParseLink(e.Data)
	if e.Type != event.TypeLink || !ok {
		m.Event = e // It was written by then.
		return m, nil
	}
	m.Stream, m.EventNumber = stream, number
	info, err := d.g.store.StreamInfo(ctx, stream)
	if err != nil {
		return m, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	if may, err := links.MayRead(stream, &info); err != nil || !may {
		return m, err
	}
	page, err := d.g.store.ReadStream(ctx, event.StreamRead{Stream: stream, From: number, Count: 1, MaxPayload: max(1, room)})
	switch {
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted):
	case err != nil:
		return m, fmt.Errorf("read stream %s: %w", stream, err)
	case len(page.Events) > 0:
		m.Event = &page.Events[0].Record
	}
	return m, nil
}
