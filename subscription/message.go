package subscription

import (
	"time"

	"github.com/annalsdb/annals/event"
)

// state is where a message of a group is.
type state uint8

const (
	buffered    state = iota // read ahead, in group.buffer
	outstanding              // handed out, in group.out
	waiting                  // to be handed out again, in group.retry or group.replays
	parking                  // being written to the parked stream, in group.parking
	done                     // answered: the group has forgotten it
)

// message is one message of a group, guarded by the group's mutex. A group holds
// very many of them.
type message struct {
	id     event.ID
	event  *event.Resolved // another one when payloads are forgotten, but never changed itself
	number int64           // in the source, or in the stream of replays
	before int64           // number before it up to which all was read, -1: none
	seq    int64           // messages.seq with this one

	retries  int
	bucket   int16 // of a pinned strategy, -1: none yet
	replayed bool  // it comes from the parked stream
	state    state
	first    time.Time   // when it was handed out first
	given    time.Time   // when it was handed out last
	to       *Connection // who has it; nil: a reader that pulled
	givenUp  *givenUp    // parking only

	links [2]link
}

// givenUp is the stored form of a message that is being parked.
type givenUp struct {
	reason string
	id     event.ID // of the event that parks it
}

// handed returns the message as consumers get it.
func (m *message) handed() Message { return Message{ID: m.id, Event: m.event, Retries: m.retries} }

type link struct{ prev, next *message }

// The two lists that a message can be in at the same time.
const (
	byPlace  = 0 // where it is: state tells which list
	byNumber = 1 // those that were handed out and have no answer yet, by number
)

// list is a doubly linked list through messages; the zero value is an empty one
// that uses the links byPlace.
type list struct {
	head, tail *message
	n          int
	use        int // index of message.links
}

func (l *list) pushBack(m *message) { l.insertAfter(l.tail, m) }

// insertAfter puts m after at, which is in the list; nil: to its front.
func (l *list) insertAfter(at, m *message) {
	next := l.head
	if at != nil {
		next = at.links[l.use].next
		at.links[l.use].next = m
	} else {
		l.head = m
	}
	if next != nil {
		next.links[l.use].prev = m
	} else {
		l.tail = m
	}
	m.links[l.use] = link{prev: at, next: next}
	l.n++
}

// insertByNumber keeps the list in the order of numbers. Most messages belong near its end.
func (l *list) insertByNumber(m *message) {
	at := l.tail
	for at != nil && at.number > m.number {
		at = at.links[l.use].prev
	}
	l.insertAfter(at, m)
}

func (l *list) remove(m *message) {
	k := m.links[l.use]
	if k.prev != nil {
		k.prev.links[l.use].next = k.next
	} else {
		l.head = k.next
	}
	if k.next != nil {
		k.next.links[l.use].prev = k.prev
	} else {
		l.tail = k.prev
	}
	m.links[l.use] = link{}
	l.n--
}

func (l *list) next(m *message) *message { return m.links[l.use].next }
