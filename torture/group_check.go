package torture

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
)

const (
	// moment is how long an answered command may take until it works.
	moment = int64(time.Second)
	// straggles is how long a command without an answer may take until it works: it may lie
	// with a node that was stopped.
	straggles = int64(25 * time.Second)
	// calmAround is how long before and after a time nothing may have happened to the
	// cluster for two deliveries to be surely of one leader.
	calmAround = int64(1500 * time.Millisecond)
)

// groupCheck compares the messages and answers of consumers with the final log. Its rules:
//
//   - an event is finished when an answer that finishes it may have been taken, or when the
//     parked stream ever had it: replayed messages live in memory alone;
//   - a checkpoint is as old as the log says: it was there when a later append was acknowledged;
//   - a checkpoint may cover an event only if by then a consumer had sent an answer that takes
//     the event out of the group, or if the event was ever parked;
//   - a message may be given again after its timeout or a demand to retry, each with the delay that
//     comes of it, after an update or a reset of its group or a restart, and by another leader.
//     Where any of that is possible nothing is reported;
//   - after a reset that was answered, each event from its place on is given again, or parked;
//   - no message is forwarded twice;
//   - a group that is paused gives nothing, and where it keeps an order, nothing is given that
//     comes after a delayed message.
type groupCheck struct {
	ledger *ledger
	subs   *subscriptions
	// whether one leader led, and no other node may have thought it did
	calm  func(from, to int64) bool
	dated []int64 // by ordinal of the log: when it was there
}

// place of a message in the stream of its group.
type messagePlace struct {
	number   int64
	replayed bool
}

// eventRecord is what happened to one event of a stream in one group.
type eventRecord struct {
	id     event.ID
	ref    ref
	steps  []*step
	parked []*fluidFact
}

// deliveries are the steps in which it was given to a consumer.
func (e *eventRecord) deliveries() []*step {
	return slices.DeleteFunc(slices.Clone(e.steps), func(s *step) bool { return s.What != delivered })
}

// answered says since when it may have been answered in one of these ways, never if it was not.
func (e *eventRecord) answered(ways []string) int64 {
	since := int64(never)
	for _, s := range e.steps {
		if s.Outcome != refused && slices.Contains(ways, s.What) {
			since = min(since, s.Call)
		}
	}
	return since
}

// groupBook is one group.
type groupBook struct {
	*groupCheck
	group       *group
	events      []eventRecord // by number
	where       map[event.ID]messagePlace
	checkpoints []*fluidFact
	// lacks says that messages were parked that no reader saw: a replay truncates the parked
	// stream, and a scavenge may remove the truncated events.
	lacks bool
}

// checkGroups runs all checks of groups.
func checkGroups(l *ledger, s *subscriptions, calm func(from, to int64) bool) {
	c := &groupCheck{ledger: l, subs: s, calm: calm}
	c.date()
	c.forwarded()
	for _, g := range s.groups {
		b := c.open(g)
		b.delivered()
		b.handedTwice()
		b.passed()
		b.paused()
		b.movedBack()
		b.ahead()
		b.finished()
	}
}

// date finds for each event of the log a time at which it was there. These times rise with the log:
// a client that read the event or a later one proves that it was there, and so does the answer to a
// later append.
func (c *groupCheck) date() {
	b := c.ledger.book
	c.dated = make([]int64, len(b.facts))
	earliest := int64(never)
	for o := len(b.facts) - 1; o >= 0; o-- {
		if f := b.facts[o]; !f.ref.isForeign() {
			if w := c.ledger.hist.find(f.ref); w != nil && w.outcome == done {
				earliest = min(earliest, w.ret)
			}
		}
		earliest = min(earliest, b.definer(o).at)
		c.dated[o] = earliest
	}
}

// there is a time at which the event was there.
func (c *groupCheck) there(k *fluidFact) int64 {
	if k.ordinal < len(c.dated) {
		return min(k.by.at, c.dated[k.ordinal])
	}
	return k.by.at
}

// open puts together what is known of one group.
func (c *groupCheck) open(g *group) *groupBook {
	b := &groupBook{groupCheck: c, group: g, where: map[event.ID]messagePlace{}}
	book := c.ledger.book
	stream := book.stream(g.stream)
	for n, r := range stream.shown {
		if stream.ordinals[n] < 0 {
			break // A reading showed it, and it is not in the log: that is reported elsewhere.
		}
		e := eventRecord{id: c.ledger.ids.id(r), ref: r}
		b.events = append(b.events, e)
		b.where[e.id] = messagePlace{number: int64(n)}
	}
	c.subs.count.add(ofSubscriptions, "events", len(b.events))
	parked := map[int64]bool{}
	newest := int64(-1)
	for _, k := range book.kept {
		switch k.entry.Stream {
		case g.checkpointStream():
			c.subs.count.add(ofSubscriptions, "checkpoints", 1)
			b.checkpoints = append(b.checkpoints, k)
		case g.parkedStream():
			parked[k.entry.Number] = true
			newest = max(newest, k.entry.Number)
			b.park(k)
		}
	}
	b.lacks = int64(len(parked)) <= newest
	for _, one := range c.subs.consumers {
		if one.group != g {
			continue
		}
		for i := range one.steps {
			if at, ok := b.where[one.steps[i].ID]; ok {
				e := &b.events[at.number]
				e.steps = append(e.steps, &one.steps[i])
			}
		}
	}
	return b
}

// park takes a parked message: a link of the server's with the number of its event in its metadata.
func (b *groupBook) park(k *fluidFact) {
	var meta struct {
		Number int64 `json:"subscriptionEventNumber"` // Zero may be left out.
	}
	id, err := event.ParseID(k.entry.ID)
	if err == nil {
		err = json.Unmarshal([]byte(k.entry.Metadata), &meta)
	}
	if err == nil && (meta.Number < 0 || meta.Number >= int64(len(b.events))) {
		err = fmt.Errorf("it has %d events", len(b.events))
	}
	if err != nil {
		b.ledger.find.add(kindPhantom, "%s: event %d of the log, %d@%s, has the metadata %q of no event of the stream: %v",
			b.group, k.ordinal, k.entry.Number, k.entry.Stream, k.entry.Metadata, err)
		return
	}
	b.subs.count.add(ofSubscriptions, "parked", 1)
	b.where[id] = messagePlace{number: meta.Number, replayed: true}
	e := &b.events[meta.Number]
	e.parked = append(e.parked, k)
}

// delivered: every message is of an event of the stream, shows it, and was not retried too often.
func (b *groupBook) delivered() {
	for _, one := range b.subs.consumers {
		if one.group != b.group {
			continue
		}
		for i := range one.steps {
			d := &one.steps[i]
			at, ok := b.where[d.ID]
			if d.What != delivered || !ok && b.lacks {
				continue
			}
			if !ok {
				b.ledger.find.add(kindPhantom, "%s: %s with id %s is neither in the stream nor was it ever parked: %s", b.group, d.Title, d.ID, d)
				continue
			}
			e := &b.events[at.number]
			if want := b.title(at.number, e.ref); d.Title != want && want != "" {
				b.ledger.find.add(kindMessage, "%s: the message of number %d shows %s, want %s; %s", b.group, at.number, d.Title, want, b.tell(at.number))
			}
			if d.Retries > b.group.settings.MaxRetries || d.Retries < 0 {
				b.ledger.find.add(kindRetries, "%s: number %d was delivered with retry count %d, and %d is the limit; %s",
					b.group, at.number, d.Retries, b.group.settings.MaxRetries, b.tell(at.number))
			}
			if at.replayed {
				b.subs.count.add(ofSubscriptions, "replayedDeliveries", 1)
			}
			if b.calm(d.Call-calmAround, d.Return+calmAround) {
				b.subs.count.add(ofSubscriptions, "calmDeliveries", 1)
			}
		}
	}
}

// title is how a message of an event is titled, empty where that is not said.
func (b *groupBook) title(number int64, r ref) string {
	if b.group.settings.ResolveLinks && b.ledger.ids.isLink(r) {
		if _, there := b.ledger.ids.linked(r); !there {
			return ""
		}
		return b.ledger.ids.data(r)
	}
	return strconv.FormatInt(number, 10) + "@" + b.group.stream
}

// handedTwice: while one leader led, no message was given to two before its deadline.
func (b *groupBook) handedTwice() {
	for n := range b.events {
		e := &b.events[n]
		by := e.deliveries()
		b.subs.count.add(ofSubscriptions, "duplicates", max(0, len(by)-1))
		slices.SortFunc(by, func(x, y *step) int { return cmp.Or(bytes.Compare(x.ID[:], y.ID[:]), cmp.Compare(x.Call, y.Call)) })
		for i := 1; i < len(by); i++ {
			x, y := by[i-1], by[i]
			if x.ID != y.ID {
				continue
			}
			from, to := min(x.Call, y.Call), max(x.Return, y.Return)
			soonest, isDemanded := b.soonest(e, x, min(x.Retries, y.Retries), from, to)
			if to >= soonest || b.excused(e, x.ID, from, to) || !b.calm(from-calmAround, to+calmAround) {
				continue
			}
			kind := kindTwice
			if isDemanded {
				kind = kindEarly
			}
			b.ledger.find.add(kind, "%s: number %d was given twice within %s, and should not come before %s; %s", b.group, n,
				time.Duration(to-from), time.Duration(soonest-from), b.tell(int64(n)))
		}
	}
}

// excused says whether something in that time may have put a message back at once.
func (b *groupBook) excused(e *eventRecord, id event.ID, from, to int64) bool {
	// A message that could not be parked, as on a full disk, is handed out again.
	unparked := !slices.ContainsFunc(e.parked, func(k *fluidFact) bool { return b.there(k) >= from && b.there(k) <= to })
	for _, r := range e.steps {
		if r.ID == id && r.What == actionPark && unparked && r.mayWork(from, to) {
			return true
		}
	}
	return b.loadedAgain(from, to)
}

// ahead: no checkpoint covers an event that was still in the group.
func (b *groupBook) ahead() {
	// out is, by number, when a consumer first sent an answer that takes the event out of the
	// group.
	out := make([]int64, len(b.events))
	for n := range b.events {
		e := &b.events[n]
		out[n] = e.answered(removing)
		if len(e.parked) > 0 {
			out[n] = 0
		}
	}
	// Numbers below it were right for an earlier checkpoint, or were reported.
	n := b.group.settings.StartFrom
	for _, k := range b.checkpoints {
		at, err := strconv.ParseInt(strings.Trim(k.entry.Data, `"`), 10, 64)
		if at == -1 && err == nil && b.hasReset() {
			continue // It was moved to its first event.
		}
		if err != nil || at < 0 || at >= int64(len(b.events)) {
			b.ledger.find.add(kindAhead, "%s: event %d of the log, %d@%s, has the data %q, and the stream has %d events",
				b.group, k.ordinal, k.entry.Number, k.entry.Stream, k.entry.Data, len(b.events))
			continue
		}
		for ; n <= at; n++ {
			if out[n] <= b.there(k) || b.lacks {
				continue
			}
			b.ledger.find.add(kindAhead, "%s: the checkpoint %d, event %d of the log, was there at %s, and number %d was still in the group; %s",
				b.group, at, k.ordinal, seconds(b.there(k)), n, b.tell(n))
		}
	}
}

// finished: every event was answered for good or parked.
func (b *groupBook) finished() {
	for n := b.group.settings.StartFrom; n < int64(len(b.events)); n++ {
		e := &b.events[n]
		switch {
		case b.lacks, len(e.parked) > 0, e.answered(finishes) != never:
		case len(e.deliveries()) == 0:
			b.ledger.find.add(kindSkipped, "%s: number %d, id %s, was given to no consumer and is not parked; %s", b.group, n, e.id, b.tell(n))
		default:
			b.ledger.find.add(kindForgotten, "%s: number %d, id %s, was neither acknowledged nor parked and does not come again; %s", b.group, n, e.id, b.tell(n))
		}
	}
}

// toldLines bounds the history of one event.
const toldLines = 24

// tell is the history of one event in the group, in order of time.
func (b *groupBook) tell(n int64) string {
	e := &b.events[n]
	steps := slices.Clone(e.steps)
	for _, k := range e.parked {
		what := fmt.Sprintf("parked as %d, event %d of the log, %s", k.entry.Number, k.ordinal, k.entry.Metadata)
		steps = append(steps, &step{What: what, Consumer: -1, Node: -1, Call: b.there(k), Return: b.there(k), Outcome: done})
	}
	first := int64(never)
	for _, s := range steps {
		first = min(first, s.Call)
	}
	for i := range b.subs.acts {
		if a := &b.subs.acts[i]; (a.Group == nil || a.Group == b.group) && a.Call >= first && (a.What != actReplay || len(e.parked) > 0) {
			steps = append(steps, a)
		}
	}
	slices.SortStableFunc(steps, func(x, y *step) int { return cmp.Compare(x.Call, y.Call) })
	text := fmt.Sprintf("history of %d@%s:", n, b.group.stream)
	for _, s := range steps[:min(len(steps), toldLines)] {
		text += "\n    " + s.String()
	}
	if more := len(steps) - toldLines; more > 0 {
		text += fmt.Sprintf("\n    and %d more", more)
	}
	return text
}
