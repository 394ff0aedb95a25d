package subscription

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/event"
)

const (
	// maxStride bounds the numbers looked at in one read where there are no events, and
	// the records of the log where a filter chooses few.
	maxStride = 4096
	// groupPayload bounds the data and metadata that a group holds of messages that it
	// read ahead: each page gets a share of it as large as its share of the buffer.
	// Events beyond that stay bare, and their rest is read when they are handed to a
	// consumer. Events are far smaller as a rule, and all of them are whole.
	groupPayload = 16 << 20
)

// source is the stream or log that a group subscribes to. Its events have numbers that rise: those
// of the stream, or their positions in the log. Only one caller at a time reads.
type source interface {
	// number returns the number of an event.
	number(e *event.Record) int64
	// after returns where to begin after an event that existed once.
	after(ctx context.Context, number int64) (int64, error)
	// read reads the events from a number on, at most so many. event.ErrStreamDeleted
	// says that nothing can come any more.
	read(ctx context.Context, from int64, room int) (batch, error)
	// wait returns nil when there may be something from a number on.
	wait(ctx context.Context, from int64) error
	// span returns the numbers of the oldest and of the newest event, as far as one can
	// tell cheaply; newest -1: there is none, or it is not known.
	span(ctx context.Context) (oldest, newest int64, err error)
}

// batch is a part that was read of a source.
type batch struct {
	events   []event.Resolved
	next     int64 // where the next read begins
	end      bool  // there was nothing after it
	known    int64 // newest number seen, -1: none
	passed   int64 // a number up to which there is nothing else: a checkpoint may name it; -1: none
	progress int64 // how many messages that counts as, besides the events
}

// newSource returns the source of a group.
func newSource(s *ownStreams) source {
	if s.Stream == event.AllStream {
		return &logSource{ownStreams: s, begun: -1}
	}
	return &streamSource{ownStreams: s}
}

// count is how many events are read at once.
func (s *ownStreams) count(room int) int { return min(s.Settings.batch(), room) }

// links resolves links, where the group does, for all consumers. What of that a consumer may see is
// decided when it gets a message.
func (s *ownStreams) links() event.LinkReader {
	if s.Settings.ResolveLinks {
		return event.EveryLink
	}
	return nil
}

// payload is a page's share of the bytes that a group may hold.
func (s *ownStreams) payload(count int) int {
	return max(1, groupPayload/max(1, s.Settings.BufferSize)*min(count, s.Settings.batch()))
}

// streamSource is one stream.
type streamSource struct {
	*ownStreams
	stride int // how many numbers to look at after pages without events; 0: a batch
}

func (s *streamSource) number(e *event.Record) int64 { return e.Number }

func (s *streamSource) after(_ context.Context, number int64) (int64, error) { return number + 1, nil }

// read reads a page. Numbers without an event are passed over.
func (s *streamSource) read(ctx context.Context, from int64, room int) (b batch, err error) {
	count := max(s.count(room), s.stride)
	page, err := s.page(ctx, from, count)
	if err != nil {
		return b, err
	}
	b = batch{known: page.Last, next: page.Next, passed: -1}
	if len(page.Events) > room {
		page.Events = page.Events[:room]
		b.next = page.Events[room-1].Number + 1
	}
	b.events, b.end, s.stride = page.Events, b.next > page.Last, 0
	if len(b.events) == 0 && !b.end {
		s.stride = min(maxStride, max(2*count, maxBatch))
	}
	return b, nil
}

// page reads a page of the stream. Of a stream that is deleted, and may come again, it returns an
// empty page that ends after the deleted events.
func (s *streamSource) page(ctx context.Context, from int64, count int) (event.StreamPage, error) {
	read := event.StreamRead{
		Stream: s.Stream, From: from, Count: count, Links: s.links(), MaxPayload: s.payload(count),
	}
	page, err := s.store.ReadStream(ctx, read)
	if !errors.Is(err, event.ErrStreamNotFound) {
		return page, err
	}
	// All that is there while it is found deleted is gone for good. Its number must be known before
	// that, or events appended in between would be skipped.
	info, err := s.store.StreamInfo(ctx, s.Stream)
	if err != nil {
		return page, err
	}
	page, err = s.store.ReadStream(ctx, read)
	if errors.Is(err, event.ErrStreamNotFound) {
		return event.StreamPage{Stream: s.Stream, From: from, Last: info.Last, Min: info.Last + 1, End: true, Next: max(from, info.Last+1)}, nil
	}
	return page, err
}

func (s *streamSource) wait(ctx context.Context, from int64) error {
	return s.store.WaitStream(ctx, s.Stream, from-1)
}

func (s *streamSource) span(ctx context.Context) (oldest, newest int64, err error) {
	info, err := s.store.StreamInfo(ctx, s.Stream)
	if err != nil || !info.Exists() {
		return 0, -1, err
	}
	return info.Metadata.MinVisible(info.Last), info.Last, nil
}
