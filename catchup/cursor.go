// Package catchup goes over the events of one stream, or of the log, page by page, and waits for
// more at the end. Live tails, subscriptions, groups and projections read through it.
//
// These rules hold for all of them:
//
//   - A page is what there is when it is read: between two pages there is no gap and no duplicate.
//   - An event that a scavenge removed between its page and its payload is as good as one that it
//     removed before: it is left out, and a link to it is dead (event.Resolved.Complete).
//   - A stream that is not there, because it was never written or is soft-deleted, is a page without
//     events at its end. What was in it then is gone for good, even if it is written again.
//   - A stream that is truncated beyond its end gets what is appended to it later.
//   - A stream that is hard-deleted is event.ErrStreamDeleted.
//   - A filter that fails for a record ends the page before it. The next page is the failure.
//   - One look never takes long, however little is found: see Look.
package catchup

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/event"
)

const (
	maxLook  = 20_000 // records of the log that one look takes
	slowLook = 16     // the same where each may take as long as match.Timeout
	maxGap   = 4096   // numbers of a stream that one look takes
)

// Store is the database as cursors see it. Its errors are those of package event.
type Store interface {
	// ReadStream reads a page. A stream that was never written, is soft-deleted or has only
	// metadata is event.ErrStreamNotFound, a hard-deleted one event.ErrStreamDeleted.
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)
	// ReadAll reads a page of the log. A position that was never handed out is
	// event.ErrBadPosition.
	ReadAll(ctx context.Context, r event.AllRead) (event.AllPage, error)
	// StreamInfo describes a stream without reading its events. It is cheap. A stream that was
	// never written is not an error: its Last and MetaLast are -1.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
	// LogEnd is the end of the log: all before it is seen by reads that begin later.
	LogEnd() int64
}

// Waiter waits for events. Both calls return the context's error when it ends first.
type Waiter interface {
	// WaitStream returns nil when the stream's last number is above after, or when it is
	// hard-deleted, a metadata stream with its original. A soft deletion ends no wait.
	WaitStream(ctx context.Context, stream string, after int64) error
	// WaitLog returns nil when the log's end is above a position.
	WaitLog(ctx context.Context, position int64) error
	// WaitQuery returns nil when there may be an event that a query asks for, at a position or
	// after it.
	WaitQuery(ctx context.Context, q *event.Query, from int64) error
}

// Cursor is a place in a stream or in the log, and what is known of it.
type Cursor struct {
	Store    Store
	Stream   string
	All      bool         // the log is read, not a stream
	Query    *event.Query // of the log, what matches it; nil: all of it. See event.AllRead
	Backward bool

	// Next is the number, or the position, that is read next. Backward the log is read from where a
	// record ends, event.End for the end of the log; a stream is read to its beginning when Next is
	// negative. A position above the end may come from a node that is ahead: it is waited for.
	Next int64
	// After leaves out the record of the log that begins at Next, if it is still there.
	After bool

	Seen    int64 // last number, or position, that was looked at; set it to -1, or to what is known
	Last    int64 // number of the last event of the stream when it was looked at
	Deleted bool  // the stream was soft-deleted then
}

// Look says how much one look at the stream or at the log takes.
type Look struct {
	Count      int              // at most so many events, above 0
	Links      event.LinkReader // as in event.StreamRead
	MaxPayload int
	Room       *event.Room

	// Of the log, as in event.AllRead.
	Filter func(stream, eventType string) (bool, error)
	Names  *event.FilterNames
	IsSlow bool // the filter may take as long as match.Timeout for a record
	// MaxScan bounds the records that are looked at, if it is above 0 and below the bound that
	// there is anyway.
	MaxScan int
}

// Page is what one look found.
type Page struct {
	Events []event.Resolved
	Looked int   // records of the log that were looked at
	Spared int64 // bytes of it that were passed over unseen
	More   bool  // there may be more at once
}

// Read looks at what comes next and moves past it. After an error the cursor stands where it was.
func (c *Cursor) Read(ctx context.Context, l *Look) (Page, error) {
	if c.All {
		return c.readLog(ctx, l)
	}
	return c.readStream(ctx, l)
}

func (c *Cursor) readStream(ctx context.Context, l *Look) (p Page, err error) {
	// First: what is found gone later may have been written in between.
	info, err := c.Store.StreamInfo(ctx, c.Stream)
	switch {
	case err != nil:
		return p, err
	case info.HardDeleted:
		return p, event.ErrStreamDeleted
	}
	c.Last, c.Deleted = info.Last, info.Last >= 0 && info.Metadata.SoftDeleted()
	if c.Backward {
		c.Next = min(c.Next, info.Last)
	}
	if info.Exists() && !c.mayHaveMore() {
		return p, nil
	}
	page, err := c.Store.ReadStream(ctx, event.StreamRead{
		Stream: c.Stream, From: max(0, c.Next), Count: l.Count, MaxScan: maxGap, Backward: c.Backward,
		Links: l.Links, MaxPayload: l.MaxPayload, Room: l.Room,
	})
	switch {
	case errors.Is(err, event.ErrStreamNotFound) && !info.Exists():
		if c.Next = max(c.Next, info.Last+1); c.Backward {
			c.Next = -1
		}
		return p, nil
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted):
		return c.readStream(ctx, l) // It was deleted in between.
	case err != nil:
		return p, err
	}
	c.Last, c.Deleted = page.Last, false
	switch {
	case c.Backward && page.Next < c.Next:
		c.Seen = page.Next + 1
	case page.Next > c.Next:
		c.Seen = page.Next - 1
	}
	c.Next = page.Next
	return Page{Events: page.Events, More: c.mayHaveMore()}, nil
}

// mayHaveMore reports whether a number of the stream was not looked at.
func (c *Cursor) mayHaveMore() bool {
	return c.Backward && c.Next >= 0 || !c.Backward && c.Next <= c.Last
}

func (c *Cursor) readLog(ctx context.Context, l *Look) (p Page, err error) {
	if !c.Backward && c.Next >= c.Store.LogEnd() {
		return p, nil
	}
	r := event.AllRead{
		From: c.Next, After: c.After, Count: l.Count, MaxScan: maxLook, Backward: c.Backward,
		Links: l.Links, Filter: l.Filter, Names: l.Names, Query: c.Query, MaxPayload: l.MaxPayload, Room: l.Room,
	}
	if l.IsSlow {
		r.MaxScan = slowLook
	}
	if l.MaxScan > 0 {
		r.MaxScan = min(r.MaxScan, l.MaxScan)
	}
	page, err := c.Store.ReadAll(ctx, r)
	switch {
	case err != nil:
		return p, err
	case page.Next != c.Next:
		c.Next, c.After = page.Next, false
	case page.Failed != nil:
		return p, page.Failed
	}
	if page.Last >= 0 {
		c.Seen = page.Last
	}
	return Page{Events: page.Events, Looked: page.Looked, Spared: page.Spared, More: page.More}, nil
}

// ReadAgain moves the cursor back to an event of the page that was read last, forward.
func (c *Cursor) ReadAgain(e *event.Resolved) {
	if c.Next = e.Number; c.All {
		c.Next = e.Position
	}
}

// Wait waits until there is more. It returns for a hard-deleted stream too.
func (c *Cursor) Wait(ctx context.Context, w Waiter) error {
	switch {
	case c.Query != nil:
		return w.WaitQuery(ctx, c.Query, c.Next)
	case c.All:
		return w.WaitLog(ctx, c.Next)
	}
	return w.WaitStream(ctx, c.Stream, max(c.Last, c.Next-1))
}

// Check returns event.ErrBadPosition if there never was a record of the log that begins at Next.
func (c *Cursor) Check(ctx context.Context) error {
	_, err := c.Store.ReadAll(ctx, event.AllRead{From: c.Next, Count: 1, MaxScan: 1, MaxPayload: 1})
	return err
}
