package grpcapi

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/annalsdb/annals/api"
)

// Bounds of messages that clients have not taken, in bytes. grpc-go takes a message from its method
// before the client takes it, up to 64 KiB and one message more for each call.
const (
	// weightyEvent is from how many bytes on the message of an event is claimed.
	weightyEvent = 64 << 10
	// muchUnsent is how much of a connection goes unclaimed, and may stay after calls have ended.
	muchUnsent = 1 << 20
)

// outgoing are the messages of a call that its client may not have taken yet.
type outgoing struct {
	conn  *conn
	taken chan struct{} // capacity 1: one was taken

	mu    sync.Mutex // guards the fields below
	rooms []room     // of those messages, in the order in which they are written
}

// room is what a message takes until it is written. grpc-go may hold it compressed.
type room struct {
	claim *api.Claim // nil: it is not claimed
	size  int64
}

// make has a message encoded whose event has so many bytes, to be sent next. It is claimed first if
// it is large, or if its client is slow, until it is written.
func (o *outgoing) make(ctx context.Context, memory *api.Memory, bytes int64, encode func(mem.BufferPool) (mem.Buffer, error)) (mem.Buffer, error) {
	r := room{}
	if bytes >= weightyEvent || o.conn.unsent.Load() > muchUnsent {
		r.claim = new(api.Claim)
		r.claim.Use(memory)
		if err := r.claim.Grow(ctx, bytes); err != nil {
			return nil, err
		}
	}
	b, err := encode(mem.DefaultBufferPool())
	if b == nil {
		if r.claim != nil {
			r.claim.Release()
		}
		return nil, err
	}
	r.size = int64(b.Len())
	o.conn.unsent.Add(r.size)
	o.mu.Lock()
	o.rooms = append(o.rooms, r)
	o.mu.Unlock()
	return b, err
}

// took notes that the first of the messages was written.
func (o *outgoing) took() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.rooms) > 0 { // Else the call has ended.
		o.release(o.rooms[0])
		o.rooms = slices.Delete(o.rooms, 0, 1)
		signal(o.taken)
	}
}

// unsent notes that the last of the messages will not be written.
func (o *outgoing) unsent() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if last := len(o.rooms) - 1; last >= 0 {
		o.release(o.rooms[last])
		o.rooms = o.rooms[:last]
	}
}

// mustWait reports whether the call may not end before its client has taken the messages.
func (o *outgoing) mustWait() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.rooms) > 0 && (o.conn.unsent.Load() > muchUnsent || slices.ContainsFunc(o.rooms, func(r room) bool { return r.claim != nil }))
}

// end waits until the client has taken what must be taken.
func (o *outgoing) end(ctx context.Context) {
	for o.mustWait() && ctx.Err() == nil {
		select {
		case <-o.taken:
		case <-ctx.Done():
		}
	}
}

// drop gives back what is left: grpc-go has dropped it.
func (o *outgoing) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.rooms {
		o.release(r)
	}
	o.rooms = nil
}

func (o *outgoing) release(r room) {
	if r.claim != nil {
		r.claim.Release()
	}
	o.conn.unsent.Add(-r.size)
}
