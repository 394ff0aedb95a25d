package grpcapi

import (
	"context"
	"errors"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

// A read claims a page of the memory of all requests before it reads it, and gives it back when
// it waits for events. Where there is no room it reads with few payloads, and the rest one by one.
const (
	sparePayload = 16 << 10
)

// roomFor claims a page and returns how many bytes of payloads may be read with it.
func (r *reading) roomFor(ctx context.Context) (maxPayload int, err error) {
	r.claim.Use(r.s.opts.Memory)
	r.claim.Release()
	if r.claim.Try(readPayload) {
		return readPayload, nil
	}
	if err := r.claim.Grow(ctx, sparePayload); err != nil {
		return 0, err
	}
	if r.room != nil { // It may be a large one.
		r.s.rooms.Put(r.room)
	}
	r.room = new(event.Room)
	return sparePayload, nil
}

// hasRead claims the memory that a page took, and no more.
func (r *reading) hasRead(claimed int) {
	rest := int64(claimed) - api.RoomBytes(r.room)
	r.claim.Shrink(rest)
	r.claim.Add(-rest)
}

// event sends the message of an event, with what its page left out. It is false when a scavenge
// removed the event meanwhile.
func (r *reading) event(ctx context.Context, e *event.Resolved) (isThere bool, err error) {
	bytes := int64(e.PayloadBytes())
	return r.rights.call.send(ctx, bytes, &r.out, func() (*[]byte, error) {
		if e.IsBare() { // Then it is read alone, and let go of as soon as it is encoded.
			if err := r.claim.Grow(ctx, bytes); err != nil {
				return nil, err
			}
			defer r.claim.Shrink(bytes)
		}
		whole, err := e.Complete(func(rec *event.Record) error { return r.s.opts.Store.ReadPayload(ctx, rec) })
		switch {
		case errors.Is(err, event.ErrEventNotFound):
			return nil, nil
		case err != nil:
			return nil, err
		}
		return r.words.one(whole), nil
	})
}
