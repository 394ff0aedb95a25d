package grpcapi

import (
	"context"
	"net/http"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
)

// Store writes to streams and reads them. Its errors are those of package event;
// a call that outlives its context returns the context's error.
type Store interface {
	// Write does w whole or not at all. On a node that does not lead it returns
	// *event.NotLeader or event.ErrNotReady.
	Write(ctx context.Context, w *event.Write) (event.Written, error)

	// Begin is Write for one who does not wait for each answer: the writes that a goroutine begins
	// are decided in that order. It does not block. wake, of capacity 1, is signalled when the
	// answer is there or ctx is over; a signal may also stand for another write, or for nothing.
	Begin(ctx context.Context, w *event.Write, wake chan<- struct{}) (Pending, error)

	// WriteAnywhere does w here or, on a node that does not lead, at the leader, with the errors
	// that it has there. Two that are on their way at a time may get there in either order. A
	// read-only replica returns *event.NotLeader, and so long as no leader is known it is
	// event.ErrNotReady.
	WriteAnywhere(ctx context.Context, w *event.Write) (event.Written, error)

	// ReadStream reads one page. A stream that was never written, is soft-deleted
	// or has only metadata is event.ErrStreamNotFound, a hard-deleted one
	// event.ErrStreamDeleted.
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)

	// ReadPayload reads data and metadata of a record that a page left bare;
	// event.ErrEventNotFound when they are gone.
	ReadPayload(ctx context.Context, r *event.Record) error

	// ReadEvent reads one event. Besides the errors of ReadStream it returns
	// event.ErrEventNotFound.
	ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error)

	// ReadAll reads one page of the log.
	ReadAll(ctx context.Context, r event.AllRead) (event.AllPage, error)

	// StreamInfo describes a stream without reading its events. It is cheap. A stream that was
	// never written is not an error: its Last and MetaLast are -1.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)

	// LogEnd returns the position where the next record will lie.
	LogEnd() int64

	// WaitStream returns nil when the stream's last number is above after, or when it is
	// hard-deleted.
	WaitStream(ctx context.Context, stream string, after int64) error
	// WaitLog returns nil when the log's end is above position.
	WaitLog(ctx context.Context, position int64) error

	// Tombstone reads the tombstone of a hard-deleted stream. A metadata stream has none of its
	// own: event.ErrEventNotFound.
	Tombstone(ctx context.Context, stream string) (event.Record, error)
}

// Pending is a write that was begun. Its answer must be collected.
type Pending interface {
	// Done returns the answer of Write if it is there: ok is true once, and Done must not be called
	// again then. With giveUp it is always true: writes without an answer get
	// event.ErrWriteTimeout.
	Done(giveUp bool) (written event.Written, err error, ok bool)
}

// Cluster knows who leads.
type Cluster interface {
	// Role is this node's state in lower case: "leader", "follower" and so on.
	Role() string
	// Redirect returns the base URI of the leader's client address. It is ok only
	// when this node is not the leader and knows who is.
	Redirect() (leader string, ok bool)
	// Confirm returns nil when this node was the leader at some time after the
	// call began and has applied all that was committed before it.
	Confirm(ctx context.Context) error
}

// Membership is the cluster as an operator sees it.
type Membership interface {
	// View is the cluster as this node knows it at the moment. It is prompt and
	// never waits for the network.
	View() event.ClusterView
	// SetPriority changes this node's priority in elections until it is restarted.
	SetPriority(priority int) error
	// Resign hands leadership over. It is also nil when no other node can take over, and when this
	// node does not lead.
	Resign(ctx context.Context) error
}

// Access knows callers and their rights.
type Access interface {
	// Authenticate names the caller: event.ErrNotAuthorized for wrong credentials,
	// event.ErrNotInitialized when they cannot be checked yet. A request without
	// credentials is an anonymous caller, not an error.
	Authenticate(r *http.Request) (access.Principal, error)
	// Renew returns the caller as it is now, with the errors of Authenticate.
	Renew(ctx context.Context, p access.Principal) (access.Principal, error)
	// CheckStream returns event.ErrNotAuthorized when the caller lacks the right.
	// The rights of a metadata stream are the metadata rights of its original.
	CheckStream(ctx context.Context, p access.Principal, stream string, right access.Right) error
	// MayRead reports whether the caller has the right to read a stream, of which info is what
	// is known. It decides which links are resolved.
	MayRead(ctx context.Context, p *access.Principal, stream string, info *event.StreamInfo) (bool, error)
}
