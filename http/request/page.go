package request

import (
	"context"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
)

// A page of 4,096 events may hold many gigabytes, but it is never held whole: reads
// leave out the data of events beyond the first maxPagePayload bytes, which are then
// read one event at a time as they are written, and text beyond atom.MaxText is sent
// before the rest is written. Pages below both, as nearly all are, go out in one Write
// with their length.
const maxPagePayload = 8 << 20

// Page is the memory of the page that answers a request. Each of its three amounts is part of the
// request's claim and covers bytes that are there now: what is given up or read again leaves the
// claim before its successor enters it, so that a request holds one page at a time, however many a
// long poll reads.
type Page struct {
	Room event.Room // that reads fill

	claim   *api.Claim
	payload int64 // of the room, with the data that was read into it
	text    int64 // of what is written and not yet sent
	bare    int64 // of the one event that is read by itself
}

// Reading claims room for a page of so many events and returns how many bytes of
// payloads may be read with it.
func (p *Page) Reading(ctx context.Context, count int) (maxPayload int, err error) {
	p.claim.Shrink(p.payload) // Of the page before, of a poll that looks again.
	p.payload = min(maxPagePayload, int64(count)*EventPayload)
	if p.claim.Try(p.payload) {
		return int(p.payload), nil
	}
	p.payload = 0
	if err := p.claim.Grow(ctx, sparePayload); err != nil {
		return 0, err
	}
	p.payload = sparePayload
	p.Room = event.Room{} // The one that was there may be large.
	return sparePayload, nil
}

// Read claims the memory that a page took, and no more.
func (p *Page) Read() {
	rest := p.payload - api.RoomBytes(&p.Room)
	p.claim.Shrink(rest)
	p.claim.Add(-rest)
	p.payload -= rest
}

// holds reports whether there is room for the text so far, and claims it.
func (p *Page) holds(text []byte) bool {
	more := 2*int64(len(text)) - p.text
	if more > 0 {
		if !p.claim.Try(more) {
			return false
		}
		p.text += more
	}
	return true
}

// takeBare claims memory for an event that is read by itself.
func (p *Page) takeBare(ctx context.Context, bytes int64) error {
	if err := p.claim.Grow(ctx, bytes); err != nil {
		return err
	}
	p.bare = bytes
	return nil
}

// dropBare gives back what takeBare claimed.
func (p *Page) dropBare() {
	p.claim.Shrink(p.bare)
	p.bare = 0
}

// emptied is the room of the page for that of the next request, unless it is large.
func (p *Page) emptied() event.Room {
	room := p.Room
	if cap(room.Block) > maxPooledBuffer/2 || cap(room.Events) > maxPooledEvents {
		return event.Room{}
	}
	clear(room.Events) // Each holds on to blocks that came before the last one.
	room.Events = room.Events[:0]
	return room
}
