package subscription

import (
	"math"
	"time"

	"github.com/annalsdb/annals/event"
)

// ahead is how far a group has read ahead in its source.
type ahead struct {
	next    int64 // number of the next event to read
	until   int64 // position of the log before which nothing of the source is left to read
	known   int64 // newest number seen in the source, -1: none
	live    bool  // the end of the source was reached, and since then the buffer held all that came
	more    bool  // live, and there is something new to read
	reading bool  // a page is being read
	gone    bool  // the stream was hard-deleted: nothing can come any more
}

// load is the input that begins it all: the last checkpoint, where to begin to read, and the newest
// number that is known.
func (c *core) load(number, next, known int64, now time.Time) {
	c.checkpoint.number, c.checkpoint.at, c.last = number, now, number
	c.next, c.known, c.loaded = next, known, true
}

// errand is what reading ahead has to do next.
type errand uint8

const (
	readPage errand = iota
	awaitRoom
	awaitEvents // from ahead.next on
	awaitEnd    // of the group
)

func (c *core) errand() errand {
	if c.live && c.more && c.free() <= 0 {
		c.live, c.more = false, false // It is read again when there is room.
	}
	switch {
	case c.gone:
		return awaitEnd
	case !c.live && !c.mayFill():
		return awaitRoom
	case c.live && !c.more:
		return awaitEvents
	}
	return readPage
}

// free is the room of the buffer. A delayed message keeps its place in it, so that a group of whose
// messages none succeeds does not read on.
func (c *core) free() int { return c.settings.BufferSize - c.buffer.n - len(c.due) }

// mayFill reports whether there is room for a batch.
func (c *core) mayFill() bool {
	return c.buffer.n == 0 && c.free() > 0 || c.free() > c.settings.batch()
}

// wantsMore reports whether a reader that pulls may get new messages that are not in the buffer.
func (c *core) wantsMore() (isFilled, wants bool) {
	ok := c.loaded && c.paused == nil && c.mayHandOut()
	return ok && c.buffer.n > 0 && c.takeNext() != nil, ok && c.buffer.n == 0 && !c.gone && c.mayFill()
}

// arrive is the input that there is something new in the source.
func (c *core) arrive() { c.more = c.live }

// beginPage returns how much room there is for the page from next on; 0: none is to be read.
func (c *core) beginPage() (room int) {
	room = c.free()
	if !c.loaded || c.gone || room <= 0 || !c.live && !c.mayFill() {
		return 0
	}
	c.reading = true
	return room
}

// end is the input that nothing can come any more.
func (c *core) end() { c.gone, c.live, c.more, c.until = true, true, false, math.MaxInt64 }

// add puts the events of a batch into the buffer, and moves past the batch. The batch was read when
// payloads had been forgotten so often. It reports whether the group got any further.
func (c *core) add(b *batch, number func(*event.Record) int64, forgotten uint64) (progress bool) {
	before, wasLive := c.next, c.live
	c.known = max(c.known, b.known)
	messages := make([]message, len(b.events))
	for i := range b.events {
		m, e := &messages[i], &b.events[i]
		if c.forgotten != forgotten {
			*e = *withoutPayload(e)
		}
		c.seq++
		m.id, m.event, m.number, m.before, m.beforeAt, m.seq, m.bucket = e.ID, e, number(&e.Record), c.last, c.lastAt, c.seq, -1
		c.last, c.lastAt = m.number, e.Position
		c.buffer.pushBack(m)
	}
	c.seq += b.progress
	c.last, c.next, c.until = max(c.last, b.passed), b.next, max(c.until, b.until)
	if b.end {
		c.live, c.more = true, false
	}
	return c.next > before || c.live != wasLive || !c.more
}
