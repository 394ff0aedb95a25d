package grpcapi

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/annalsdb/annals/api"
)

// Bounds of messages that clients have not taken, in bytes. grpc-go takes a message from its method
// before the client takes it, up to 64 KiB and one message more for each call.
const (
	// weightyEvent is from how many bytes on the message of an event is claimed.
	weightyEvent = 64 << 10
	// muchUnsent is how much of a connection goes unclaimed, and may stay behind calls that ended.
	muchUnsent = 1 << 20
	// leastRoom is from where on grpc-go says when it is done with a buffer.
	leastRoom = 1<<10 + 1
)

// outgoing are the messages of a call that its client may not have taken yet.
type outgoing struct {
	conn   *conn
	unsent atomic.Int64  // bytes
	taken  chan struct{} // capacity 1: there are none
}

// make has a message encoded whose event has so many bytes, into a buffer of the pool that encode
// is given. It is claimed first if it is large, or if its client is slow, until grpc-go is done with
// the buffer.
func (o *outgoing) make(ctx context.Context, memory *api.Memory, bytes int64, encode func(mem.BufferPool) (mem.Buffer, error)) (mem.Buffer, error) {
	r := &room{of: o}
	if bytes >= weightyEvent || o.conn.unsent.Load() > muchUnsent {
		r.claim = new(api.Claim)
		r.claim.Use(memory)
		if err := r.claim.Grow(ctx, bytes); err != nil {
			return nil, err
		}
		o.conn.hold(r.claim)
	}
	b, err := encode(r)
	if b == nil {
		r.release()
	}
	return b, err
}

// wait returns when the client has taken all messages, or the call is over.
func (o *outgoing) wait(ctx context.Context) {
	for o.unsent.Load() > 0 {
		select {
		case <-o.taken:
		case <-ctx.Done():
			return
		}
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
	r.of.unsent.Add(r.size)
	r.of.conn.unsent.Add(r.size)
	return b
}

// Put takes it back: grpc-go has written it, or the call is over.
func (r *room) Put(b *[]byte) {
	r.release()
	mem.DefaultBufferPool().Put(b)
}

func (r *room) release() {
	if r.claim != nil {
		r.of.conn.drop(r.claim)
	}
	r.of.conn.unsent.Add(-r.size)
	if r.of.unsent.Add(-r.size) == 0 {
		signal(r.of.taken)
	}
}
