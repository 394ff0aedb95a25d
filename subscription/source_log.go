package subscription

import (
	"context"
	"fmt"
	"slices"

	"github.com/annalsdb/annals/event"
)

const (
	// passWindow is how many records that a filter leaves out count as one message for
	// checkpoints: without them a group that gets little would read all again after each
	// restart, and if each counted, it would write one for every few appends.
	passWindow = 32
	// slowStride is maxStride where each record may take as long as match.Timeout.
	slowStride = 16
	// hiddenTail bounds the search for the newest record that is shown.
	hiddenTail = 100
)

// logSource is the log, without hidden records, through the filter of the group.
type logSource struct {
	*ownStreams
	passed int // records that the filter left out, below passWindow
	// begun is the position after which reading resumed, -1: it began where the group does.
	begun int64
}

func (s *logSource) number(e *event.Record) int64 { return e.Position }

// after finds the record after a position. The record at the position may have been scavenged; then
// reading from there begins with the next one.
func (s *logSource) after(ctx context.Context, position int64) (int64, error) {
	s.begun = position
	page, err := s.store.ReadAll(ctx, event.AllRead{From: position, Count: 1, MaxScan: 1, MaxPayload: 1})
	if err != nil {
		return 0, err
	}
	if page.Last == position {
		return page.Next, nil
	}
	return position, nil
}

func (s *logSource) read(ctx context.Context, from int64, room int) (b batch, err error) {
	count := s.count(room)
	// The log shows events a moment before reads of streams do: links to them would be
	// dead, and consumers would not find them.
	settled := s.store.LogEnd()
	c := choice{definition: s.definition}
	stride := maxStride
	if s.names != nil && s.names.IsSlow() {
		stride = slowStride
	}
	page, err := s.store.ReadAll(ctx, event.AllRead{
		From: from, Count: count, Links: s.links(), Filter: c.takes, MaxScan: stride, MaxPayload: s.payload(count),
	})
	switch {
	case err != nil:
		return b, err
	case page.Failed != nil && page.Next == from:
		return b, page.Failed
	}
	n := len(page.Events)
	for n > 0 && page.Events[n-1].Position >= settled {
		n--
	}
	b = batch{events: page.Events[:n:n], known: -1, passed: -1}
	if n > 0 {
		b.known = page.Events[n-1].Position
	}
	b.events = slices.DeleteFunc(b.events, s.isOwn)
	if n < len(page.Events) { // The rest begins the next page.
		b.next = page.Events[n].Position
		b.end = b.next >= settled
		return b, nil
	}
	s.passed += c.passed
	b.next, b.end, b.passed, b.progress = page.Next, !page.More, page.Last, int64(s.passed/passWindow)
	s.passed %= passWindow
	return b, nil
}

// isOwn reports whether an event is the one that stored that the group begins at the end, or came
// before that. For a group that was updated and resumes after an older checkpoint it is an event as
// any other.
func (s *logSource) isOwn(e event.Resolved) bool {
	return e.Stream == configStream && e.Number <= s.storedIn && (s.begun < 0 || s.begun >= s.startAt)
}

// choice says which records of a page are the group's.
type choice struct {
	*definition
	passed int // that are shown to others
}

// takes is the filter of the page. A record that is never shown is not counted either: the
// checkpoints of groups would make each other write more.
func (c *choice) takes(stream, eventType string) (bool, error) {
	if c.names == nil {
		return true, nil
	}
	name := eventType
	if c.Settings.Filter.OfStream {
		name = stream
	}
	isChosen, err := c.names.Match(name)
	switch {
	case err != nil:
		return false, fmt.Errorf("filter by the name %.200q: %w", name, err)
	case !isChosen:
		c.passed++
	}
	return isChosen, nil
}

func (s *logSource) wait(ctx context.Context, from int64) error { return s.store.WaitLog(ctx, from) }

func (s *logSource) span(ctx context.Context) (oldest, newest int64, err error) {
	page, err := s.store.ReadAll(ctx, event.AllRead{From: s.store.LogEnd(), Backward: true, Count: 1, MaxScan: hiddenTail, MaxPayload: 1})
	if err != nil || len(page.Events) == 0 {
		return 0, -1, err
	}
	return 0, page.Events[0].Position, nil
}
