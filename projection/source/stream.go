package source

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
)

// stream is one of the streams that are read.
type stream struct {
	catchup.Cursor // its Last is -1 before the first look
	index          int
	category       string

	queue []entry // what was read and is not merged yet
	head  int     // in queue

	read  int64 // number of the last record that was read; -1: none
	until int64 // number of the last record that is read
	count int   // events of a page

	// horizon is a position of the log: all records of the stream before it are in queue or were
	// taken from there.
	horizon int64
	isEnded bool  // nothing more is to come: hard-deleted, or all that is read once
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

// readPage reads a page of a stream whose queue is empty, without waiting. All records before the
// position settled are seen. Later ones are left for later, so that no stream is ahead of what is
// known of the others.
func (in *streamsInput) readPage(ctx context.Context, s *stream, settled int64) error {
	if s.fault != nil {
		return s.fault
	}
	events, payload := in.pageSize()
	page, err := s.Read(ctx, &catchup.Look{Count: s.count, Links: in.r.Links, MaxPayload: payload})
	switch {
	case errors.Is(err, event.ErrStreamDeleted):
		s.isEnded, s.horizon = true, math.MaxInt64
		return nil
	case err != nil:
		return err
	}
	n, err := in.queuePage(ctx, s, page.Events, settled)
	isUpTo := !page.More
	if s.count = min(events, 2*s.count); n < len(page.Events) {
		first := &page.Events[n]
		s.ReadAgain(first)
		s.count, isUpTo = min(events, max(2*n, 1)), first.Position >= settled
	}
	if err != nil || s.isEnded || s.fault != nil {
		return err
	}
	if !s.isEmpty() {
		s.horizon = max(s.horizon, s.queue[len(s.queue)-1].position+1)
	}
	if isUpTo {
		s.horizon = max(s.horizon, settled)
	}
	return nil
}

// queuePage queues the events of a page up to the first that is to be read later,
// and returns how many it took.
func (in *streamsInput) queuePage(ctx context.Context, s *stream, events []event.Resolved, settled int64) (n int, err error) {
	r := in.r
	for n = range events {
		res := &events[n]
		switch {
		case res.Position >= r.limit, res.Number > s.until:
			s.isEnded, s.horizon = true, math.MaxInt64
			return n, nil
		case res.Position >= settled:
			return n, nil
		case r.FaultOutOfOrder && s.read >= 0 && res.Number != s.read+1:
			s.fault = &handler.Fault{Message: fmt.Sprintf("Event number %d was expected in the stream %s, but event number %d was received. "+
				"This may happen if events have been deleted from the beginning of your stream, please reset your projection.", s.read+1, s.Stream, res.Number)}
			if s.isEmpty() {
				return n, s.fault
			}
			return n, nil
		}
		if res.IsBare() {
			if !s.isEmpty() { // It begins the next page, so that the queue stays small.
				return n, nil
			}
			if res, err = in.r.whole(ctx, res); err != nil {
				return n, err
			}
		}
		e := entry{stream: s.index, number: res.Number, position: res.Position, bytes: res.Next - res.Position}
		var ev handler.Event
		if !res.Bare && r.fromStream(&ev, res, s.category) {
			e.Event = ev
		}
		s.read = res.Number
		if n := len(s.queue); e.Record == nil && n > 0 && s.queue[n-1].Record == nil && len(in.streams) == 1 {
			e.bytes += s.queue[n-1].bytes
			s.queue[n-1] = e
			continue
		}
		s.queue = append(s.queue, e)
	}
	return len(events), nil
}
