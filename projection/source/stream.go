package source

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
)

const maxStride = 4096 // numbers looked at in one read where there are no events

// stream is one of the streams that are read.
type stream struct {
	index    int
	name     string
	category string

	queue []entry // what was read and is not merged yet
	head  int     // in queue

	last  int64 // number of the last record that was read; -1: none
	next  int64 // number to read on from; numbers between are known to have no event
	count int   // events of a page

	// horizon is a position of the log: all records of the stream before it are in queue or were
	// taken from there.
	horizon int64
	isEnded bool // nothing more is to come: hard-deleted, or all that is read once
	known   int64
	fault   error // comes after the queue
}

func (s *stream) isEmpty() bool { return s.head == len(s.queue) }

// first is the first record of the queue, which is not empty.
func (s *stream) first() *entry { return &s.queue[s.head] }

func (s *stream) pop() {
	if s.head++; s.isEmpty() {
		clear(s.queue)
		s.queue, s.head = s.queue[:0], 0
	}
}

// pageSize returns how many events a page of a stream may have, and how many bytes.
func (in *streamsInput) pageSize() (events, bytes int) {
	b, n := in.r.max, min(len(in.streams), 64)
	return max(1, b.events/n), max(1, b.bytes/n)
}

// read reads a page of a stream whose queue is empty, without waiting. All records before the
// position settled are seen. Later ones are left for later, so that no stream is ahead of what is
// known of the others.
func (in *streamsInput) read(ctx context.Context, s *stream, settled int64) error {
	if s.fault != nil {
		return s.fault
	}
	store := in.r.Store
	events, payload := in.pageSize()
	for {
		info, err := store.StreamInfo(ctx, s.name)
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", s.name, err)
		}
		s.known = info.Last
		switch {
		case info.HardDeleted:
			s.isEnded, s.horizon = true, math.MaxInt64
			return nil
		case info.Last < s.next:
			s.horizon = max(s.horizon, settled)
			return nil
		case !info.Exists(): // Soft-deleted: its events stay hidden, even if it is written again.
			s.next, s.horizon = info.Last+1, max(s.horizon, settled)
			return nil
		}
		page, err := store.ReadStream(ctx, event.StreamRead{
			Stream: s.name, From: s.next, Count: s.count, Links: in.r.Links, MaxPayload: payload,
		})
		if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) {
			continue // Deleted since.
		}
		if err != nil {
			return err
		}
		s.known = max(s.known, page.Last)
		return in.take(ctx, s, &page, settled, events)
	}
}

// take queues the events of a page and moves past it. Numbers without an event are passed over.
func (in *streamsInput) take(ctx context.Context, s *stream, page *event.StreamPage, settled int64, events int) error {
	n, err := in.queuePage(ctx, s, page, settled)
	if err != nil {
		return err
	}
	isUpTo := n < len(page.Events) && page.Events[n].Position >= settled
	switch {
	case s.isEnded || s.fault != nil:
		return nil
	case n < len(page.Events):
		s.next, s.count = page.Events[n].Number, min(events, max(2*n, 1))
	default:
		s.next = page.Next
		if s.count *= 2; n > 0 {
			s.count = min(s.count, events)
		}
		s.count = min(s.count, max(maxStride, events))
	}
	if !s.isEmpty() {
		s.horizon = max(s.horizon, s.queue[len(s.queue)-1].position+1)
	}
	if isUpTo || s.next > page.Last {
		s.horizon = max(s.horizon, settled)
	}
	return nil
}

// queuePage queues the events of a page up to the first that is to be read later,
// and returns how many it took.
func (in *streamsInput) queuePage(ctx context.Context, s *stream, page *event.StreamPage, settled int64) (n int, err error) {
	r := in.r
	for n = range page.Events {
		res := &page.Events[n]
		switch {
		case res.Position >= r.limit:
			s.isEnded, s.horizon = true, math.MaxInt64
			return n, nil
		case res.Position >= settled:
			return n, nil
		case r.FaultOutOfOrder && s.last >= 0 && res.Number != s.last+1:
			s.fault = &handler.Fault{Message: fmt.Sprintf("Event number %d was expected in the stream %s, but event number %d was received. "+
				"This may happen if events have been deleted from the beginning of your stream, please reset your projection.", s.last+1, s.name, res.Number)}
			if s.isEmpty() {
				return n, s.fault
			}
			return n, nil
		}
		if res.IsBare() {
			if !s.isEmpty() { // It begins the next page, so that the queue stays small.
				return n, nil
			}
			if err := in.load(ctx, res); err != nil {
				return n, err
			}
		}
		e := entry{stream: s.index, number: res.Number, position: res.Position, bytes: res.Next - res.Position}
		if !res.Bare {
			var ev handler.Event
			if r.fromStream(&ev, res, s.category) {
				e.Event = ev
			}
		}
		s.last = res.Number
		if n := len(s.queue); e.Record == nil && n > 0 && s.queue[n-1].Record == nil && len(in.streams) == 1 {
			e.bytes += s.queue[n-1].bytes
			s.queue[n-1] = e
			continue
		}
		s.queue = append(s.queue, e)
	}
	return len(page.Events), nil
}

// load reads the data that a page left out. A record that a scavenge removed just
// now stays bare, and a link to one is dead.
func (in *streamsInput) load(ctx context.Context, res *event.Resolved) error {
	gone := func(r *event.Record) (bool, error) {
		if !r.Bare {
			return false, nil
		}
		err := in.r.Store.ReadPayload(ctx, r)
		if errors.Is(err, event.ErrEventNotFound) {
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("read event %d of stream %s: %w", r.Number, r.Stream, err)
		}
		return false, nil
	}
	if isGone, err := gone(&res.Record); err != nil || isGone {
		return err
	}
	if res.Target == nil {
		return nil
	}
	isGone, err := gone(res.Target)
	if isGone {
		res.Link, res.Target = event.LinkDead, nil
	}
	return err
}
