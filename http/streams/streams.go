// Package streams answers requests about streams and the log: appends, deletions, metadata, single
// events, pages of the log, places in time, and live tails.
package streams

import (
	"context"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/page"
	"github.com/annalsdb/annals/subscription"
)

// groupLister knows the groups of consumers of a stream.
type groupLister interface {
	List(ctx context.Context, stream string) ([]subscription.Info, error)
}

// Handlers answer requests about streams and the log.
type Handlers struct {
	Store          Store
	Waiter         Waiter
	Subscriptions  groupLister // nil: there are no groups
	Way            *leader.Way
	Pages          page.Pages
	MaxEventBytes  int
	MaxAppendBytes int64 // 0: no bound of its own

	tails atomic.Int64 // live ones
}

// Store writes to streams and reads them. Its errors are those of package event;
// a call that outlives its context returns the context's error.
type Store interface {
	// Write does w whole or not at all. On a node that does not lead it returns
	// *event.NotLeader or event.ErrNotReady.
	Write(ctx context.Context, w *event.Write) (event.Written, error)

	// ReadStream reads one page. A stream that was never written, is soft-deleted
	// or has only metadata is event.ErrStreamNotFound, a hard-deleted one
	// event.ErrStreamDeleted.
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)

	// ReadPayload reads data and metadata of a record that a page left bare;
	// event.ErrEventNotFound when they are gone.
	ReadPayload(ctx context.Context, r *event.Record) error

	// ReadEvent reads one event; event.Head asks for the last visible one. Besides
	// the errors of ReadStream it returns event.ErrEventNotFound.
	ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error)
	ReadEventUpTo(ctx context.Context, stream string, number int64, maxPayload int, links event.LinkReader) (event.Resolved, error)

	// ReadAll reads one page of the log.
	ReadAll(ctx context.Context, r event.AllRead) (event.AllPage, error)

	// PositionAt returns the position of the first record that was not written before a time,
	// in nanoseconds since 1970; LogEnd when there is none.
	PositionAt(ctx context.Context, time int64) (int64, error)

	// Names reads a page of the names of streams; *event.NamesNotListed while they are being
	// collected.
	Names(ctx context.Context, r event.NamesRead) (event.NamesPage, error)

	// StreamInfo describes a stream without reading its events. It is cheap. A stream that was
	// never written is not an error: its Last and MetaLast are -1.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)

	// LogEnd returns the position where the next record will lie.
	LogEnd() int64
}

// Waiter lets long polls wait. Both calls return the context's error when it ends first.
type Waiter interface {
	// WaitStream returns nil when the stream's last number is above after, or when it is
	// hard-deleted, a metadata stream with its original. A soft deletion ends no wait.
	WaitStream(ctx context.Context, stream string, after int64) error
	// WaitLog returns nil when the log's end is above position.
	WaitLog(ctx context.Context, position int64) error
}
