package subscription

import (
	"fmt"
	"slices"
	"time"

	"github.com/annalsdb/annals/event"
)

// maxUnanswered bounds the messages of one group that were handed out and have no answer. Beyond it
// no new message is handed out, but retries continue.
const maxUnanswered = 100_000

// core is what a group knows of its messages and consumers, and what it decides about them. It is
// pure: its inputs are its methods, which do not wait, read no clock and ask no store; what has to
// be done because of them is what settle returns. The group that owns it does that, and guards it
// with its mutex.
type core struct {
	settings  *Settings
	strategy  strategy
	consumers []*consumer
	loaded    bool
	paused    *Pause // nil: it is not

	ahead
	checkpoint checkpoint
	replay     replay

	messages
	forgotten  uint64 // how often payloads were
	statistics statistics
	counts     counts // since settle was called
}

// effects are what follows from the inputs of a core. Each of the writes is returned once, and
// again after its result was an input.
type effects struct {
	park       []*message // write these to the parked stream; then parked
	checkpoint bool       // write a checkpoint where position says; then checkpointed
	trim       int64      // truncate the stream of replays before this number, then trimmed; 0: no
	alarm      time.Time  // call tick then, or somewhat later; zero: no need
	exact      time.Time  // likewise, but not later
	pushed     []*consumer
	hasRoom    bool // the buffer may be filled
	hasSpace   bool // few replayed messages are left
	counts
}

// counts are of messages, by what became of them.
type counts struct{ delivered, acknowledged, retried, expired uint64 }

func newCore(s *Settings, now time.Time) core {
	c := core{settings: s, ahead: ahead{last: -1, lastAt: -1, known: -1}, checkpoint: checkpoint{settings: s, number: -1}}
	c.unanswered.use, c.copied.unanswered.use = byNumber, byNumber
	c.statistics.measured = now
	return c
}

// settle returns what follows from the inputs since it was called last.
func (c *core) settle(now time.Time) (e effects) {
	if !c.loaded {
		return e
	}
	c.release(now)
	e.pushed = c.push(now)
	e.hasRoom = !c.live && c.mayFill()
	e.hasSpace = c.copied.unanswered.n < replayLow
	e.park = c.parking.write()
	number, seq := c.position()
	e.checkpoint = c.checkpoint.write(number, seq, now)
	e.trim = c.copied.trim()
	e.alarm, e.exact = c.alarm(), c.exactAlarm()
	e.counts, c.counts = c.counts, counts{}
	return e
}

// tick is the input that time passes.
func (c *core) tick(now time.Time) {
	if len(c.tracked) == 0 {
		c.tracked = nil // An idle group keeps no large map.
	}
	for m := c.out.head; m != nil && !c.deadline(m).After(now); m = c.out.head {
		c.counts.expired++
		c.again(m, c.settings.delay(m.retries+1), now)
	}
	c.checkpoint.isAsked = true
}

// alarm returns when something is due by time; zero: nothing is.
func (c *core) alarm() time.Time {
	_, seq := c.position()
	at := c.checkpoint.due(seq)
	if m := c.out.head; m != nil {
		if deadline := c.deadline(m); at.IsZero() || deadline.Before(at) {
			return deadline
		}
	}
	return at
}

// exactAlarm is alarm for what must not wait for a tick.
func (c *core) exactAlarm() time.Time {
	at := c.checkpoint.latest()
	if len(c.due) > 0 && (at.IsZero() || c.due[0].due.Before(at)) {
		return c.due[0].due
	}
	return at
}

// deadline returns when the time of a message that was handed out is over.
func (c *core) deadline(m *message) time.Time { return m.given.Add(c.settings.MessageTimeout) }

// give adds messages for a reader that pulls until there are count.
func (c *core) give(got []Message, count int, now time.Time) []Message {
	c.statistics.asked = now
	if !c.loaded || c.paused != nil {
		return got
	}
	c.release(now)
	had, n := len(got), min(count-len(got), c.retry.n+c.replays.n+c.buffer.n)
	got = slices.Grow(got, n)
	if c.tracked == nil && n > 0 {
		c.tracked = make(map[event.ID]*message, n)
	}
	for len(got) < count {
		m := c.takeNext()
		if m == nil {
			break
		}
		c.handOut(m, nil, now)
		got = append(got, m.handed())
	}
	c.counts.delivered += uint64(len(got) - had)
	return got
}

// takeNext returns the message to be handed out next: first retries, oldest first, then replayed
// messages, then new ones.
func (c *core) takeNext() *message {
	for _, l := range []*list{&c.retry, &c.replays, &c.buffer} {
		if l == &c.buffer && !c.mayHandOut() {
			return nil
		}
		for m := l.head; m != nil; {
			next := l.next(m)
			if !c.isHeld(m) {
				return m
			}
			m = next
		}
	}
	return nil
}

// mayHandOut reports whether another new message may go out.
func (c *core) mayHandOut() bool { return c.unanswered.n+c.copied.unanswered.n < maxUnanswered }

// push gives the messages away that consumers have room for, and returns these consumers.
func (c *core) push(now time.Time) (pushed []*consumer) {
	if len(c.consumers) == 0 || c.paused != nil {
		return nil
	}
	for _, l := range []*list{&c.retry, &c.replays, &c.buffer} {
		for m := l.head; m != nil; {
			if l == &c.buffer && !c.mayHandOut() {
				return pushed
			}
			next := l.next(m)
			if c.isHeld(m) {
				m = next
				continue
			}
			to, full := c.strategy.choose(m)
			if full {
				return pushed
			}
			if to != nil {
				to.total++
				to.sinceLast++
				c.handOut(m, to, now)
				c.counts.delivered++
				to.unread = append(to.unread, m)
				pushed = append(pushed, to)
			}
			m = next
		}
	}
	return pushed
}

// handOut gives a message away; nil: to a reader that pulls.
func (c *core) handOut(m *message, to *consumer, now time.Time) {
	fresh := m.state == buffered
	c.listOf(m).remove(m)
	c.statistics.total++
	c.statistics.sinceLast++
	if m.first.IsZero() {
		m.first = now
	}
	if fresh {
		// Of two events with one id the second is handed out and forgotten: an
		// answer could not tell which it means.
		if _, twice := c.tracked[m.id]; twice {
			m.state = done
			return
		}
		c.track(m)
	}
	m.state, m.to, m.given = outstanding, to, now
	c.out.pushBack(m)
	if to != nil {
		to.inFlight++
		c.strategy.handed(m)
	}
}

// ack answers messages as processed. Only outstanding messages can be answered.
func (c *core) ack(ids []event.ID, now time.Time) {
	var next *message // Most are answered in the order in which they were handed out.
	for _, id := range ids {
		m := next
		if m == nil || m.id != id {
			if m = c.tracked[id]; m == nil || m.state != outstanding {
				continue
			}
		}
		next = c.out.next(m)
		c.takeBack(m, now)
		c.forget(m, now)
		c.counts.acknowledged++
	}
}

// nack answers messages as not processed. after is the delay of a retry; nil: that of the settings.
func (c *core) nack(ids []event.ID, action Action, reason string, after *time.Duration, now time.Time) {
	for _, id := range ids {
		m := c.tracked[id]
		if m == nil || m.state != outstanding {
			continue
		}
		switch action {
		case Park:
			c.takeBack(m, now)
			c.parking.add(m, "Client explicitly NAK'ed message.\n"+reason)
		case Skip, Stop:
			c.takeBack(m, now)
			c.forget(m, now)
		default:
			delay := c.settings.delay(m.retries + 1)
			if after != nil {
				delay = *after
			}
			c.again(m, delay, now)
		}
	}
}

// again has an outstanding message handed out once more after a delay, or parks it when that was
// done often enough.
func (c *core) again(m *message, delay time.Duration, now time.Time) {
	c.takeBack(m, now)
	if m.retries >= c.settings.MaxRetryCount {
		c.parking.add(m, fmt.Sprintf("Reached retry count of %d", c.settings.MaxRetryCount))
		return
	}
	m.retries++
	c.counts.retried++
	if delay > 0 {
		c.delay(m, now.Add(delay))
	} else {
		c.wait(m)
	}
}

// takeBack takes an outstanding message away from its consumer.
func (c *core) takeBack(m *message, now time.Time) {
	c.out.remove(m)
	if m.to != nil {
		m.to.returned(m, now)
		c.strategy.returned(m)
		m.to = nil
	}
}

// parked is the result of parking messages. Those that could not be parked come again, and are
// parked again if they fail again.
func (c *core) parked(batch []*message, ok bool, now time.Time) {
	c.parking.isWriting = false
	for _, m := range batch {
		c.parking.remove(m)
		switch {
		case ok && m.isLetGo:
			m.state = done
		case ok:
			c.forget(m, now)
		case m.isLetGo: // It does not come again.
			c.parking.pushBack(m)
		default:
			c.wait(m)
		}
	}
}

// join adds a consumer.
func (c *core) join(to *consumer) {
	c.consumers = append(c.consumers, to)
	c.strategy.joined(to)
}

// leave removes a consumer. Messages that it has not answered are handed out again at once.
func (c *core) leave(from *consumer, now time.Time) {
	at := slices.Index(c.consumers, from)
	c.consumers = slices.Delete(c.consumers, at, at+1)
	from.unread = nil
	for m := c.out.head; m != nil; {
		next := c.out.next(m)
		if m.to == from {
			c.again(m, 0, now)
		}
		m = next
	}
	c.strategy.left(from)
}

// forget ends a message that is in no list by its place any more.
func (c *core) forget(m *message, now time.Time) {
	m.state = done
	delete(c.tracked, m.id)
	c.byNumber(m).remove(m)
	c.statistics.answered = now
}

// replayed is one message to be handed out again.
type replayed struct {
	number int64          // in the stream of replays
	event  event.Resolved // the link, as it was in the parked stream
}

// addReplays adds messages, read when payloads had been forgotten so often, after all that are to
// be handed out again.
func (c *core) addReplays(batch []replayed, forgotten uint64) {
	for _, r := range batch {
		if c.forgotten != forgotten {
			r.event = *withoutPayload(&r.event)
		}
		c.copied.end = max(c.copied.end, r.number+1)
		if c.tracked[r.event.ID] != nil {
			continue // It was copied twice.
		}
		m := &message{id: r.event.ID, event: &r.event, number: r.number, replayed: true, before: -1, bucket: -1, state: waiting}
		c.track(m)
		c.replays.insertByNumber(m)
	}
}

// forgetPayloads drops the payloads of all messages.
func (c *core) forgetPayloads() {
	c.forgotten++
	for _, l := range []*list{&c.buffer, &c.retry, &c.replays, &c.out, &c.parking.list} {
		for m := l.head; m != nil; m = m.links[l.use].next {
			m.event = withoutPayload(m.event)
		}
	}
	for _, m := range c.due {
		m.event = withoutPayload(m.event)
	}
}
