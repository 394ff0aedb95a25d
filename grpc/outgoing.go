package grpcapi

import (
	"context"
	"sync"

	"google.golang.org/grpc/mem"

	"github.com/annalsdb/annals/api"
)

// weightyEvent is from how many bytes on the message of an event is claimed. It stays in memory
// until its client takes it, and grpc-go takes the next one before: so its claim ends with its
// buffer.
const weightyEvent = 64 << 10

// outgoing are the claims of messages of a call that may not have gone out yet.
type outgoing struct {
	mu     sync.Mutex
	claims []*api.Claim
}

// make has a message encoded whose event has so many bytes, into a buffer of the pool that encode
// is given. The message of a large event is claimed first, until grpc-go is done with its buffer.
func (o *outgoing) make(ctx context.Context, memory *api.Memory, bytes int64, encode func(mem.BufferPool) (mem.Buffer, error)) (mem.Buffer, error) {
	if bytes < weightyEvent {
		return encode(mem.DefaultBufferPool())
	}
	room, err := o.claim(ctx, memory, bytes)
	if err != nil {
		return nil, err
	}
	b, err := encode(room)
	if b == nil {
		o.remove(room.claim)
	}
	return b, err
}

func (o *outgoing) claim(ctx context.Context, memory *api.Memory, bytes int64) (*claimedBuffer, error) {
	c := new(api.Claim)
	c.Use(memory)
	if err := c.Grow(ctx, bytes); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.claims = append(o.claims, c)
	return &claimedBuffer{of: o, claim: c}, nil
}

// release gives back the rest when a call has ended.
func (o *outgoing) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.claims {
		c.Release()
	}
	o.claims = nil
}

func (o *outgoing) remove(claim *api.Claim) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, c := range o.claims {
		if c == claim {
			o.claims = append(o.claims[:i], o.claims[i+1:]...)
			break
		}
	}
	claim.Release()
}

// claimedBuffer is the pool of one buffer, which is as large as it must be.
type claimedBuffer struct {
	of    *outgoing
	claim *api.Claim
}

// Get returns the buffer.
func (c *claimedBuffer) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put ends the claim.
func (c *claimedBuffer) Put(*[]byte) { c.of.remove(c.claim) }
