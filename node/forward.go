package node

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/annalsdb/annals/event"
)

// Bounds of the clients' writes that are on their way to the leader at a time. On the
// leader its queue bounds them.
const (
	maxForwarded      = 8192
	maxForwardedBytes = 64 << 20
)

// arrival is how long the answer to a write waits at most for this node to hold the leader's write.
// Followers hear of it within milliseconds.
const arrival = time.Second

// forwards counts the writes of clients that this node has the leader do.
type forwards struct {
	mu    sync.Mutex // guards the fields below
	count int
	bytes int
}

// enter makes room for a write of so many bytes, if there is some.
func (f *forwards) enter(bytes int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count >= maxForwarded || f.count > 0 && f.bytes+bytes > maxForwardedBytes {
		return false
	}
	f.count++
	f.bytes += bytes
	return true
}

func (f *forwards) leave(bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count--
	f.bytes -= bytes
}

// WriteAnywhere does a client's write here if this node leads, and else has the leader do it,
// with the errors that it has there. The client's rights were looked at on this node.
//
// While no leader is known it fails with event.ErrNotReady at once. When the leader changes
// meanwhile the next one gets the write, as long as ctx lasts, if the one before did nothing or the
// ids of its events make it safe to send it again; else the outcome is unknown
// (event.ErrOutcomeUnknown, event.ErrWriteTimeout). A read-only replica passes nothing on:
// *event.NotLeader. Two writes that are on their way at a time may reach the leader in either
// order. The answer waits a moment for this node's log, so that a client which knows this node
// alone reads what it wrote.
//
// As with Write, w must not be changed before it returns, and after event.ErrWriteTimeout never.
func (s *store) WriteAnywhere(ctx context.Context, w *event.Write) (event.Written, error) {
	if l, _ := s.cluster.Leadership(); l.Leading {
		written, err := s.Write(ctx, w)
		if _, moved := errors.AsType[*event.NotLeader](err); !moved {
			return written, err
		}
	}
	if _, known := s.cluster.LeaderAddress(); !known {
		return event.Written{}, event.ErrNotReady
	}
	if s.readOnly {
		address, _ := s.cluster.Redirect()
		return event.Written{}, &event.NotLeader{Address: address, ReadOnly: true}
	}
	size := w.Size()
	if !s.forwards.enter(size) {
		return event.Written{}, event.ErrBusy
	}
	defer s.forwards.leave(size)
	written, err := s.cluster.Writes.Write(ctx, w)
	s.arrived(ctx, w.Stream, written, err)
	return written, err
}

// arrived waits a moment until this node's log holds a write that is done, or the version that kept
// it from being done.
func (s *store) arrived(ctx context.Context, stream string, written event.Written, err error) {
	ctx, cancel := context.WithTimeout(ctx, arrival)
	defer cancel()
	// The write is decided, whatever becomes of this.
	if violations, ok := errors.AsType[*event.Violations](err); ok {
		_ = s.WaitLog(ctx, violations.Position)
	} else if version, ok := errors.AsType[*event.WrongExpectedVersion](err); ok {
		_ = s.WaitStream(ctx, stream, version.Current-1)
	} else if err == nil {
		_ = s.WaitLog(ctx, written.Position)
	}
}
