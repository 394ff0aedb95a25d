package output

import (
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

// item is one event that waits to be written.
type item struct {
	event event.Proposed
	at    *position.Position // nil: its stream is settled, so that the position is not needed
	mark  bool
	to    *handler.Target // what it links to
	tells *place          // is given its number
	links *place          // it links to what has that place; its data are made when it is written
}

func (i *item) size() int64 {
	return int64(len(i.event.Type) + len(i.event.Data) + len(i.event.Metadata))
}

// place is the number of an event that is yet to be written, for those that link to it.
// The output's mutex guards it.
type place struct {
	stream string
	number int64 // gone: it is hidden already
	ready  bool
	blocks *stream // waits for it with its next event; nil: none
}

// gone is the number of an event that was not written, as it is hidden already.
const gone int64 = -1

// stream is the state of a stream that was emitted to. One worker at a time has it; the output's
// mutex guards the fields that a worker does not need.
type stream struct {
	name string
	from *position.Position // where comparing begins

	// Guarded by the mutex.
	queue      []item
	next       int   // the queue before it is done with
	event      int64 // that was emitted to it last, as the output counts them
	ordinal    int   // how many that event emitted to it
	busy       bool  // a worker has it
	settled    bool  // it was looked up, and has nothing that is yet to be emitted again
	in         *list
	prev, succ *stream

	// Belong to the worker that has it.
	seen   bool
	judged time.Time // when there was the right to write to it last
	last   int64     // number of its last event, -1 if there is none
	// position of its last event, where there are marks; nil: there is none
	lastAt   *position.Position
	recovery *recovery // what has yet to be emitted again; nil: nothing
}

// waits returns how many events wait.
func (s *stream) waits() int { return len(s.queue) - s.next }

// list is a list of streams. A stream is in one at most.
type list struct{ head, tail *stream }

// push adds a stream as the last.
func (l *list) push(s *stream) {
	s.in, s.prev, s.succ = l, l.tail, nil
	if l.tail == nil {
		l.head = s
	} else {
		l.tail.succ = s
	}
	l.tail = s
}

func (l *list) remove(s *stream) {
	if s.prev == nil {
		l.head = s.succ
	} else {
		s.prev.succ = s.succ
	}
	if s.succ == nil {
		l.tail = s.prev
	} else {
		s.succ.prev = s.prev
	}
	s.in, s.prev, s.succ = nil, nil, nil
}
