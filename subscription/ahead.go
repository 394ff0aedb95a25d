package subscription

import (
	"math"
	"time"

	"github.com/annalsdb/annals/event"
)

// ahead is how far a group has read ahead in its source. All up to last was looked at, and
// reading resumes at next. more is set in a live group alone: one that is not live reads in any
// case.
type ahead struct {
	last    int64 // number up to which all was read, the checkpoint at first
	lastAt  int64 // position of the log of the event with that number; -1: not known
	seq     int64 // messages read since the group was loaded, see batch.progress
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
func (a *ahead) arrive() { a.more = a.live }

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
func (a *ahead) end() { a.gone, a.live, a.more, a.until = true, true, false, math.MaxInt64 }

// reset has reading resume elsewhere, after a number.
func (a *ahead) reset(last, next int64) {
	a.last, a.lastAt, a.next, a.until, a.live, a.more = last, -1, next, 0, false, false
}

// look makes an event that was read a message, the last one up to now.
func (a *ahead) look(m *message, e *event.Resolved, number int64) {
	a.seq++
	m.id, m.event, m.number, m.before, m.beforeAt, m.seq, m.bucket = e.ID, e, number, a.last, a.lastAt, a.seq, -1
	a.last, a.lastAt = number, e.Position
}

// pass moves past a batch of which all messages were looked at. It reports whether the group got
// any further.
func (a *ahead) pass(b *batch) (progress bool) {
	before, wasLive := a.next, a.live
	a.known = max(a.known, b.known)
	a.seq += b.progress
	a.last, a.next, a.until = max(a.last, b.passed), b.next, max(a.until, b.until)
	if b.end {
		a.live, a.more = true, false
	}
	return a.next > before || a.live != wasLive || !a.more
}

// add puts the events of a batch into the buffer, and moves past the batch. The batch was read when
// payloads had been forgotten so often. It reports whether the group got any further.
func (c *core) add(b *batch, number func(*event.Record) int64, forgotten uint64) (progress bool) {
	messages := make([]message, len(b.events))
	for i := range b.events {
		m, e := &messages[i], &b.events[i]
		if c.forgotten != forgotten {
			*e = *withoutPayload(e)
		}
		c.look(m, e, number(&e.Record))
		c.buffer.pushBack(m)
	}
	return c.pass(b)
}
