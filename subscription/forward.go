package subscription

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

const (
	forwardMost  = 1000    // messages that one request forwards, or a batch more
	forwardBatch = 100     // messages forwarded with one write
	forwardBytes = 1 << 20 // the payloads of such a write, unless one message is larger
)

// keyDeadLetter is the member of the metadata of a forwarded message that says where it comes from.
// It is stored: do not change.
const keyDeadLetter = "$deadLetter"

// deadLetter is where a forwarded message comes from: do not change.
type deadLetter struct {
	Group       string `json:"group"` // with the stream that it is a group of
	Stream      string `json:"stream"`
	EventNumber int64  `json:"eventNumber"`
	Reason      string `json:"reason"`
	Retries     *int64 `json:"retries,omitempty"`
	At          string `json:"at"`
	// in base 64, where it is not a JSON object
	Metadata string `json:"metadata,omitempty"`
	// of a message that was forwarded before
	Previous json.RawMessage `json:"previous,omitempty"`
}

// copyIDs names the ids of forwarded messages: do not change.
var copyIDs = uuid.MustParse("6f1d3f0e-9a0c-5d57-8d8b-2f0b2b3c7a51")

// forwarding is a write of copies that was begun. It is kept until its outcome is known.
type forwarding struct {
	To       string  `json:"to"`
	Expected int64   `json:"expected"` // number of the last event of that stream before the copies
	Numbers  []int64 `json:"numbers"`
}

// Forwarded is what became of messages to be forwarded.
type Forwarded struct {
	Count int64
	Gone  int64 // messages that stay parked, because their events are gone
	Next  int64 // number to continue from, where all were asked for; -1: these were all
}

// ForwardParked appends copies of parked messages to a stream, and takes the messages out of the
// parked ones: those with the numbers, or if there are none some from a number on. A copy is never
// appended twice, and a message leaves only when it was. What is done by then stays done when it
// fails: with the errors of DropParked, with event.ErrNotAuthorized for an event that links does
// not let the caller see, and with those of writing to the stream.
func (s *Service) ForwardParked(ctx context.Context, k Key, to string, numbers []int64, from int64, links event.LinkReader) (f Forwarded, err error) {
	f.Next = -1
	err = s.parked(ctx, k, func(d *desk) error {
		if len(numbers) > 0 {
			return d.forward(ctx, to, &f, strictLinks{links}, func(context.Context) ([]int64, error) { return inOrder(numbers), nil })
		}
		for taken := 0; taken < forwardMost && from >= 0; {
			err := d.forward(ctx, to, &f, strictLinks{links}, func(ctx context.Context) (some []int64, err error) {
				p, err := d.list(ctx, from, forwardBatch, false, event.NoLink)
				for i := range p.Messages {
					some = append(some, p.Messages[i].Number)
				}
				taken += len(some)
				from = p.Next
				return some, err
			})
			if err != nil {
				return err
			}
		}
		f.Next = from
		return nil
	})
	return f, err
}

// strictLinks fails for what the reader may not see.
type strictLinks struct{ event.LinkReader }

func (l strictLinks) MayRead(stream string, info *event.StreamInfo) (bool, error) {
	may, err := l.LinkReader.MayRead(stream, info)
	if err == nil && !may {
		err = fmt.Errorf("read stream %s: %w", stream, event.ErrNotAuthorized)
	}
	return may, err
}

// forward forwards the messages that pick returns. All must be parked.
func (d *desk) forward(ctx context.Context, to string, f *Forwarded, links event.LinkReader, pick func(ctx context.Context) ([]int64, error)) error {
	ctx, leave, err := d.enterWhole(ctx)
	if err != nil {
		return err
	}
	defer leave()
	numbers, err := pick(ctx)
	for len(numbers) > 0 && err == nil {
		var done int
		done, err = d.forwardSome(ctx, to, numbers, f, links)
		numbers = numbers[done:]
	}
	return err
}

// forwardSome forwards the first of some messages, and returns how many it took.
func (d *desk) forwardSome(ctx context.Context, to string, numbers []int64, f *Forwarded, links event.LinkReader) (done int, err error) {
	b, was, err := d.judge(ctx, numbers)
	if err != nil {
		return 0, err
	}
	copies, done, err := d.copiesOf(ctx, numbers, links)
	if err != nil {
		return 0, err
	}
	f.Gone += int64(done - len(copies))
	if len(copies) == 0 {
		return done, nil
	}
	info, err := d.g.store.StreamInfo(ctx, to)
	if err != nil {
		return 0, fmt.Errorf("look at stream %s: %w", to, err)
	}
	s := was.with(nil, b.low)
	s.Forward = &forwarding{To: to, Expected: info.Last, Numbers: numbersOf(copies)}
	if !s.with(s.Forward.Numbers, b.low).hasRoom(s.Forward.Numbers, b.low) {
		return 0, ErrDeskFull
	}
	if err := d.keep(ctx, s); err != nil {
		return 0, err
	}
	if err := d.writeCopies(ctx, copies, true); err != nil {
		return 0, err
	}
	f.Count += int64(len(copies))
	return done, nil
}

// letter is a copy of a parked message.
type letter struct {
	number int64
	event.Proposed
}

func numbersOf(copies []letter) (numbers []int64) {
	for i := range copies {
		numbers = append(numbers, copies[i].number)
	}
	return numbers
}

// copiesOf reads messages and makes copies of them. It stops where they are large together, and
// returns how many messages it took; of these it leaves out those whose events are gone.
func (d *desk) copiesOf(ctx context.Context, numbers []int64, links event.LinkReader) (copies []letter, done int, err error) {
	room := forwardBytes
	for _, n := range numbers[:min(len(numbers), forwardBatch)] {
		page, err := d.g.store.ReadStream(ctx, event.StreamRead{Stream: d.g.ParkedStream(), From: n, Count: 1, MaxPayload: groupPayload})
		if err != nil && !errors.Is(err, event.ErrStreamNotFound) && !errors.Is(err, event.ErrStreamDeleted) {
			return nil, 0, fmt.Errorf("read stream %s: %w", d.g.ParkedStream(), err)
		}
		if len(page.Events) > 0 && page.Events[0].Number == n {
			m, err := d.message(ctx, &page.Events[0].Record, groupPayload, links)
			if err == nil && m.Event != nil {
				err = d.g.streams.complete(ctx, m.Event)
			}
			if err != nil && !errors.Is(err, event.ErrEventNotFound) {
				return nil, 0, err
			}
			if m.Event != nil && err == nil {
				if room -= len(m.Event.Data) + len(m.Event.Metadata); room < 0 && len(copies) > 0 {
					return copies, done, nil
				}
				copies = append(copies, letter{n, d.copyOf(&m)})
			}
		}
		done++
	}
	return copies, done, nil
}

// copyOf makes the copy of a message. Its id is always the same.
func (d *desk) copyOf(m *ParkedMessage) event.Proposed {
	e := m.Event
	from := deadLetter{Group: d.g.Key.String(), Stream: m.Stream, EventNumber: m.EventNumber, Reason: m.Reason, Retries: m.Retries, At: m.Added}
	doc := map[string]json.RawMessage{}
	if json.Unmarshal(e.Metadata, &doc) != nil || doc == nil {
		doc, from.Metadata = map[string]json.RawMessage{}, base64.StdEncoding.EncodeToString(e.Metadata)
	}
	from.Previous = doc[keyDeadLetter]
	var err error
	if doc[keyDeadLetter], err = json.Marshal(&from); err != nil {
		panic(err) // Texts, numbers and a parsed document always have a form in JSON.
	}
	metadata, err := json.Marshal(doc)
	if err != nil {
		panic(err) // Likewise.
	}
	return event.Proposed{ID: d.copyID(m.Number), Type: e.Type, Flags: e.Flags & event.FlagJSON, Data: e.Data, Metadata: metadata}
}

func (d *desk) copyID(number int64) event.ID {
	return event.ID(uuid.NewSHA1(copyIDs, fmt.Appendf(nil, "%s/%d", d.g.ParkedStream(), number)))
}

// enterWhole is enter, after which no write of copies is left half done.
func (d *desk) enterWhole(ctx context.Context) (context.Context, func(), error) {
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return ctx, nil, err
	}
	if err := d.completeForward(ctx); err != nil {
		leave()
		return ctx, nil, err
	}
	return ctx, leave, nil
}

// completeForward finds out what became of a write of copies that was begun, and does it if it was
// not done. The caller has the token.
func (d *desk) completeForward(ctx context.Context) error {
	s, err := d.settled(ctx)
	if err != nil || s.Forward == nil {
		return err
	}
	isDone, err := d.isForwarded(ctx, s.Forward)
	if err != nil {
		return err
	}
	if isDone { // Their events may be gone by now.
		return d.endForward(ctx, s, s.Forward.Numbers)
	}
	copies, _, err := d.copiesOf(ctx, s.Forward.Numbers, event.EveryLink)
	switch {
	case err != nil:
		return err
	case len(copies) == 0:
		return d.endForward(ctx, s, nil)
	case len(copies) < len(s.Forward.Numbers):
		less := *s
		less.Forward = &forwarding{To: s.Forward.To, Expected: s.Forward.Expected, Numbers: numbersOf(copies)}
		if err := d.keep(ctx, &less); err != nil {
			return err
		}
	}
	return d.writeCopies(ctx, copies, false)
}

// isForwarded reports whether the copies are in their stream.
func (d *desk) isForwarded(ctx context.Context, f *forwarding) (bool, error) {
	e, err := d.g.store.ReadEvent(ctx, f.To, f.Expected+1, event.NoLink)
	switch {
	case errors.Is(err, event.ErrEventNotFound), errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read stream %s: %w", f.To, err)
	}
	return e.ID == d.copyID(f.Numbers[0]), nil
}

// writeCopies writes the copies that the record says, and then settles their messages. The record
// has the number that the write expects: by it a repetition is known for one, however late it
// comes. A write that is refused is forgotten; isFirst is set if there was no earlier one that may
// have been done.
func (d *desk) writeCopies(ctx context.Context, copies []letter, isFirst bool) error {
	for {
		s, err := d.settled(ctx)
		if err != nil {
			return err
		}
		w := &event.Write{Stream: s.Forward.To, ExpectedVersion: s.Forward.Expected}
		for i := range copies {
			w.Events = append(w.Events, copies[i].Proposed)
		}
		_, err = d.g.store.Write(ctx, w)
		if err == nil {
			return d.endForward(ctx, s, s.Forward.Numbers)
		}
		if other, isOther := errors.AsType[*event.WrongExpectedVersion](err); isOther {
			// It was not done: events of others came in between.
			next := *s
			next.Forward = &forwarding{To: s.Forward.To, Expected: other.Current, Numbers: s.Forward.Numbers}
			if err := d.keep(ctx, &next); err != nil {
				return err
			}
			continue
		}
		err = fmt.Errorf("write to stream %s: %w", w.Stream, err)
		if isRefused(err) || isFirst && !isOpen(ctx, err) {
			err = errors.Join(err, d.endForward(ctx, s, nil))
		}
		return err
	}
}

// isRefused reports whether a write can never be done.
func isRefused(err error) bool {
	_, isBad := errors.AsType[*event.BadRequest](err)
	return isBad || errors.Is(err, event.ErrStreamDeleted) || errors.Is(err, event.ErrTooLarge) || errors.Is(err, event.ErrNotAuthorized)
}

// isOpen reports whether a write that failed may have been done.
func isOpen(ctx context.Context, err error) bool {
	return errors.Is(err, event.ErrOutcomeUnknown) || errors.Is(err, event.ErrWriteTimeout) || ctx.Err() != nil
}

// endForward settles the messages that were forwarded.
func (d *desk) endForward(ctx context.Context, s *settled, numbers []int64) error {
	b, err := d.bounds(ctx)
	if err != nil {
		return err
	}
	next := s.with(numbers, b.low)
	next.Forward = nil
	if err := d.keep(ctx, next); err != nil {
		return err
	}
	d.hide(ctx, next, b)
	return nil
}
