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

// groupCheck holds what consumers were given and said against the final log. For it
//
//   - an event is finished when an answer that finishes it may have been taken, or when the
//     parked stream ever had it: replayed messages live in memory alone;
//   - a checkpoint is as old as the log says: it was there when a later append was acknowledged;
//   - a checkpoint may cover an event only if by then somebody had sent an answer that takes the
//     event out of the group, or if the event was ever parked;
//   - a message may be given again after its timeout, after a demand to retry, after an update of
//     its group or a restart, and by another leader. Where any of that is possible nothing is said.
type groupCheck struct {
	ledger *ledger
	subs   *subscriptions
	calm   func(from, to int64) bool // whether one leader led, and no other node may have thought it did
	dated  []int64                   // by ordinal of the log: when it was there
}

// place of a message in the stream of its group.
type messagePlace struct {
	number   int64
	replayed bool
}

// eventRecord is what happened to one event of a stream in one group.
type eventRecord struct {
	id         event.ID
	ref        ref
	deliveries []*delivery
	replies    []*reply
	parked     []keptEntry
}

// groupBook is one group.
type groupBook struct {
	*groupCheck
	group       *group
	index       int
	events      []eventRecord // by number
	where       map[event.ID]messagePlace
	checkpoints []keptEntry
	// lacks says that messages were parked that nobody saw: parked streams are cut off where
	// messages were replayed, and what was cut off may be removed.
	lacks bool
}

// checkGroups runs all checks of groups.
func checkGroups(l *ledger, s *subscriptions, calm func(from, to int64) bool) {
	c := &groupCheck{ledger: l, subs: s, calm: calm}
	c.date()
	for i, g := range s.groups {
		b := c.open(i, g)
		b.delivered()
		b.handedTwice()
		b.ahead()
		b.finished()
	}
}

// date finds for each event of the log a time at which it was there, which rises
// with the log: a consumer that was shown it or a later one had it, and so had one that was
// told of a later append.
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
func (c *groupCheck) there(k keptEntry) int64 {
	if k.ordinal < len(c.dated) {
		return min(k.at, c.dated[k.ordinal])
	}
	return k.at
}

// open puts together what is known of one group.
func (c *groupCheck) open(index int, g *group) *groupBook {
	b := &groupBook{groupCheck: c, group: g, index: index, where: map[event.ID]messagePlace{}}
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
		if one.index != index {
			continue
		}
		for i := range one.deliveries {
			d := &one.deliveries[i]
			if at, ok := b.where[d.id]; ok {
				e := &b.events[at.number]
				e.deliveries = append(e.deliveries, d)
			}
		}
		for i := range one.replies {
			r := &one.replies[i]
			if at, ok := b.where[r.id]; ok {
				e := &b.events[at.number]
				e.replies = append(e.replies, r)
			}
		}
	}
	return b
}

// park takes a parked message: a link of the server's with the number of its event in its metadata.
func (b *groupBook) park(k keptEntry) {
	var meta struct {
		Number int64 `json:"subscriptionEventNumber"` // Zero may be left out.
	}
	id, err := event.ParseID(k.entry.ID)
	if err == nil {
		err = json.Unmarshal([]byte(k.entry.Meta), &meta)
	}
	if err == nil && (meta.Number < 0 || meta.Number >= int64(len(b.events))) {
		err = fmt.Errorf("it has %d events", len(b.events))
	}
	if err != nil {
		b.ledger.find.add(kindPhantom, "%s: event %d of the log, %d@%s, has the metadata %q of no event of the stream: %v",
			b.group, k.ordinal, k.entry.Number, k.entry.Stream, k.entry.Meta, err)
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
		if one.index != b.index {
			continue
		}
		for i := range one.deliveries {
			d := &one.deliveries[i]
			at, ok := b.where[d.id]
			if !ok && b.lacks {
				continue
			}
			if !ok {
				b.ledger.find.add(kindPhantom, "%s: %s with id %s is neither in the stream nor was it ever parked: %s", b.group, d.title, d.id, b.tellDelivery(d))
				continue
			}
			e := &b.events[at.number]
			if want := b.title(at.number, e.ref); d.title != want && want != "" {
				b.ledger.find.add(kindMessage, "%s: the message of number %d shows %s, want %s; %s", b.group, at.number, d.title, want, b.tell(at.number))
			}
			if d.retries > b.group.settings.MaxRetries || d.retries < 0 {
				b.ledger.find.add(kindRetries, "%s: number %d was delivered with retry count %d, and %d is the limit; %s",
					b.group, at.number, d.retries, b.group.settings.MaxRetries, b.tell(at.number))
			}
			if at.replayed {
				b.subs.count.add(ofSubscriptions, "replayed deliveries", 1)
			}
			if b.calm(d.call-calmAround, d.ret+calmAround) {
				b.subs.count.add(ofSubscriptions, "calm deliveries", 1)
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
		b.subs.count.add(ofSubscriptions, "delivered again", max(0, len(e.deliveries)-1))
		by := slices.Clone(e.deliveries)
		slices.SortFunc(by, func(x, y *delivery) int { return cmp.Or(bytes.Compare(x.id[:], y.id[:]), cmp.Compare(x.call, y.call)) })
		for i := 1; i < len(by); i++ {
			x, y := by[i-1], by[i]
			if x.id != y.id {
				continue
			}
			from, to := min(x.call, y.call), max(x.ret, y.ret)
			if to-from >= int64(b.group.settings.timeout()) || b.excused(e, x.id, from, to) || !b.calm(from-calmAround, to+calmAround) {
				continue
			}
			b.ledger.find.add(kindTwice, "%s: number %d was given twice within %s, and messages have %s; %s", b.group, n,
				time.Duration(to-from), b.group.settings.timeout(), b.tell(int64(n)))
		}
	}
}

// until is when a command has surely worked if it ever does.
func until(ret int64, o outcome) int64 {
	if o == done {
		return ret + moment
	}
	return ret + straggles
}

// excused says whether something in that time may have put a message back.
func (b *groupBook) excused(e *eventRecord, id event.ID, from, to int64) bool {
	for _, r := range e.replies {
		if r.id == id && r.action == actionRetry && r.outcome != refused && r.call <= to && until(r.ret, r.outcome) >= from {
			return true
		}
	}
	for _, a := range b.subs.acts {
		if a.what != actReplay && (a.group < 0 || a.group == b.index) && a.outcome != refused && a.call <= to && until(a.ret, a.outcome) >= from {
			return true
		}
	}
	return false
}

// ahead: no checkpoint covers an event that was still in the group.
func (b *groupBook) ahead() {
	// out is, by number, when somebody first sent what takes an event out of the group.
	out := make([]int64, len(b.events))
	for n := range b.events {
		e := &b.events[n]
		out[n] = never
		if len(e.parked) > 0 {
			out[n] = 0
		}
		for _, r := range e.replies {
			if r.outcome != refused && r.action <= actionPark {
				out[n] = min(out[n], r.call)
			}
		}
	}
	n := b.group.settings.StartFrom // What lies below was right for an earlier checkpoint, or has been told.
	for _, k := range b.checkpoints {
		at, err := strconv.ParseInt(strings.Trim(k.entry.Data, `"`), 10, 64)
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
		settled := len(e.parked) > 0
		for _, r := range e.replies {
			settled = settled || r.action.finishes() && r.outcome != refused
		}
		switch {
		case settled, b.lacks:
		case len(e.deliveries) == 0:
			b.ledger.find.add(kindSkipped, "%s: number %d, id %s, was given to nobody and is not parked; %s", b.group, n, e.id, b.tell(n))
		default:
			b.ledger.find.add(kindForgotten, "%s: number %d, id %s, was neither acknowledged nor parked and does not come again; %s", b.group, n, e.id, b.tell(n))
		}
	}
}

// toldLines bounds the history of one event.
const toldLines = 24

// tellDelivery describes a delivery for people.
func (b *groupBook) tellDelivery(d *delivery) string {
	return fmt.Sprintf("%s to %s: given to consumer %d by %s as %s, retry count %d", seconds(d.call), seconds(d.ret), d.consumer, nodeName(d.node), d.id, d.retries)
}

// tell is the history of one event in the group, in order of time.
func (b *groupBook) tell(n int64) string {
	type line struct {
		at   int64
		text string
	}
	var lines []line
	e := &b.events[n]
	for _, d := range e.deliveries {
		lines = append(lines, line{d.call, b.tellDelivery(d)})
	}
	for _, r := range e.replies {
		lines = append(lines, line{r.call, fmt.Sprintf("%s to %s: %s of consumer %d for %s: %s", seconds(r.call), seconds(r.ret), r.action, r.consumer, r.id, r.outcome)})
	}
	for _, k := range e.parked {
		lines = append(lines, line{b.there(k), fmt.Sprintf("at most %s: parked as %d, id %s, event %d of the log, %s",
			seconds(b.there(k)), k.entry.Number, k.entry.ID, k.ordinal, k.entry.Meta)})
	}
	if len(lines) > 0 {
		first := lines[0].at
		for _, l := range lines {
			first = min(first, l.at)
		}
		for _, a := range b.subs.acts {
			if (a.group < 0 || a.group == b.index) && a.call >= first && (a.what != actReplay || len(e.parked) > 0) {
				lines = append(lines, line{a.call, fmt.Sprintf("%s to %s: %s: %s", seconds(a.call), seconds(a.ret), a.what, a.outcome)})
			}
		}
	}
	slices.SortStableFunc(lines, func(x, y line) int { return cmp.Compare(x.at, y.at) })
	var text strings.Builder
	fmt.Fprintf(&text, "history of %d@%s:", n, b.group.stream)
	for _, l := range lines[:min(len(lines), toldLines)] {
		text.WriteString("\n    " + l.text)
	}
	if more := len(lines) - toldLines; more > 0 {
		fmt.Fprintf(&text, "\n    and %d more", more)
	}
	return text.String()
}
