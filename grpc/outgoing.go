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
	// leastRoom is from where on grpc-go says when it is done with a buffer.
	leastRoom = 1<<10 + 1
)

// outgoing are the messages of a call that its client may not have taken yet.
type outgoing struct {
	conn  *conn
	taken chan struct{} // capacity 1: one was taken

	mu    sync.Mutex // guards the fields below
	rooms []*room    // of those messages
}

// make has a message encoded whose event has so many bytes, into a buffer of the pool that encode
// is given. It is claimed first if it is large, or if its client is slow, until grpc-go is done
// with the buffer.
func (o *outgoing) make(ctx context.Context, memory *api.Memory, bytes int64, encode func(mem.BufferPool) (mem.Buffer, error)) (mem.Buffer, error) {
	r := &room{of: o}
	if bytes >= weightyEvent || o.conn.unsent.Load() > muchUnsent {
		r.claim = new(api.Claim)
		r.claim.Use(memory)
		if err := r.claim.Grow(ctx, bytes); err != nil {
			return nil, err
		}
	}
	o.mu.Lock()
	o.rooms = append(o.rooms, r)
	o.mu.Unlock()
	b, err := encode(r)
	if b == nil {
		o.free(r)
	}
	return b, err
}

// free gives back what a message takes, once.
func (o *outgoing) free(r *room) {
	o.mu.Lock()
	at := slices.Index(o.rooms, r)
	if at >= 0 {
		o.rooms = slices.Delete(o.rooms, at, at+1)
	}
	o.mu.Unlock()
	if at >= 0 {
		r.release()
		signal(o.taken)
	}
}

// mustWait reports whether the call may not end before its client has taken the messages.
func (o *outgoing) mustWait() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.rooms) > 0 && (o.conn.unsent.Load() > muchUnsent || slices.ContainsFunc(o.rooms, func(r *room) bool { return r.claim != nil }))
}

// end waits until the client has taken what must be taken. When the call is over before, grpc-go
// drops what is left, and does not always say so.
func (o *outgoing) end(ctx context.Context) {
	for o.mustWait() && ctx.Err() == nil {
		select {
		case <-o.taken:
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		return
	}
	o.mu.Lock()
	rooms := o.rooms
	o.rooms = nil
	o.mu.Unlock()
	for _, r := range rooms {
		r.release()
	}
}

// room is the pool of one buffer.
type room struct {
	of    *outgoing
	claim *api.Claim // nil: it is not claimed
	size  int64
}

// Get returns the buffer.
func (r *room) Get(length int) *[]byte {
	b := mem.DefaultBufferPool().Get(max(length, leastRoom))
	*b = (*b)[:length]
	r.size = int64(length)
	r.of.conn.unsent.Add(r.size)
	return b
}

// Put takes it back: grpc-go has written it, or dropped it.
func (r *room) Put(b *[]byte) {
	r.of.free(r)
	mem.DefaultBufferPool().Put(b)
}

func (r *room) release() {
	if r.claim != nil {
		r.claim.Release()
	}
	r.of.conn.unsent.Add(-r.size)
}
