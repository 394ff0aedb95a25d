package subscription

import (
	"time"

	"github.com/annalsdb/annals/event"
)

// state is where a message of a group is.
type state uint8

const (
	buffered    state = iota // read ahead, in core.buffer
	outstanding              // handed out, in core.out
	waiting                  // to be handed out again, in core.retry or core.replays
	delayed                  // likewise, but later, in core.due
	parking                  // being written to the parked stream, in core.parking
	done                     // answered: it is forgotten
)

// message is one message of a group, guarded by the group's mutex. A group holds
// very many of them.
type message struct {
	id     event.ID
	event  *event.Resolved // another one when payloads are forgotten, but never changed itself
	number int64           // in the source, or in the stream of replays
	before int64           // number before it up to which all was read, -1: none
	seq    int64           // ahead.seq with this one
	// position of the log of the event with the number before; -1: not known
	beforeAt int64

	retries  int
	bucket   int16 // of a pinned strategy, -1: none yet
	replayed bool  // it comes from the parked stream
	isLetGo  bool  // the group was moved while it was being parked
	state    state
	first    time.Time // when it was handed out first
	given    time.Time // when it was handed out last
	due      time.Time // when it may be handed out again; delayed only
	to       *consumer // who has it; nil: a reader that pulled
	reason   *string   // why it was given up; parking only

	links [2]link
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

// messages are those of a group. Each is in one of the lists by its state.
type messages struct {
	buffer  list // read ahead, in order
	retry   list // to be handed out again, by number
	replays list // likewise, of replayed messages: those come later
	// handed out; the timeout is the same for all, so this is the order of deadlines
	out        list
	parking    givenUp
	tracked    map[event.ID]*message
	unanswered list // by number: handed out and not answered, wherever they are
	copied     copied
	delays
}

// track remembers a message until it is answered.
func (s *messages) track(m *message) {
	if s.tracked == nil {
		s.tracked = make(map[event.ID]*message)
	}
	s.tracked[m.id] = m
	s.byNumber(m).insertByNumber(m)
}

// byNumber returns the list of messages without an answer that a message belongs to.
func (s *messages) byNumber(m *message) *list {
	if m.replayed {
		return &s.copied.unanswered
	}
	return &s.unanswered
}

// listOf returns the list that a message is in by its state, unless it is delayed.
func (s *messages) listOf(m *message) *list {
	switch {
	case m.state == outstanding:
		return &s.out
	case m.state == waiting && m.replayed:
		return &s.replays
	case m.state == waiting:
		return &s.retry
	case m.state == parking:
		return &s.parking.list
	}
	return &s.buffer
}

// wait puts a message that is in no list by its place where retries wait.
func (s *messages) wait(m *message) {
	m.state = waiting
	s.listOf(m).insertByNumber(m)
}

// oldestOutstanding returns when the oldest message without an answer was handed out first, or the
// oldest that is not delayed; zero: there is none.
func (s *messages) oldestOutstanding(isNow bool) (oldest time.Time) {
	for _, l := range []*list{&s.unanswered, &s.copied.unanswered} {
		m := l.head
		for isNow && m != nil && m.state == delayed {
			m = l.next(m)
		}
		if m != nil && !m.first.IsZero() && (oldest.IsZero() || m.first.Before(oldest)) {
			oldest = m.first
		}
	}
	return oldest
}
