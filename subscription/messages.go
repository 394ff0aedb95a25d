package subscription

import (
	"time"

	"github.com/annalsdb/annals/event"
)

// messages are those of a group, each in one of the lists by its state. The group's mutex guards
// them.
type messages struct {
	buffer  list // read ahead, in order
	retry   list // to be handed out again, by number
	replays list // likewise, of replayed messages: those come later
	// handed out; the timeout is the same for all, so this is the order of deadlines
	out list
	// to be written to the parked stream, in the order in which that was decided
	parking           list
	tracked           map[event.ID]*message
	unanswered        list  // by number: handed out and not answered, wherever they are
	unansweredReplays list  // by their number in the stream of replays
	last              int64 // number up to which all was read, the checkpoint at first
	seq               int64 // messages read since the group was loaded, see batch.progress
	replayEnd         int64 // number after the last in the stream of replays
	answered          bool  // some were, since the group has looked at it

	forgotten uint64 // how often payloads were
}

func (s *messages) begin() {
	s.unanswered.use, s.unansweredReplays.use, s.last = byNumber, byNumber, -1
}

// takeNext returns the message to be handed out next: first retries, oldest first, then replayed
// messages, then new ones.
func (s *messages) takeNext() *message {
	for _, l := range []*list{&s.retry, &s.replays, &s.buffer} {
		if m := l.head; m != nil && (l != &s.buffer || s.mayHandOut()) {
			return m
		}
	}
	return nil
}

// mayHandOut reports whether another new message may go out.
func (s *messages) mayHandOut() bool { return s.unanswered.n+s.unansweredReplays.n < maxUnanswered }

// track remembers a message until it is answered.
func (s *messages) track(m *message) {
	if s.tracked == nil {
		s.tracked = make(map[event.ID]*message)
	}
	s.tracked[m.id] = m
	if m.replayed {
		s.unansweredReplays.insertByNumber(m)
	} else {
		s.unanswered.insertByNumber(m)
	}
}

// listOf returns the list that a message is in by its state.
func (s *messages) listOf(m *message) *list {
	switch m.state {
	case outstanding:
		return &s.out
	case waiting:
		if m.replayed {
			return &s.replays
		}
		return &s.retry
	case parking:
		return &s.parking
	}
	return &s.buffer
}

// takeBack takes an outstanding message away from its consumer.
func (s *messages) takeBack(m *message) {
	s.out.remove(m)
	if m.to != nil {
		m.to.returned(m)
		m.to = nil
	}
}

// forget ends a message that is in no list by its place any more.
func (s *messages) forget(m *message) {
	m.state = done
	delete(s.tracked, m.id)
	if m.replayed {
		s.unansweredReplays.remove(m)
	} else {
		s.unanswered.remove(m)
	}
	s.answered = true
}

// wait puts a message that is in no list by its place where retries wait.
func (s *messages) wait(m *message) {
	m.state = waiting
	s.listOf(m).insertByNumber(m)
}

// position returns the number that a checkpoint may have now, and how many
// messages were read up to it: everything up to there is answered. It lies before
// the oldest message that is not, or was not handed out; replayed messages do not
// count. -1: there is none.
func (s *messages) position() (number, seq int64) {
	number, seq = s.last, s.seq
	if m := s.unanswered.head; m != nil {
		number, seq = m.before, m.seq-1
	}
	if m := s.buffer.head; m != nil && m.number <= number {
		number, seq = m.before, m.seq-1
	}
	return number, seq
}

// oldestOutstanding returns when the oldest message without an answer was handed
// out first; zero: there is none.
func (s *messages) oldestOutstanding() (oldest time.Time) {
	for _, m := range []*message{s.unanswered.head, s.unansweredReplays.head} {
		if m != nil && !m.first.IsZero() && (oldest.IsZero() || m.first.Before(oldest)) {
			oldest = m.first
		}
	}
	return oldest
}

// answeredReplays returns the number before which all replayed messages are answered.
func (s *messages) answeredReplays() int64 {
	if m := s.unansweredReplays.head; m != nil {
		return m.number
	}
	return s.replayEnd
}
