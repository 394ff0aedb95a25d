package torture

import (
	"cmp"
	"slices"
	"sort"
)

// ledger holds what clients know against the final log. It is made when all clients
// have ended and every node was read.
type ledger struct {
	ids   identity
	hist  *history
	book  *book
	find  *findings
	facts []fact
	where map[ref]int // ordinals of the events of this run
	// fluids are the events that may be removed, as far as a reader saw them in the log.
	fluids map[ref]*fluidFact
}

func newLedger(h *history, b *book) *ledger {
	l := &ledger{
		ids: b.ids, hist: h, book: b, find: b.find, facts: b.facts,
		where: make(map[ref]int, len(b.facts)), fluids: map[ref]*fluidFact{},
	}
	for _, f := range b.fluids {
		if f.ref.isForeign() {
			continue
		}
		if before := l.fluids[f.ref]; before != nil {
			l.find.add(kindDuplicate, "%s (%s) and %s (%s) are one event", b.say(f.fact), f.by, b.say(before.fact), before.by)
		}
		l.fluids[f.ref] = f
	}
	slices.SortStableFunc(b.kept, func(x, y *fluidFact) int {
		return cmp.Or(cmp.Compare(x.ordinal, y.ordinal), cmp.Compare(x.entry.Number, y.entry.Number))
	})
	for ordinal, f := range l.facts {
		before, twice := l.where[f.ref]
		switch {
		case f.ref.isForeign():
		case twice:
			l.find.add(kindDuplicate, "%s is event %d of the log and was already event %d, %s", l.book.say(f), ordinal, before, l.book.say(l.facts[before]))
		default:
			l.where[f.ref] = ordinal
		}
	}
	return l
}

// check runs all checks that are not about single nodes.
func (l *ledger) check() {
	l.outcomes()
	l.realTime()
	l.freshness()
	l.vanished()
	l.transfers()
	l.decisions()
}

// powerless: nothing that began when no majority was there was done before there was one.
func (l *ledger) powerless(times []span) {
	l.hist.each(func(first ref, o *op) {
		for _, t := range times {
			if o.outcome == done && o.call > t.from && o.ret < t.to {
				l.find.add(kindMinority, "%s, and from %s to %s no majority was there", l.ids.describe(first, o), seconds(t.from), seconds(t.to))
			}
		}
	})
}

// number returns the number under which the log has an event.
func (l *ledger) number(r ref) (int64, bool) {
	if ordinal, ok := l.where[r]; ok {
		return l.facts[ordinal].number, true
	}
	if f := l.fluids[r]; f != nil {
		return f.number, true
	}
	return 0, false
}

// outcomes: acknowledged events are where the answer said; refused ones are not there; a write with
// an unknown outcome is there as a whole or not at all.
func (l *ledger) outcomes() {
	l.hist.each(func(first ref, o *op) {
		if o.kind != opAppend && o.kind != opDecision {
			return
		}
		limits := o.stream.shed
		number, there := o.number, false
		for i := range int(o.count) {
			at, found := l.number(first + ref(i))
			if !found {
				continue
			}
			if o.outcome == conflict || o.outcome == refused {
				l.find.add(kindUnwanted, "%d@%s: %s", at, o.stream.name, l.ids.describe(first, o))
				return
			}
			if o.outcome == pending && !there {
				number = at - int64(i)
			}
			there = true
		}
		if o.outcome != done && !there {
			return
		}
		for i := range int(o.count) {
			want := number + int64(i)
			at, found := l.number(first + ref(i))
			switch {
			case found && at != want:
				l.find.add(kindOrder, "%d@%s should have the number %d: event %d of: %s", at, o.stream.name, want, i, l.ids.describe(first, o))
				return
			case found, limits != nil && limits.mayLack(want):
			case o.outcome == pending:
				l.find.add(kindTorn, "event %d is not there, others are: %s", i, l.ids.describe(first, o))
				return
			default:
				l.find.add(kindLost, "acknowledged by %s and not in the log: %d@%s, id %s, event %d of: %s",
					nodeName(int(o.node)), want, o.stream.name, l.ids.id(first+ref(i)), i, l.ids.describe(first, o))
				return
			}
		}
	})
}

// realTime: every event of this run was written by an operation, and an append that was
// acknowledged before another began comes first in the log. So an event before it in the log was
// not sent after it was acknowledged, and an event after it was not acknowledged before it was
// sent.
func (l *ledger) realTime() {
	// the ordinal that was sent last of those before this one, -1 for none
	before := make([]int, len(l.facts)+1)
	// that was acknowledged first of those from this one on, -1 for none
	behind := make([]int, len(l.facts)+1)
	ops := make([]*op, len(l.facts))
	before[0], behind[len(l.facts)] = -1, -1
	for i, f := range l.facts {
		before[i+1] = before[i]
		ops[i] = l.hist.find(f.ref)
		if !f.ref.isForeign() && (ops[i] == nil || ops[i].writes(f.ref) != f.stream) {
			l.find.add(kindUnknown, "event %d of the log, %s, belongs to no append to that stream", i, l.book.say(f))
		}
		if ops[i] != nil && (before[i] < 0 || ops[i].call > ops[before[i]].call) {
			before[i+1] = i
		}
	}
	for i := len(l.facts) - 1; i >= 0; i-- {
		behind[i] = behind[i+1]
		if o := ops[i]; o != nil && o.outcome == done && (behind[i] < 0 || o.ret < ops[behind[i]].ret) {
			behind[i] = i
		}
	}
	check := func(f fact, o *op, before, behind int) {
		if before >= 0 && o.outcome == done && ops[before].call > o.ret {
			l.find.add(kindOrder, "%s was acknowledged at %s, and event %d of the log before it, %s, was sent at %s",
				l.book.say(f), seconds(o.ret), before, l.book.say(l.facts[before]), seconds(ops[before].call))
		}
		if behind >= 0 && ops[behind].ret < o.call {
			l.find.add(kindOrder, "%s was sent at %s, and event %d of the log after it, %s, was acknowledged at %s",
				l.book.say(f), seconds(o.call), behind, l.book.say(l.facts[behind]), seconds(ops[behind].ret))
		}
	}
	for i, f := range l.facts {
		if ops[i] != nil {
			check(f, ops[i], -1, behind[i+1]) // What is wrong before it is found there.
		}
	}
	for r, f := range l.fluids {
		if o := l.hist.find(r); o == nil || o.stream != f.stream {
			l.find.add(kindUnknown, "%s, shown by %s, belongs to no append to that stream", l.book.say(f.fact), f.by)
		} else {
			check(f.fact, o, before[f.ordinal], behind[f.ordinal])
		}
	}
}

// bound is a moment from which on a stream is known to have reached a number.
type bound struct {
	at     int64
	number int64
	first  ref
	o      *op
}

// freshness: a read that requires the leader shows at least all that any client knew before it
// began, and no event that was sent after it was answered. This needs no search, so it covers all
// streams and all of the history.
func (l *ledger) freshness() {
	bounds := map[*stream][]bound{}
	l.hist.each(func(first ref, o *op) {
		if o.kind != opAppend && o.kind != opReadHead || o.outcome != done && o.outcome != conflict {
			return
		}
		number := o.number
		if o.kind == opAppend && o.outcome == done {
			number += int64(o.count) - 1
		}
		bounds[o.stream] = append(bounds[o.stream], bound{o.ret, number, first, o})
	})
	for stream, list := range bounds {
		slices.SortFunc(list, func(a, b bound) int { return cmp.Compare(a.at, b.at) })
		highest := make([]int, len(list)) // the bound with the highest number up to here
		for i := range list {
			highest[i] = i
			if i > 0 && list[highest[i-1]].number >= list[i].number {
				highest[i] = highest[i-1]
			}
		}
		for _, b := range list {
			l.fresh(stream, list, highest, b)
		}
	}
}

func (l *ledger) fresh(s *stream, list []bound, highest []int, b bound) {
	saw := b.o.number // the end of the stream as the operation found it
	if b.o.kind == opAppend && b.o.outcome == done {
		saw = b.o.number - 1
	}
	before := sort.Search(len(list), func(i int) bool { return list[i].at >= b.o.call })
	if before > 0 {
		if known := list[highest[before-1]]; known.number > saw {
			l.find.add(kindStale, "%s, %s: found the end of %s at %d, which was known to be at %d or more since %s: %s; known from: %s",
				seconds(b.o.ret), nodeName(int(b.o.node)), s.name, saw, known.number, seconds(known.at),
				l.ids.describe(b.first, b.o), l.ids.describe(known.first, known.o))
		}
	}
	if saw < 0 || saw >= int64(len(s.shown)) {
		return
	}
	if writer := l.hist.find(s.shown[saw]); writer != nil && writer.call > b.o.ret {
		l.find.add(kindFuture, "%s was answered before the event it tells of was sent: %s",
			l.ids.describe(b.first, b.o), l.ids.describe(s.shown[saw], writer))
	}
}

// vanished: what a reading of a stream showed is in the log.
func (l *ledger) vanished() {
	for _, s := range l.book.all {
		if s.fluid {
			continue
		}
		for number, r := range s.shown {
			if r != 0 && s.ordinals[number] < 0 {
				l.find.add(kindLost, "a reading of %s showed number %d with id %s, and it is not in the log", s.name, number, l.ids.id(r))
				break
			}
		}
	}
}
