package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

const orderBytes = 1 << 20 // of one write

// order keeps the order of several streams in a stream: a link to each event that is handed out,
// with the position after it, written before the event is handed out. Events that were written
// there and not handed out before the start are taken first.
type order struct {
	Order
	in       *streamsInput
	isLoaded bool
	last     int64 // number of the last event of the stream

	places []place // to be taken first, in order
	at     int     // of the next one

	// The places to write before the buffer is handed out. A write that failed is repeated with the
	// same ids, as it may have been done.
	held   []entry
	events int
	writes []event.Write
}

// place is one event in the order.
type place struct {
	stream int
	number int64
	behind []int64 // the position after it: a number of each stream
}

func (o *order) foreign() error {
	return &handler.Fault{Message: fmt.Sprintf("Order stream `%s` has been written to from the outside", o.Stream)}
}

// resume hands out the recorded places before anything new is read. It is done when that filled the
// buffer.
func (o *order) resume(ctx context.Context) (done bool, err error) {
	if !o.isLoaded {
		if err := o.load(ctx); err != nil {
			return false, err
		}
		o.isLoaded = true
	}
	if o.held != nil {
		return true, o.finish(ctx)
	}
	for o.at < len(o.places) {
		if err := o.replay(ctx); len(o.in.r.buffer) > 0 || err != nil {
			return true, err
		}
	}
	if o.places != nil {
		o.places, o.at = nil, 0
		o.in.arrange()
	}
	return false, nil
}

// load reads, from the end of the stream backward, the places after the point where the reader
// begins.
func (o *order) load(ctx context.Context) error {
	store := o.in.r.Store
	info, err := store.StreamInfo(ctx, o.Stream)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", o.Stream, err)
	}
	o.last, o.places = info.Last, nil
	if info.HardDeleted {
		return &handler.Fault{Message: fmt.Sprintf("Stream : %s is deleted. Cannot emit events to it", o.Stream)}
	}
	count := int64(o.in.r.max.places)
	for from, isEnd := info.Last, !info.Exists(); !isEnd && from >= 0; from -= count {
		page, err := store.ReadStream(ctx, event.StreamRead{Stream: o.Stream, From: from, Count: int(count), Backward: true})
		if err != nil {
			return err
		}
		if isEnd = page.Min > from-count; len(page.Events) == 0 {
			isEnd = isEnd || page.End
		}
		for i := range page.Events {
			goOn, err := o.note(&page.Events[i].Record)
			if err != nil {
				return err
			}
			if isEnd = isEnd || !goOn; !goOn {
				break
			}
		}
	}
	slices.Reverse(o.places)
	return nil
}

// note takes one event of the stream. It is false when that event and all before it are not ours,
// or are older than where the reader begins.
func (o *order) note(r *event.Record) (goOn bool, err error) {
	p, v, err := position.ParseStored(r.Metadata)
	number, name, ok := event.ParseLink(r.Data)
	if err != nil || !ok || r.Type != event.TypeLink {
		return false, o.foreign()
	}
	if !o.Version.IsOurs(v) {
		return false, nil
	}
	i := slices.IndexFunc(o.in.streams, func(s *stream) bool { return s.Stream == name })
	if i < 0 {
		return true, nil // Of a stream that was a source then.
	}
	if number <= o.in.numbers[i] {
		return false, nil
	}
	behind := slices.Clone(o.in.numbers)
	for k, s := range o.in.streams {
		if n, ok := p.Number(s.Stream); ok {
			behind[k] = n
		}
	}
	o.places = append(o.places, place{i, number, behind})
	return true, nil
}

// replay moves events to the reader's buffer in the order that was written. An event
// that is gone is passed over.
func (o *order) replay(ctx context.Context) error {
	r, settled := o.in.r, o.in.r.Store.LogEnd()
	for payload := 0; o.at < len(o.places) && len(r.buffer) < r.max.events && payload < r.max.bytes; o.at++ {
		at := o.places[o.at]
		s := o.in.streams[at.stream]
		for {
			before := s.Next
			if s.isEmpty() {
				if s.isEnded || s.Next > at.number {
					break
				}
				if err := o.in.readPage(ctx, s, settled); err != nil {
					if len(r.buffer) > 0 { // It comes again with the next call.
						return nil
					}
					return err
				}
				if s.isEmpty() && s.Next == before {
					break
				}
				continue
			}
			e := *s.first()
			if e.number > at.number {
				break
			}
			if s.pop(); e.number == at.number {
				e.recorded = o.at + 1
			}
			if e.Record != nil {
				payload += len(e.Data) + len(e.Metadata)
			}
			r.add(e)
		}
	}
	return nil
}

// write writes the places of the buffered events before they are handed out.
func (o *order) write(ctx context.Context) error {
	r := o.in.r
	if r.events == 0 {
		return nil
	}
	numbers := slices.Clone(o.in.numbers)
	var w event.Write
	size, expected := 0, o.last
	flush := func() {
		w.Stream, w.ExpectedVersion = o.Stream, expected
		expected += int64(len(w.Events))
		o.writes = append(o.writes, w)
		w, size = event.Write{}, 0
	}
	for i := range r.buffer {
		e := &r.buffer[i]
		numbers[e.stream] = max(numbers[e.stream], e.number)
		if e.Record == nil {
			continue
		}
		p := event.Proposed{
			ID: event.ID(uuid.New()), Type: event.TypeLink,
			Data:     append(append(strconv.AppendInt(nil, e.number, 10), '@'), o.in.streams[e.stream].Stream...),
			Metadata: o.in.positionOf(numbers).AppendJSON(nil, &o.Version),
		}
		if size += len(p.Data) + len(p.Metadata); size > orderBytes && len(w.Events) > 0 {
			flush()
			size = len(p.Data) + len(p.Metadata)
		}
		w.Events = append(w.Events, p)
	}
	flush()
	o.held, o.events = r.buffer, r.events
	r.buffer, r.events = nil, 0
	return o.finish(ctx)
}

// finish does the writes that are left, and then lets go of what waits for them.
func (o *order) finish(ctx context.Context) error {
	for len(o.writes) > 0 {
		written, err := o.in.r.Store.Write(ctx, &o.writes[0])
		var other *event.WrongExpectedVersion
		switch {
		case errors.As(err, &other):
			return o.foreign()
		case errors.Is(err, event.ErrStreamDeleted):
			return &handler.Fault{Message: fmt.Sprintf("Stream : %s is deleted. Cannot emit events to it", o.Stream)}
		case err != nil:
			return fmt.Errorf("write stream %s: %w", o.Stream, err)
		}
		o.last = written.Last
		o.writes = o.writes[1:]
	}
	o.in.r.buffer, o.in.r.events = o.held, o.events
	o.held, o.writes = nil, nil
	return nil
}
