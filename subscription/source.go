package subscription

import (
	"context"
	"fmt"
	"slices"

	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
)

const (
	// groupPayload bounds the data and metadata that a group holds of messages that it
	// read ahead: each page gets a share of it as large as its share of the buffer.
	// Events beyond that stay bare, and their rest is read when they are handed to a
	// consumer. Events are far smaller as a rule, and all of them are whole.
	groupPayload = 16 << 20
	// passWindow is how many records that a filter leaves out count as one message for
	// checkpoints: without them a group that gets little would read all again after each
	// restart, and if each counted, it would write one for every few appends. Records that are
	// never shown do not count: the checkpoints of groups would make each other write more.
	passWindow = 32
	// passBytes is the same for what lies between the events that were found without a look at it.
	passBytes = 16 << 10
	// hiddenTail bounds the search for the newest record that is shown.
	hiddenTail = 100
)

// source is the stream or log that a group subscribes to. Its events have numbers that rise: those
// of the stream, or their positions in the log. Only one caller at a time reads.
type source struct {
	*ownStreams
	stream string
	all    bool               // the log, through the filter of the group
	index  *event.Query       // or an index, which is a part of the log
	chosen *event.FilterNames // by the filter of the group
	passed int                // records that the filter left out, below passWindow after a page
	spared int64              // bytes that were passed over, below passBytes after a page
	// begun is the position of the log after which reading resumed, -1: it began where the group
	// does, or at the start.
	begun int64
	// own is the number of the event that stored that the group begins at the end: it and those
	// before it do not come. -1: they do.
	own int64
}

// batch is a part that was read of a source.
type batch struct {
	events   []event.Resolved
	next     int64 // where the next read begins
	end      bool  // there was nothing after it
	known    int64 // newest number seen, -1: none
	passed   int64 // a number up to which there is nothing else: a checkpoint may name it; -1: none
	progress int64 // how many messages that counts as, besides the events
	until    int64 // position of the log before which nothing of the source is left to read
}

func newSource(s *ownStreams) source {
	// A name that is not an index was refused when the group was made.
	index, _ := s.reads().index(s.Settings.Filter)
	stream := s.reads().Stream
	of := source{ownStreams: s, stream: stream, all: stream == event.AllStream || index != nil, index: index, begun: -1, own: s.storedIn}
	if s.names != nil {
		of.chosen = of.filterNames()
	}
	return of
}

// filterNames returns what the filter of the group is to those who look for events by names.
func (s *source) filterNames() *event.FilterNames {
	return &event.FilterNames{NameFilter: s.names, OfStream: s.Settings.Filter.OfStream}
}

// number returns the number of an event.
func (s *source) number(e *event.Record) int64 {
	if s.all {
		return e.Position
	}
	return e.Number
}

// resume returns where to begin after an event that existed once; -1: at the start.
func (s *source) resume(number int64) (next int64) {
	if s.begun = -1; !s.all {
		return number + 1
	}
	if number < s.startAt {
		s.own = -1
	}
	s.begun = number
	return max(0, number)
}

// read reads the events from a number on, at most so many. event.ErrStreamDeleted says that nothing
// can come any more. Links are resolved for all consumers; what of that a consumer may see is
// decided when it gets a message.
func (s *source) read(ctx context.Context, from int64, room int) (b batch, err error) {
	count := min(s.Settings.batch(), room)
	at := catchup.Cursor{Store: s.store, Stream: s.stream, All: s.all, Query: s.index, Next: from, After: s.all && from == s.begun, Seen: -1, Last: -1}
	look := catchup.Look{Count: count, MaxPayload: max(1, groupPayload/max(1, s.Settings.BufferSize)*count)}
	if s.Settings.ResolveLinks && s.index == nil {
		look.Links = event.EveryLink
	}
	before, end := s.passed, s.store.LogEnd()
	if s.names != nil && s.index == nil {
		look.IsSlow, look.Filter, look.Names = s.names.IsSlow(), s.chooses, s.chosen
	}
	page, err := at.Read(ctx, &look)
	if err != nil {
		s.passed = before
		return b, err
	}
	b = batch{events: page.Events, next: at.Next, end: !page.More, known: at.Last, passed: -1}
	switch n := len(page.Events); {
	case b.end:
		b.until = end
	case s.all:
		b.until = at.Seen + 1
	case n > 0:
		b.until = page.Events[n-1].Position + 1
	}
	if !s.all {
		return b, nil
	}
	if n := len(page.Events); n > 0 {
		b.known = page.Events[n-1].Position
	}
	b.events = slices.DeleteFunc(b.events, s.isOwn)
	s.spared += page.Spared
	b.passed, b.progress = at.Seen, int64(s.passed/passWindow)+s.spared/passBytes
	s.passed %= passWindow
	s.spared %= passBytes
	return b, nil
}

// chooses is the filter of the group. It counts what it leaves out.
func (s *source) chooses(stream, eventType string) (bool, error) {
	isChosen, err := s.matches(stream, eventType)
	if err == nil && !isChosen {
		s.passed++
	}
	return isChosen, err
}

// matches is the filter of the group.
func (s *source) matches(stream, eventType string) (bool, error) {
	name := eventType
	if s.Settings.Filter.OfStream {
		name = stream
	}
	isChosen, err := s.names.Match(name)
	if err != nil {
		return false, fmt.Errorf("filter by the name %.200q: %w", name, err)
	}
	return isChosen, nil
}

// isOwn reports whether an event is the one that stored that the group begins at the end, or came
// before that. For a group that resumes after an older checkpoint, or at one, it is an event as any
// other.
func (s *source) isOwn(e event.Resolved) bool {
	return e.Stream == configStream && e.Number <= s.own
}

// wait returns nil when there may be something from a number on.
func (s *source) wait(ctx context.Context, from int64) error {
	switch {
	case s.index != nil:
		return s.store.WaitQuery(ctx, s.index, from)
	case s.all:
		return s.store.WaitLog(ctx, from)
	}
	return s.store.WaitStream(ctx, s.stream, from-1)
}

// span returns the numbers of the oldest and of the newest event, as far as one can tell cheaply;
// newest -1: there is none, or it is not known.
func (s *source) span(ctx context.Context) (oldest, newest int64, err error) {
	if s.all {
		page, err := s.store.ReadAll(ctx, event.AllRead{Query: s.index, From: event.End, Backward: true, Count: 1, MaxScan: hiddenTail, MaxPayload: 1})
		if err != nil || len(page.Events) == 0 {
			return 0, -1, err
		}
		return 0, page.Events[0].Position, nil
	}
	info, err := s.store.StreamInfo(ctx, s.stream)
	if err != nil || !info.Exists() {
		return 0, -1, err
	}
	return info.Metadata.MinVisible(info.Last), info.Last, nil
}
