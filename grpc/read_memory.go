package grpcapi

import (
	"context"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

// A read claims a page of the memory of all requests before it reads it, and gives it back when
// it waits for events. Where there is no room it reads with few payloads, and the rest one by one.
const (
	sparePayload = 16 << 10
	weightyEvent = 64 << 10 // whose message is claimed as well
)

// roomFor claims a page and returns how many bytes of payloads may be read with it.
func (r *reading) roomFor(ctx context.Context) (maxPayload int, err error) {
	r.claim.Use(r.s.opts.Memory)
	r.claim.Release()
	r.one = 0
	if r.claim.Try(readPayload) {
		return readPayload, nil
	}
	if err := r.claim.Grow(ctx, sparePayload); err != nil {
		return 0, err
	}
	if r.room != nil { // It may be a large one.
		r.rooms.Put(r.room)
	}
	r.room = new(event.Room)
	return sparePayload, nil
}

// hasRead claims what a page took, and no more.
func (r *reading) hasRead(claimed int) {
	rest := int64(claimed) - api.RoomBytes(r.room)
	r.claim.Shrink(rest)
	r.claim.Add(-rest)
}

// claimEvent claims the message of an event, and what was read of it alone, in place of the
// event before it.
func (r *reading) claimEvent(ctx context.Context, e *event.Resolved, alone bool) error {
	bytes := int64(len(e.Data) + len(e.Metadata))
	if e.Target != nil {
		bytes += int64(len(e.Target.Data) + len(e.Target.Metadata))
	}
	if alone {
		bytes *= 2
	}
	r.claim.Shrink(r.one)
	if r.one = 0; bytes < weightyEvent {
		return nil
	}
	if err := r.claim.Grow(ctx, bytes); err != nil {
		return err
	}
	r.one = bytes
	return nil
}
