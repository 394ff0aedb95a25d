package torture

import (
	"cmp"
	"slices"
	"sort"
)

// located is where an event of this run was found.
type located struct {
	ref     ref
	ordinal int32
}

// ledger holds what clients know against the final log. It is made when all clients
// have ended and every node was read.
type ledger struct {
	ids   identity
	names *names
	hist  *history
	book  *book
	find  *findings
	facts []fact
	where []located // by ref
}

func newLedger(h *history, b *book) *ledger {
	l := &ledger{ids: b.ids, names: b.names, hist: h, book: b, find: b.find, facts: b.facts}
	for o, f := range l.facts {
		if !f.ref.isForeign() {
			l.where = append(l.where, located{f.ref, int32(o)})
		}
	}
	slices.SortFunc(l.where, func(a, b located) int { return cmp.Or(cmp.Compare(a.ref, b.ref), cmp.Compare(a.ordinal, b.ordinal)) })
	return l
}

// ordinal returns the place of an event in the log.
func (l *ledger) ordinal(r ref) (int, bool) {
	i, ok := slices.BinarySearchFunc(l.where, r, func(at located, r ref) int { return cmp.Compare(at.ref, r) })
	if !ok {
		return 0, false
	}
	return int(l.where[i].ordinal), true
}

// check runs all checks that are not about single nodes.
func (l *ledger) check() {
	l.origins()
	l.outcomes()
	l.realTime()
	l.freshness()
	l.vanished()
}

// origins: every event of this run in the log was written by an operation, and is there once.
func (l *ledger) origins() {
	for i, at := range l.where {
		f := l.facts[at.ordinal]
		if o := l.hist.find(at.ref); o == nil || o.stream != f.stream {
			l.find.add(kindUnknown, "event %d of the log, %s, belongs to no append to that stream", at.ordinal, l.book.say(f))
		}
		if i > 0 && l.where[i-1].ref == at.ref {
			l.find.add(kindDuplicate, "%s is event %d of the log and was already event %d, %s",
				l.book.say(f), at.ordinal, l.where[i-1].ordinal, l.book.say(l.facts[l.where[i-1].ordinal]))
		}
	}
}

// outcomes: what was acknowledged is there where the answer said; what was refused
// is not; what is indeterminate is there as a whole or not at all.
func (l *ledger) outcomes() {
	l.hist.each(func(first ref, o *op) {
		if o.kind != opAppend {
			return
		}
		ordinal, there := l.ordinal(first)
		number := o.number
		switch o.outcome {
		case conflict, refused:
			for i := range int(o.count) {
				if ordinal, there := l.ordinal(first + ref(i)); there {
					l.find.add(kindUnwanted, "event %d of the log, %s: %s", ordinal, l.book.say(l.facts[ordinal]), l.names.describe(l.ids, first, o))
					return
				}
			}
			return
		case pending:
			if there {
				number = l.facts[ordinal].number
			}
		}
		for i := range int(o.count) {
			ordinal, found := l.ordinal(first + ref(i))
			switch {
			case o.outcome == pending && found != there:
				l.find.add(kindTorn, "its event 0 is there: %t, event %d is there: %t: %s", there, i, found, l.names.describe(l.ids, first, o))
				return
			case !found && o.outcome == done:
				l.find.add(kindLost, "acknowledged by %s and not in the log: %d@%s, id %s, event %d of: %s",
					nodeName(int(o.node)), number+int64(i), l.names.name(o.stream), l.ids.id(first+ref(i)), i, l.names.describe(l.ids, first, o))
				return
			case found && l.facts[ordinal].number != number+int64(i):
				l.find.add(kindOrder, "event %d of the log is %s, want number %d: event %d of: %s",
					ordinal, l.book.say(l.facts[ordinal]), number+int64(i), i, l.names.describe(l.ids, first, o))
				return
			}
		}
	})
}

// realTime: an append that was acknowledged before another began comes first in the log.
// Seen from the end: nothing may begin after the earliest end of what comes later.
func (l *ledger) realTime() {
	earliest := int64(never)
	var later int
	for ordinal := len(l.facts) - 1; ordinal >= 0; ordinal-- {
		f := l.facts[ordinal]
		if f.ref.isForeign() {
			continue
		}
		o := l.hist.find(f.ref)
		if o == nil {
			continue
		}
		if o.call > earliest {
			l.find.add(kindOrder, "event %d of the log, %s, was sent at %s; event %d behind it, %s, was acknowledged before, at %s",
				ordinal, l.book.say(f), seconds(o.call), later, l.book.say(l.facts[later]), seconds(earliest))
			earliest = never // Each break of the order is told once.
		}
		if o.outcome == done && o.ret < earliest {
			earliest, later = o.ret, ordinal
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

// freshness: whoever asks the leader sees at least what anybody knew before it asked,
// and nothing that was sent after it had its answer. This needs no search, so
// it covers all streams and all of the history.
func (l *ledger) freshness() {
	bounds := map[uint32][]bound{}
	l.hist.each(func(first ref, o *op) {
		if o.kind == opDelete || o.outcome != done && o.outcome != conflict {
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

func (l *ledger) fresh(stream uint32, list []bound, highest []int, b bound) {
	saw := b.o.number // the end of the stream as the operation found it
	if b.o.kind == opAppend && b.o.outcome == done {
		saw = b.o.number - 1
	}
	before := sort.Search(len(list), func(i int) bool { return list[i].at >= b.o.call })
	if before > 0 {
		if known := list[highest[before-1]]; known.number > saw {
			l.find.add(kindStale, "%s, %s: found the end of %s at %d, which was known to be at %d or more since %s: %s; known from: %s",
				seconds(b.o.ret), nodeName(int(b.o.node)), l.names.name(stream), saw, known.number, seconds(known.at),
				l.names.describe(l.ids, b.first, b.o), l.names.describe(l.ids, known.first, known.o))
		}
	}
	s := l.book.stream(stream)
	if saw < 0 || saw >= int64(len(s.refs)) {
		return
	}
	if writer := l.hist.find(s.refs[saw]); writer != nil && writer.call > b.o.ret {
		l.find.add(kindFuture, "%s was answered before the event it tells of was sent: %s",
			l.names.describe(l.ids, b.first, b.o), l.names.describe(l.ids, s.refs[saw], writer))
	}
}

// vanished: what a reading of a stream showed is in the log.
func (l *ledger) vanished() {
	for i, s := range l.book.streams {
		if s == nil {
			continue
		}
		for number, r := range s.refs {
			if r != 0 && s.ordinals[number] < 0 {
				l.find.add(kindLost, "a reading of %s showed number %d with id %s, and it is not in the log", l.names.name(uint32(i)), number, l.ids.id(r))
				break
			}
		}
	}
}
